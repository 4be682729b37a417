package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/doctor"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// viaPorts are services by the check of theirs.
var viaPorts = []struct {
	port            int
	protocol, check string
}{
	{80, "TCP", "TCP_CHECK {\n   PACE\n  }"},
	{8080, "TCP", "HTTP_GET {\n   url {\n    path /\n    status_code 200\n   }\n   PACE\n  }"},
	{443, "TCP", "SSL_GET {\n   url {\n    path /\n    status_code 200\n   }\n   PACE\n  }"},
	{25, "TCP", "SMTP_CHECK {\n   PACE\n  }"},
	{53, "UDP", "DNS_CHECK {\n   PACE\n  }"},
	{5000, "UDP", "UDP_CHECK {\n   payload 00\n   require_reply\n   PACE\n  }"},
}

// viaBed has a director whose address is on sluice0 only, and real servers of each way:
// 1 by DR, 2 by DR without the virtual address, 3 by ipip, 4 by GUE.
func viaBed(t *testing.T) *bed {
	t.Helper()
	b := newBed(t, testkit.NewDR, 4)
	b.Director.IP(t, fmt.Sprintf("address del %s/32 dev front", b.VIP), fmt.Sprintf("address del %s/128 dev front", b.VIP6))
	b.Backends[1].IP(t, fmt.Sprintf("address del %s/32 dev lo", b.VIP))
	for i, be := range b.Backends {
		at := []string{be.Addr.String(), b.VIP.String()}
		if i == 1 {
			at = at[:1]
		}
		answerAll(t, be.NS, at...)
	}
	b.Backends[2].IP(t, "link add name tun type ipip local "+b.Backends[2].Addr.String(), "link set tun up")
	b.Director.Run(t, "modprobe", "-a", "fou", "ipip")
	b.Backends[3].Run(t, "ip", "fou", "add", "port", "6080", "gue")
	b.Backends[3].IP(t, "link add name tun type ipip local "+b.Backends[3].Addr.String(), "link set tun up")
	return b
}

// answerAll has a real server answer every kind of check besides TCP_CHECK.
func answerAll(t *testing.T, ns *testkit.NS, udp ...string) {
	t.Helper()
	testkit.NewHTTP(t, ns, ":8080")
	l, err := ns.Listen("tcp", ":443")
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	web.Listener.Close()
	web.Listener, web.TLS = l, &tls.Config{}
	web.StartTLS()
	t.Cleanup(web.Close)
	var wg sync.WaitGroup
	mail, err := ns.Listen("tcp", ":25")
	if err != nil {
		t.Fatal(err)
	}
	box := &mailbox{}
	wg.Go(func() {
		for {
			c, err := mail.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { box.serve(c) })
		}
	})
	t.Cleanup(func() { mail.Close(); wg.Wait() })
	for _, at := range udp { // one on all addresses would not answer from the right one
		testkit.NewUDPEcho(t, ns, at+":5000")
		names, err := ns.ListenPacket("udp", at+":53")
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for p := make([]byte, 512); ; {
				n, from, err := names.ReadFrom(p)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil && n > 2 {
					p[2] |= 0x80 // the question, as its answer
					_, _ = names.WriteTo(p[:n], from)
				}
			}
		})
		t.Cleanup(func() { names.Close() })
	}
}

const viaGlobals = "global_defs {\n drain_interval 2\n vip_device sluice0\n GLOBAL\n}\n"

// viaConf is a configuration of all ports with the first server and those given, which
// on all but port 80 are only the first two.
func viaConf(global, via string, servers ...int) string {
	s := strings.Replace(viaGlobals, "GLOBAL", global, 1)
	for _, p := range viaPorts {
		s += fmt.Sprintf("virtual_server VIP %d {\n delay_loop 1\n lvs_sched rr\n lvs_method DR\n protocol %s\n warmup 0\n vip_follow quorum\n %s\n", p.port, p.protocol, via)
		for _, n := range servers {
			if n > 2 && p.port != 80 {
				continue
			}
			method := map[int]string{3: "lvs_method TUN type ipip", 4: "lvs_method TUN type gue port 6080"}[n]
			s += fmt.Sprintf(" real_server RS%d %d {\n  weight 1\n  %s\n  %s\n }\n", n, p.port, method, strings.ReplaceAll(p.check, "PACE", "connect_timeout 3\n   retry 0\n   delay_before_retry 1"))
		}
		s += "}\n"
	}
	return s
}

