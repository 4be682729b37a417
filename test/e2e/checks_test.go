package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// script writes an executable that ends with the status in DIR/NAME.status.
func (b *bed) statusScript(name string, status int) string {
	b.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nexit $(cat %s.status)\n", path), 0o755); err != nil {
		b.Fatal(err)
	}
	b.setStatus(name, status)
	return path
}

func (b *bed) setStatus(name string, status int) {
	b.Helper()
	path := filepath.Join(b.dir, name+".status")
	if err := os.WriteFile(path+".new", fmt.Appendln(nil, status), 0o644); err != nil {
		b.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		b.Fatal(err)
	}
}

// TestKernelMiscDynamicDrains: a script's weight is in the table, weight 0 keeps the
// connections, and a failing script takes its server out (cases C05, C06).
func TestKernelMiscDynamicDrains(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	path := b.statusScript("load.sh", 0)
	check := "MISC_CHECK {\n misc_path " + path + "\n misc_dynamic\n misc_timeout 10\n delay_loop 1\n}"
	b.write(globals + "virtual_server VIP 80 {\n delay_loop 1\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n warmup 0\n inhibit_on_failure\n" +
		realServer(1, check) + realServer(2, "") + "}\n")
	b.start()
	b.until("1:1 2:1")
	b.hold(4)
	b.setStatus("load.sh", 12)
	b.until("1:10 2:1")
	b.setStatus("load.sh", 1)
	b.until("1:0 2:1")
	b.shows(1, engine.StateDown, "exit status 1")
	b.setStatus("load.sh", 22)
	b.until("1:20 2:1")
	b.setStatus("load.sh", 2)
	b.until("1:0 2:1")
	b.shows(1, engine.StateMaintenance, "MISC_CHECK asks for weight 0")
	b.setStatus("load.sh", 0)
	b.until("1:1 2:1")
	b.kept()
}

// TestKernelDatagramChecks: UDP_CHECK, DNS_CHECK and PING_CHECK see a server that
// answers, one that refuses and one that is off.
func TestKernelDatagramChecks(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 3)
	for _, be := range b.Backends {
		testkit.NewUDPEcho(t, be.NS, ":53")
	}
	checks := func(n int) string {
		return fmt.Sprintf(` real_server RS%d 80 {
  weight 1
  UDP_CHECK {
   connect_port 53
   require_reply
   connect_timeout 3
   retry 0
  }
  PING_CHECK {
   connect_timeout 3
   retry 0
  }
 }
`, n)
	}
	b.write(globals + "virtual_server VIP 80 {\n delay_loop 1\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n warmup 0\n" + checks(1) + checks(2) + checks(3) + "}\n")
	b.start()
	for n := 1; n <= 3; n++ {
		b.shows(n, engine.StateUp, "all checks pass")
	}
	b.Backends[0].NS.IP(t, "link set lo down", "link set eth0 down")
	b.until("2:1 3:1")
	b.Backends[0].NS.IP(t, "link set lo up", "link set eth0 up")
	b.until("1:1 2:1 3:1")
}

// mailbox is a mail server that keeps what it is sent.
type mailbox struct {
	mu    sync.Mutex
	mails []string
}

func (m *mailbox) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewScanner(c)
	say := func(s string) { fmt.Fprintf(c, "%s\r\n", s) }
	say("220 mail ready")
	for in.Scan() {
		switch word, _, _ := strings.Cut(strings.ToUpper(in.Text()), " "); word {
		case "DATA":
			say("354 go on")
			var text []string
			for in.Scan() && in.Text() != "." {
				text = append(text, in.Text())
			}
			m.mu.Lock()
			m.mails = append(m.mails, strings.Join(text, "\n"))
			m.mu.Unlock()
			say("250 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 fine")
		}
	}
}

func (m *mailbox) wait(t *testing.T, parts ...string) {
	t.Helper()
	testkit.Eventually(t, patience, func() string {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, mail := range m.mails {
			missing := false
			for _, p := range parts {
				missing = missing || !strings.Contains(mail, p)
			}
			if !missing {
				return ""
			}
		}
		return fmt.Sprintf("no mail with %q among %d:\n%s", parts, len(m.mails), strings.Join(m.mails, "\n----\n"))
	})
}

