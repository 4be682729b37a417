package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// around is a table of nftables that is somebody else's: it marks packets to one address.
const around = `table inet around {
 chain marking {
  type filter hook prerouting priority -150
  ip daddr 198.51.100.30 tcp dport 80 meta mark set 5 counter
 }
}
`

// datagram sends one and returns the answer, "refused", or "nothing".
func datagram(b *bed, addr string) (answer string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	c, err := b.Client.Dial(ctx, "udp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	buf := make([]byte, 100)
	if _, err = io.WriteString(c, "x\n"); err == nil {
		var n int
		if n, err = c.Read(buf); err == nil {
			return string(buf[:n])
		}
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "refused"
	}
	return "nothing"
}

// everywhere has the director listen on port 22 of every address, as its sshd does.
func (b *bed) everywhere() {
	b.Helper()
	l, err := b.Director.Listen("tcp", ":22")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "director")
			c.Close()
		}
	}()
}

// marks are those that the table of nftables_ipvs gives, by address and port.
func (b *bed) marks() map[string]int {
	b.Helper()
	var all struct {
		NFTables []struct {
			Map struct {
				Name string
				Elem [][2]json.RawMessage
			}
		}
	}
	if err := json.Unmarshal([]byte(b.Director.Run(b.T, "nft", "-j", "list", "ruleset")), &all); err != nil {
		b.Fatalf("nft -j list ruleset: %v", err)
	}
	got := map[string]int{}
	for _, o := range all.NFTables {
		for _, e := range o.Map.Elem {
			var key struct{ Concat []any }
			var mark int
			if json.Unmarshal(e[0], &key) != nil || json.Unmarshal(e[1], &mark) != nil {
				b.Fatalf("map %s has %s: %s", o.Map.Name, e[0], e[1])
			}
			got[strings.Trim(fmt.Sprint(key.Concat), "[]")] = mark
		}
	}
	return got
}

// TestKernelEdgeGuardAndMarks: what the guard lets in and refuses, services by marks of
// ours and of others, and that nobody notices when groups come and go around them.
func TestKernelEdgeGuardAndMarks(t *testing.T) {
	b := newEdge(t, 3)
	rules := b.dir + "/around.nft"
	if err := os.WriteFile(rules, []byte(around), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Director.Run(t, "nft", "-f", rules)
	foreign := b.Director.Run(t, "nft", "-a", "-s", "list", "table", "inet", "around")
	b.everywhere()
	for _, a := range []string{"198.51.100.10:53", "192.0.2.1:53"} {
		b.Director.Sysctl(t, "net.ipv4.ip_nonlocal_bind", "1")
		testkit.NewUDPEcho(t, b.Director, a)
	}

	global := edgeGlobals("nftables_ipvs", "#sluice vip_device "+device, "#sluice vip_guard on")
	group := func(name, range_ string, servers ...int) string {
		return "virtual_server_group " + name + " {\n " + range_ + " 80\n}\n" + virtual("group "+name, "inhibit_on_failure", servers...)
	}
	single := virtual("VIP 80", "", 1, 2) + virtual("VIP 443", "#sluice vip_guard off", 2) +
		virtual("fwmark 5", "#sluice vip_address 198.51.100.30", 1)
	zero, one, two := group("zero", "198.51.100.60", 1), group("one", "198.51.100.40-49", 1, 2, 3), group("two", "198.51.100.50-51", 2)
	three := group("three", "198.51.100.70-72", 1)
	b.write(global + single + zero + one + two)
	b.start()
	b.until("1:1 2:1")
	testkit.Eventually(t, patience, func() string {
		if n := len(strings.Fields(addresses(t, b.Director, device))); n != 15 {
			return fmt.Sprintf("%d addresses, want 15", n)
		}
		return ""
	})

	// The guard.
	for _, addr := range []string{"198.51.100.10:80", "198.51.100.10:443", "198.51.100.30:80", "198.51.100.45:80", "192.0.2.1:22"} {
		testkit.Eventually(t, patience, func() string {
			c, err := b.Client.Dial(t.Context(), "tcp", addr)
			if err != nil {
				return err.Error()
			}
			return errText(c.Close())
		})
	}
	begun := time.Now()
	for _, addr := range []string{"198.51.100.10:22", "198.51.100.30:22", "198.51.100.45:22"} {
		b.refuses(addr)
	}
	if took := time.Since(begun); took > patience {
		t.Errorf("refusing took %v: a client waits", took)
	}
	if got := datagram(b, "198.51.100.10:53"); got != "refused" {
		t.Errorf("a datagram to a guarded address: %s, want refused", got)
	}
	if got := datagram(b, "192.0.2.1:53"); !strings.HasPrefix(got, b.Director.Name) {
		t.Errorf("a datagram to the director's own address: %s", got)
	}
	for _, a := range []string{"198.51.100.10", "198.51.100.45"} {
		b.Client.Run(t, "busybox", "ping", "-c", "1", "-W", "10", a)
	}
	if got := b.Director.Run(t, "nft", "-a", "-s", "list", "table", "inet", "around"); got != foreign {
		t.Errorf("somebody else's table became\n%s\nfrom\n%s", got, foreign)
	}

	// A server that fails is one operation, however many addresses its group has.
	marks := b.marks()
	key := func(addr string) string { return fmt.Sprintf("fwm %d", marks[addr+" 80"]) }
	if len(marks) != 13 || marks["198.51.100.40 80"] != marks["198.51.100.49 80"] || marks["198.51.100.50 80"] == marks["198.51.100.40 80"] {
		t.Fatalf("marks %v", marks)
	}
	operations := b.status().Kernel.Operations
	b.echo[2].Refuse()
	testkit.Eventually(t, patience, func() string {
		if got := b.weights(key("198.51.100.40")); got != "1:1 2:1 3:0" {
			return "the group has " + got
		}
		return ""
	})
	testkit.Eventually(t, patience, func() string {
		if n := b.status().Kernel.Operations - operations; n != 1 {
			return fmt.Sprintf("a server of ten addresses that fails took %d operations of the kernel, want 1", n)
		}
		return ""
	})
	b.echo[2].Start(t)

	// Groups come and go, the process is killed and the file is in another order: those
	// that stay have their marks, and nobody loses a connection.
	stay := []*testkit.Long{
		b.holds(netip.MustParseAddr("198.51.100.40"), 80, 3), b.holds(netip.MustParseAddr("198.51.100.49"), 80, 3),
		b.holds(netip.MustParseAddr("198.51.100.51"), 80, 2), b.holds(netip.MustParseAddr("198.51.100.30"), 80, 2), b.holds(b.VIP, 80, 2),
	}
	same := func(when string) {
		t.Helper()
		testkit.Eventually(t, patience, func() string {
			now := b.marks()
			for addr, mark := range marks {
				if strings.HasPrefix(addr, "198.51.100.60 ") {
					if now[addr] != 0 {
						return when + ": " + addr + " still has a mark"
					}
				} else if now[addr] != mark {
					return fmt.Sprintf("%s: %s has mark %d, and had %d", when, addr, now[addr], mark)
				}
			}
			for _, addr := range []string{"198.51.100.70 80", "198.51.100.72 80"} {
				if m := now[addr]; m == 0 || m == marks["198.51.100.40 80"] || m == marks["198.51.100.50 80"] {
					return fmt.Sprintf("%s: %s has mark %d", when, addr, m)
				}
			}
			return ""
		})
		kept(b, when, stay...)
	}
	b.write(global + single + three + two + one)
	b.daemon.SkipOutput()
	b.daemon.Signal(t, syscall.SIGHUP)
	b.daemon.WaitLine(t, patience, "Reloaded")
	same("a reload with other groups")
	b.daemon.Kill()
	b.write(global + single + one + three + two)
	b.start()
	same("kill -9 and a start")
	_ = b.holds(netip.MustParseAddr("198.51.100.71"), 80, 1)

	// Without the guard who listens on all addresses is met at virtual ones.
	b.write(strings.Replace(global, "vip_guard on", "vip_guard off", 1) + single + one + three + two)
	b.daemon.SkipOutput()
	b.daemon.Signal(t, syscall.SIGHUP)
	b.daemon.WaitLine(t, patience, "Reloaded")
	testkit.Eventually(t, patience, func() string {
		c, err := b.Client.Dial(t.Context(), "tcp", "198.51.100.10:22")
		if err != nil {
			return err.Error()
		}
		return errText(c.Close())
	})
	kept(b, "without the guard", stay...)
	if got := b.Director.Run(t, "nft", "list", "tables"); strings.Contains(got, "sluice_guard") {
		t.Errorf("without the guard there is\n%s", got)
	}
	if got := b.Director.Run(t, "nft", "-a", "-s", "list", "table", "inet", "around"); got != foreign {
		t.Errorf("somebody else's table became\n%s\nfrom\n%s", got, foreign)
	}
}

func errText(err error) string {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return err.Error()
	}
	return ""
}