// shown is everything of the host that check_via could have touched.
func (b *bed) shown() string {
	b.Helper()
	return b.Director.Run(b.T, "sh", "-c", "ip -d rule; ip -d -6 rule; ip -4 route show table all; ip -6 route show table all | grep -v 'fe80\\|ff00\\|multicast\\|anycast'; ip -o link | grep -o 'slu[^:]*'; nft list ruleset; grep . /proc/sys/net/ipv4/conf/front/accept_local /proc/sys/net/ipv4/conf/front/rp_filter; true")
}

// states waits until each virtual server has these states of its first servers.
func (b *bed) states(want ...engine.State) {
	b.Helper()
	testkit.Eventually(b.T, patience, func() string {
		for _, vs := range b.status().VirtualServers {
			for i, w := range want {
				if i >= len(vs.RealServers) {
					break
				}
				if rs := vs.RealServers[i]; rs.State != w {
					return fmt.Sprintf("%s of %s is %s (%s), want %s", rs.Address, vs.Name, rs.State, rs.Reason, w)
				}
			}
		}
		return ""
	})
}

// falsely are the lines that tell of failed checks of servers that have nothing wrong.
func (b *bed) falsely() (lines []string) {
	wrong := regexp.MustCompile(`Check failed.*rs=\[10\.0\.0\.1[134]\]`)
	for _, l := range b.daemon.Lines() {
		if wrong.MatchString(l) {
			lines = append(lines, l)
		}
	}
	return lines
}

// runs waits until every check has been run that many times more.
func (b *bed) runs(n uint64) {
	b.Helper()
	before := map[string]time.Time{}
	for range n {
		for _, vs := range b.status().VirtualServers {
			for _, rs := range vs.RealServers {
				for _, c := range rs.Checkers {
					before[vs.Name+rs.Address] = c.LastAt
				}
			}
		}
		testkit.Eventually(b.T, patience, func() string {
			for _, vs := range b.status().VirtualServers {
				for _, rs := range vs.RealServers {
					for _, c := range rs.Checkers {
						if c.LastAt.IsZero() || c.LastAt.Equal(before[vs.Name+rs.Address]) {
							return fmt.Sprintf("%s of %s was not checked again", rs.Address, vs.Name)
						}
					}
				}
			}
			return ""
		})
	}
}