// TestKernelMailAndFIFO: what happens is mailed and written to the FIFO once the
// table agrees, in keepalived's words.
func TestKernelMailAndFIFO(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	box := &mailbox{}
	l, err := b.Director.Listen("tcp", "127.0.0.1:2525")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { box.serve(c) })
		}
	})
	b.Director.IP(t, "link set lo up")
	b.write(`global_defs {
 router_id lb1
 notification_email {
  ops@example.com
 }
 notification_email_from lb@example.com
 smtp_server 127.0.0.1 2525
 smtp_connect_timeout 20
 lvs_notify_fifo DIR/fifo
}
` + pool("smtp_alert", 1, 2))
	b.start()
	var fifo *os.File
	testkit.Eventually(t, patience, func() string {
		// Both ways, since opening one alone waits for the other.
		if fifo, err = os.OpenFile(filepath.Join(b.dir, "fifo"), os.O_RDWR, 0); err != nil {
			return err.Error()
		}
		return ""
	})
	t.Cleanup(func() { fifo.Close() })
	vs, rs := "["+b.VIP.String()+"]:tcp:80", "["+b.Backends[0].Addr.String()+"]:tcp:80"
	b.until("1:1 2:1")
	box.wait(t, "Subject: [lb1] Virtualserver "+vs+" - UP", "=> Starting with quorum up <=", "To: ops@example.com", "From: lb@example.com")
	b.echo[0].Refuse()
	b.until("2:1")
	box.wait(t, "Subject: [lb1] Realserver "+rs+" of virtual server "+vs+" - DOWN", "=> TCP CHECK failed on service <=", "refused")
	b.echo[0].Start(t)
	b.until("1:1 2:1")
	box.wait(t, "Subject: [lb1] Realserver "+rs+" of virtual server "+vs+" - UP", "=> TCP CHECK succeed on service <=")
	want := "VS " + vs + " UP\n\x00RS " + rs + " " + vs + " DOWN\n\x00RS " + rs + " " + vs + " UP\n\x00"
	got := make([]byte, len(want))
	if err := fifo.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(got); {
		k, err := fifo.Read(got[n:])
		if n += k; err != nil {
			t.Fatalf("FIFO: %v after %q", err, got[:n])
		}
	}
	if string(got) != want {
		t.Errorf("FIFO\n%q, want\n%q", got, want)
	}
}

// TestKernelHASuspend: a director without the address probes nobody and changes
// nothing; when the address comes, checks begin at once.
func TestKernelHASuspend(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	b.Director.IP(t, "address del "+b.VIP.String()+"/32 dev front")
	b.write(globals + pool("ha_suspend", 1, 2))
	b.echo[0].Refuse()
	b.start()
	b.until("1:1 2:1")
	b.stays("1:1 2:1", 4*time.Second)
	if n := b.echo[1].Accepted(); n != 0 {
		t.Errorf("%d probes while suspended", n)
	}
	if !b.status().VirtualServers[0].Suspended {
		t.Error("status does not say that it is suspended")
	}
	b.Director.IP(t, "address add "+b.VIP.String()+"/32 dev front")
	b.until("2:1")
	b.Director.IP(t, "address del "+b.VIP.String()+"/32 dev front")
	testkit.Eventually(t, patience, func() string {
		if !b.status().VirtualServers[0].Suspended {
			return "not suspended"
		}
		return ""
	})
	b.echo[0].Start(t)
	b.stays("2:1", 4*time.Second)
}

// TestKernelSyncDaemon: the kernel's threads are those of the file, left alone by a
// reload and gone at the stop.
func TestKernelSyncDaemon(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 1)
	daemons := func() string { return b.Director.Run(t, "ipvsadm", "-L", "--daemon") }
	conf := func(id int) string {
		return fmt.Sprintf("global_defs {\n lvs_sync_daemon lo id %d\n #sluice lvs_sync_state backup\n}\n", id) + pool("", 1)
	}
	b.Director.IP(t, "link set lo up")
	b.write(conf(7))
	b.start()
	wait := func(want string) {
		t.Helper()
		testkit.Eventually(t, patience, func() string {
			if got := daemons(); !strings.Contains(got, want) || strings.Contains(got, "master") {
				return fmt.Sprintf("sync daemons %q, want %q", got, want)
			}
			return ""
		})
	}
	wait("backup sync daemon (mcast=lo, syncid=7")
	b.write(conf(9))
	b.daemon.Signal(t, syscall.SIGHUP)
	wait("backup sync daemon (mcast=lo, syncid=9")
	b.daemon.Signal(t, syscall.SIGTERM)
	if status := b.daemon.Wait(t, patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if got := strings.TrimSpace(daemons()); got != "" {
		t.Errorf("left after the stop: %q", got)
	}
}
