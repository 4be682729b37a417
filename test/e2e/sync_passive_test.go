package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// serverToo are two directors, the second of which is one of the real servers. It keeps
// its services out of the table while the first has the address, for what comes to it as
// a server would be balanced again otherwise; it takes in the connections all the same.
type serverToo struct {
	*pair
	// all is the table with the second director as a server.
	all string
}

// newServerToo has 30 connections go through the first director, a third of them to the
// second, which has learned of all. withhold makes the second one's file without its
// services, and with, of the one that has them. The virtual address is local on it without
// being on a device that answers for it, as on each real server.
func newServerToo(t *testing.T, local string, withhold func(b *bed, served string) string) *serverToo {
	t.Helper()
	p := &serverToo{newPair(t, 2, "rr", ""), "9:1 1:1 2:1"}
	p.second.becomes(withhold(p.second, read(t, p.second.conf)), "-")
	p.Second.Sysctl(t, "net.ipv4.conf.all.arp_ignore", "1")
	p.Second.Sysctl(t, "net.ipv4.conf.all.arp_announce", "2")
	p.Second.IP(t, local)
	testkit.NewEcho(t, p.Second, ":80")
	p.first.becomes(withOwn(read(t, p.first.conf)), p.all)
	p.hold(30)
	if r := p.first.long.Report(); r.KeptBy["second"] != 10 {
		t.Fatalf("before: %s", r)
	}
	p.carried(30)
	return p
}

// withOwn adds the second director to the real servers of the first virtual server.
func withOwn(text string) string {
	pool, rest, _ := strings.Cut(text, "\n}\nvirtual_server 192.0.2.99")
	if rest != "" {
		rest = "virtual_server 192.0.2.99" + rest
	} else {
		pool = strings.TrimSuffix(pool, "\n}\n")
	}
	return pool + "\n" + strings.ReplaceAll(realServer(1, ""), "RS1", "10.0.0.2") + "}\n" + rest
}

// becomes has the daemon read a file, and waits for the table that it makes.
func (b *bed) becomes(text, table string) {
	b.Helper()
	b.write(text)
	b.daemon.Signal(b.T, syscall.SIGHUP)
	b.until(table)
}

// realServerOf is a real server's block in a file that was written.
func realServerOf(b *bed, n int) string {
	return strings.ReplaceAll(realServer(n, ""), fmt.Sprintf("RS%d", n), b.Backends[n-1].Addr.String())
}

// serves checks that new connections are answered.
func (p *serverToo) serves() {
	p.Helper()
	if n := p.fresh(6); n != 6 {
		p.Errorf("%d of 6 new connections are answered", n)
	}
}

// TestKernelSyncServerToo: with no service at all the kernel looks at no packet, so that
// the services have to be back before the address comes; with vip_device that is the
// order. With another service of the family they need not be.
func TestKernelSyncServerToo(t *testing.T) {
	t.Run("another service stays", func(t *testing.T) {
		t.Parallel()
		const other = "virtual_server 192.0.2.99 9 {\n lvs_sched rr\n lvs_method DR\n protocol TCP\n real_server 10.0.0.11 9 {\n }\n}\n"
		var served string
		p := newServerToo(t, "address add 192.0.2.10/32 dev lo", func(_ *bed, text string) string {
			served = text + other
			withheld, _, _ := strings.Cut(text, "virtual_server")
			return withheld + other
		})
		p.die()
		p.take()
		p.first.kept()
		p.second.becomes(withOwn(served), p.all)
		p.lost("server too, another service")
		p.serves()
	})
	t.Run("vip_device", func(t *testing.T) {
		t.Parallel()
		p := newServerToo(t, "route add local 192.0.2.10 dev lo", func(b *bed, text string) string {
			b.standby(1)
			const sync = " #sluice lvs_sync_state track_file vrrp\n"
			return strings.Replace(withOwn(text), sync+"}\n", sync+
				" #sluice vip_device sluice0\n #sluice vip_delay 1\n #sluice passive track_file standby\n}\ntrack_file standby {\n file DIR/standby\n}\n", 1)
		})
		p.die()
		if p.second.announced() {
			t.Fatal("a passive director has the address on its device")
		}
		p.second.standby(0)
		testkit.Eventually(t, patience, func() string {
			if !p.second.announced() {
				return "the address is not on its device"
			}
			return ""
		})
		if got := p.second.table(); got != p.all {
			t.Errorf("the address is announced while the table holds %q", got)
		}
		p.Lead(t)
		p.second.side(1)
		p.lost("server too, vip_device")
		p.Logf("%s, %s", p.first.long.Report(), p.second.counted())
		// Nothing that was learned meanwhile is in a counter, so that no drain waits for
		// it; but the kernel goes on to forward what has no destination.
		p.second.becomes(strings.Replace(read(t, p.second.conf), realServerOf(p.second, 1), "", 1), "9:1 2:1")
		p.lost("server too, removed")
		p.serves()
	})
}

// announced reports whether the virtual address is on the device of vip_device.
func (b *bed) announced() bool {
	b.Helper()
	return strings.Contains(b.Director.Run(b.T, "ip", "-o", "address", "show"), "sluice0    inet "+b.VIP.String()+"/32")
}

// standby writes the track file that makes a director passive.
func (b *bed) standby(passive int) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, "standby"), fmt.Appendln(nil, passive), 0o644); err != nil {
		b.Fatal(err)
	}
}

// counted says what the destinations' counters have of the connections.
func (b *bed) counted() string {
	b.Helper()
	active := 0
	for _, s := range testkit.ReadProc(b.T, b.Director) {
		for _, d := range s.Dests {
			active += d.Active
		}
	}
	return fmt.Sprintf("%d active connections are counted", active)
}