// TestKernelVia: check_via finds the server without the virtual address, whatever the
// check, and nothing else: not in a reload, not passive, not after a kill, and not while
// the address is withdrawn. What it had in the kernel is gone with the keyword.
func TestKernelVia(t *testing.T) {
	b := viaBed(t)
	before := b.shown()
	b.write(viaConf("", "check_via vip", 1, 2, 3, 4))
	b.start()
	b.states(engine.StateUp, engine.StateDown, engine.StateUp, engine.StateUp)
	b.until("1:1 3:1 4:1")
	vip, rs1, rs2 := b.VIP.String(), b.Backends[0].Addr.String(), b.Backends[1].Addr.String()
	b.says(1, "TCP_CHECK "+vip+":80 through "+rs2+" (mark 0x5300000", "explain", vip+":80", rs2)
	b.says(0, "for "+vip+":80 through "+rs1+" (mark 0x5300000", "test", vip+":80", rs1)
	b.says(1, "for "+vip+":80 through "+rs2+" (mark 0x5300000", "test", vip+":80", rs2)

	checked := b.examine()
	for _, id := range []string{"local_rule", "nf_tables", "nft_tables", "marks", "accept_local", "via_rp_filter", "tunnel_modules"} {
		if f := checked[id]; f.Status != doctor.OK {
			t.Errorf("doctor: %s: %+v", id, f)
		}
	}

	b.part("reloads", func(t *testing.T) {
		for range 2 {
			b.write(viaConf("", "check_via vip", 1))
			b.reload()
			b.write(viaConf("", "check_via vip", 1, 3, 4))
			b.reload()
			b.runs(1)
		}
		b.write(viaConf("", "check_via vip", 1, 2, 3, 4))
		b.reload()
		b.states(engine.StateUp, engine.StateDown, engine.StateUp, engine.StateUp)
		if wrong := b.falsely(); wrong != nil {
			t.Errorf("failed though nothing was wrong:\n%s", strings.Join(wrong, "\n"))
		}
	})
	b.part("passive", func(t *testing.T) {
		b.says(0, "passive", "passive", "on")
		b.until("-")
		b.daemon.SkipOutput()
		b.echo[0].Refuse()
		b.daemon.WaitLine(t, patience, "Check failed.*"+rs1)
		b.echo[0].Start(t)
		b.daemon.WaitLine(t, patience, "Check passed.*"+rs1)
		b.says(0, "", "passive", "off")
		b.until("1:1 3:1 4:1")
	})
	// The way must not need the address: else nobody could come back.
	b.part("withdrawn", func(t *testing.T) {
		one, _, _ := strings.Cut(viaConf("", "check_via vip", 1, 2, 3, 4), "virtual_server VIP 8080")
		b.write(one)
		b.reload()
		for _, n := range []int{0, 2, 3} {
			b.echo[n].Refuse()
		}
		b.until("")
		address := func(there bool) {
			testkit.Eventually(t, patience, func() string {
				if got := b.Director.Run(t, "ip", "-br", "address", "show", "dev", "sluice0"); strings.Contains(got, vip+"/") != there {
					return "on the device is " + got
				}
				return ""
			})
		}
		address(false)
		for _, n := range []int{0, 2, 3} {
			b.echo[n].Start(t)
		}
		b.until("1:1 3:1 4:1")
		address(true)
	})
	b.part("killed", func(t *testing.T) {
		b.write(viaConf("", "check_via vip", 1, 2, 3, 4))
		b.reload()
		b.states(engine.StateUp, engine.StateDown, engine.StateUp, engine.StateUp)
		left := b.shown()
		b.daemon.Kill()
		b.start()
		if now := b.shown(); now != left {
			t.Errorf("after a kill:\n%s\nbefore:\n%s", now, left)
		}
		b.states(engine.StateUp, engine.StateDown, engine.StateUp, engine.StateUp)
		b.runs(1)
		if wrong := b.falsely(); wrong != nil {
			t.Errorf("failed though nothing was wrong:\n%s", strings.Join(wrong, "\n"))
		}
	})
	b.part("without the keyword", func(t *testing.T) {
		b.daemon.Kill()
		b.write(viaConf("", "", 1, 2))
		b.start()
		b.states(engine.StateUp, engine.StateUp) // the plain check is content
		b.daemon.Signal(t, syscall.SIGTERM)
		b.daemon.Wait(t, patience)
		if now := b.shown(); now != before {
			t.Errorf("left over:\n%s\nbefore:\n%s", now, before)
		}
		if left, _ := filepath.Glob(filepath.Join(b.stateDir(), "check_via")); left != nil {
			t.Errorf("%s is left", left)
		}
	})
}

// part is a subtest.
func (b *bed) part(name string, f func(t *testing.T)) {
	whole := b.T
	whole.Run(name, func(t *testing.T) {
		b.T = t
		defer func() { b.T = whole }()
		f(t)
	})
}

// viaPool is two DR servers on port 80, the second without the virtual address.
func viaPool(via string) string {
	return strings.Replace(pool(via, 1, 2), "lvs_method NAT", "lvs_method DR", 1)
}