// TestKernelEdgeTenThousand: ten thousand addresses of a hundred servers are one service,
// and a server that fails is one operation. The addresses are another's here: an emulated
// machine takes half a minute to put them on a device.
func TestKernelEdgeTenThousand(t *testing.T) {
	b := newEdge(t, 1)
	const nets, servers = 40, 100
	s := edgeGlobals("nftables_ipvs", "#sluice vip_guard on") + "virtual_server_group many {\n"
	for i := range nets {
		s += fmt.Sprintf(" 198.18.%d.0-249 80\n", i)
	}
	s += "}\nvirtual_server group many {\n delay_loop 1\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n" + realServer(1, "")
	for i := range servers - 1 {
		s += fmt.Sprintf(" real_server RS1 %d {\n  weight 1\n }\n", 8000+i)
	}
	b.write(s + "}\n")
	b.Client.IP(t, "route add 198.18.0.0/16 via 192.0.2.1")
	b.Director.IP(t, "address add 198.18.39.249/32 dev front")
	b.everywhere()
	begun := time.Now()
	b.start()
	ready := time.Since(begun)
	// The guard is whole when it refuses at the last address.
	b.refuses("198.18.39.249:22")
	t.Logf("10,000 addresses of 100 servers: ready after %v, guarded after %v (an emulated machine)", ready, time.Since(begun))
	if table := testkit.ReadTable(t, b.Director); len(table) != 1 || len(table[0].Dests) != servers {
		t.Errorf("%d services", len(table))
	}
	operations := b.status().Kernel.Operations
	b.echo[0].Refuse()
	testkit.Eventually(t, patience, func() string {
		if n := b.status().Kernel.Operations - operations; n != 1 {
			return fmt.Sprintf("a server that fails took %d operations of the kernel, want 1", n)
		}
		return ""
	})
	begun = time.Now()
	b.daemon.Signal(t, syscall.SIGTERM)
	if status := b.daemon.Wait(t, 2*patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
	t.Logf("all of it gone %v after SIGTERM", time.Since(begun))
	if got := b.Director.Run(t, "nft", "list", "tables"); strings.TrimSpace(got) != "" {
		t.Errorf("left: %s", got)
	}
}