// unable waits until no check can be made and each says why.
func (b *bed) unable(why string) {
	b.Helper()
	testkit.Eventually(b.T, patience, func() string {
		for _, rs := range b.status().VirtualServers[0].RealServers {
			if c := rs.Checkers[0]; rs.State != engine.StateUp || c.Last != "unable" || !strings.Contains(c.LastReason, why) {
				return fmt.Sprintf("%s is %s, last %s: %q; want %q", rs.Address, rs.State, c.Last, c.LastReason, why)
			}
		}
		return ""
	})
}

// TestKernelViaObstacles: what the way through a real server lacks is said, keeps every
// server where it is, and is noticed when it comes.
func TestKernelViaObstacles(t *testing.T) {
	b := newBed(t, testkit.NewDR, 2)
	b.Backends[1].IP(t, fmt.Sprintf("address del %s/32 dev lo", b.VIP))
	stop := func() {
		b.daemon.Signal(b.T, syscall.SIGTERM)
		b.daemon.Wait(b.T, patience)
		if err := os.RemoveAll(b.stateDir()); err != nil { // each part starts with all servers up
			b.Fatal(err)
		}
	}
	b.part("a setting", func(t *testing.T) {
		b.write("global_defs {\n drain_interval 2\n manage_sysctls off\n}\n" + viaPool("check_via vip"))
		b.start()
		b.unable("net.ipv4.conf.front.accept_local has to be 1")
		if got := b.table(); got != "1:1 2:1" {
			t.Errorf("the table holds %q", got)
		}
		b.Director.Sysctl(t, "net.ipv4.conf.front.accept_local", "1")
		b.until("1:1")
		b.shows(1, engine.StateUp, "")
		stop()
		b.Director.Sysctl(t, "net.ipv4.conf.front.accept_local", "0")
	})
	b.part("no capability", func(t *testing.T) {
		b.write(globals + viaPool(""))
		b.start()
		b.until("1:1 2:1")
		b.daemon.Kill()
		b.write(globals + viaPool("check_via vip"))
		b.daemon = b.Director.Start(t, nil, "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin",
			program(t, "sluiced"), "-f", b.conf, "--socket", b.socket, "--state-dir", b.stateDir())
		b.daemon.WaitLine(t, patience, "Ready")
		b.unable("CAP_NET_ADMIN")
		if got := b.table(); got != "1:1 2:1" {
			t.Errorf("the table holds %q", got)
		}
		b.daemon.Kill()
		b.start()
		b.until("1:1")
		b.shows(2, engine.StateDown, "connect to "+b.VIP.String()+":80")
		stop()
	})
	// Checks go from the process's namespace, and so do their ways; the table's, where the
	// virtual address is, has none.
	b.part("namespaces", func(t *testing.T) {
		outside, elsewhere := testkit.NewNS(t, "outside"), testkit.NewNS(t, "elsewhere")
		rules := func(ns *testkit.NS) string { return ns.Run(t, "ip", "-d", "rule") }
		before := rules(outside)
		b.write("net_namespace " + name(t, b.Director) + "\nnet_namespace_ipvs " + name(t, elsewhere) + "\n" + globals + viaPool("check_via vip"))
		b.daemon = outside.Start(t, nil, program(t, "sluiced"), "-f", b.conf, "--socket", b.socket, "--state-dir", b.stateDir())
		b.daemon.WaitLine(t, patience, "Ready")
		here := b.Director
		b.Director = elsewhere // where table looks
		b.until("1:1")
		b.Director = here
		if got := rules(here); !strings.Contains(got, "fwmark 0x53000001 lookup") {
			t.Errorf("where the checks are:\n%s", got)
		}
		for _, ns := range []*testkit.NS{outside, elsewhere} {
			if got := rules(ns); got != before {
				t.Errorf("%s has rules:\n%s", ns.Name, got)
			}
		}
		stop()
		if got := rules(here); got != before {
			t.Errorf("left over:\n%s", got)
		}
	})
}
