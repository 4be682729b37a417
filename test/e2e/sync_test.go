package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// pair are two directors of the same services, the first of which has the virtual
// address. A track file says to each which it is, as a VRRP daemon would write it.
type pair struct {
	*testing.T
	*testkit.Directors
	first, second *bed
}

func newPair(t *testing.T, backends int, scheduler, extra string) *pair {
	t.Helper()
	testkit.Kernel(t)
	d := testkit.NewDirectors(t, backends)
	p := &pair{T: t, Directors: d}
	other := *d.Topology
	other.Director = d.Second
	for i, top := range []*testkit.Topology{d.Topology, &other} {
		b := &bed{T: t, Topology: top, dir: t.TempDir()}
		b.conf, b.socket = filepath.Join(b.dir, "keepalived.conf"), filepath.Join(b.dir, "sluiced.sock")
		b.write(`global_defs {
 drain_interval 2
 lvs_sync_daemon link id 7
 #sluice lvs_sync_state track_file vrrp
}
track_file vrrp {
 file DIR/vrrp
}
` + strings.NewReplacer("lvs_method NAT", "lvs_method DR", "lvs_sched rr", "lvs_sched "+scheduler).Replace(pool(extra, numbers(backends)...)))
		b.side(1 - i)
		if i == 0 {
			p.first = b
		} else {
			p.second = b
		}
	}
	for _, be := range d.Backends {
		testkit.NewEcho(t, be.NS, ":80")
	}
	p.first.launch()
	p.second.launch()
	all := strings.TrimSpace(strings.Join(weights(backends), " "))
	p.first.until(all)
	p.second.until(all)
	p.first.syncs("master")
	p.second.syncs("backup")
	return p
}

func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

func weights(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%d:1", i+1))
	}
	return all
}

// side writes a director's track file.
func (b *bed) side(master int) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, "vrrp"), fmt.Appendln(nil, master), 0o644); err != nil {
		b.Fatal(err)
	}
}

// syncs waits until a director's sync daemons are these, as ipvsadm shows them.
func (b *bed) syncs(want ...string) {
	b.Helper()
	testkit.Eventually(b.T, patience, func() string {
		text := b.Director.Run(b.T, "ipvsadm", "-L", "--daemon")
		var got []string
		for _, state := range []string{"master", "backup"} {
			if strings.Contains(text, state+" sync daemon (mcast=link, syncid=7") {
				got = append(got, state)
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			return fmt.Sprintf("sync daemons %v, want %v", got, want)
		}
		return ""
	})
}

// changes waits until the daemon says that it started one half and then stopped the other.
func (b *bed) changes(to, from string) {
	b.Helper()
	b.daemon.WaitLine(b.T, patience, "Sync daemon started state="+to)
	b.daemon.WaitLine(b.T, patience, "Sync daemon stopped state="+from)
}

// connections are those of a director's table to the VIP by the client's port: server,
// state and, in a second map, whether they came from the other director.
func (b *bed) connections() (all map[string]string, learned int) {
	b.Helper()
	text, err := b.Director.ReadProcNet("ip_vs_conn_sync")
	if err != nil {
		b.Fatal(err)
	}
	all = map[string]string{}
	for line := range strings.Lines(text) {
		// Pro FromIP FPrt ToIP TPrt DestIP DPrt State Origin Expires
		f := strings.Fields(line)
		if len(f) < 10 || f[0] != "TCP" || f[2] == "0000" || f[7] != "ESTABLISHED" {
			continue
		}
		all[f[2]] = f[5]
		if f[8] == "SYNC" {
			learned++
		}
	}
	return all, learned
}

// expiries are the seconds after which a director forgets established connections.
func (b *bed) expiries() (all []string) {
	b.Helper()
	text, err := b.Director.ReadProcNet("ip_vs_conn_sync")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 10 && f[7] == "ESTABLISHED" {
			all = append(all, f[9])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// carried waits until the second director has n of the first one's connections, to the
// same servers, and returns how long that took.
func (p *pair) carried(n int) time.Duration {
	p.Helper()
	begun := time.Now()
	testkit.Eventually(p.T, patience, func() string {
		here, _ := p.first.connections()
		there, learned := p.second.connections()
		if learned != n {
			return fmt.Sprintf("%d of %d connections carried over, want %d", learned, len(here), n)
		}
		for port, server := range there {
			if here[port] != server {
				return fmt.Sprintf("port %s goes to %q on the first director and to %q on the second", port, here[port], server)
			}
		}
		return ""
	})
	return time.Since(begun)
}

// hold is bed.hold for a client that waits out a takeover: how long that takes is not
// what these tests are about.
func (p *pair) hold(n int) {
	p.Helper()
	p.first.long = testkit.OpenPatientLong(p.T, p.Client, p.VIP.String()+":80", n, patience)
	if r := p.first.long.Report(); r.Kept != n {
		p.Fatalf("opening %d connections: %s", n, r)
	}
}

// die ends the first director as a machine ends.
func (p *pair) die() {
	p.Helper()
	p.first.daemon.Kill()
	p.Fail(p.T)
}

// lost judges the held connections, and notes how many were lost as a figure.
func (p *pair) lost(name string) {
	p.Helper()
	p.first.kept()
	r := p.first.long.Report()
	p.figure(name, r.Lost(), r.Opened)
}

// take has the second director take over.
func (p *pair) take() {
	p.Helper()
	p.Move(p.T)
	p.second.side(1)
}

// silent opens connections on which nothing is sent, so that the director has seen two
// packets of each.
func (p *pair) silent(n int) (all []net.Conn) {
	p.Helper()
	for range n {
		c, err := p.Client.Dial(p.Context(), "tcp", p.VIP.String()+":80")
		if err != nil {
			p.Fatal(err)
		}
		p.Cleanup(func() { c.Close() })
		all = append(all, c)
	}
	return all
}

// answered is how many of the connections have an answer to a line.
func (p *pair) answered(conns []net.Conn) (n int) {
	p.Helper()
	for _, c := range conns {
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err := io.WriteString(c, "x\n")
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		if err == nil {
			n++
		}
	}
	return n
}

// fresh is how many of n new connections are answered.
func (p *pair) fresh(n int) int {
	p.Helper()
	return p.answered(p.silent(n))
}

// TestKernelSyncTakeover: the first director dies with its daemon, its links and its
// address. Every connection that it has told of goes on through the second; those that
// it had not told of yet (two packets, and three are the threshold) are reset.
func TestKernelSyncTakeover(t *testing.T) {
	p := newPair(t, 3, "rr", "")
	p.hold(30)
	took := p.carried(30)
	young := p.silent(10)
	if here, _ := p.first.connections(); len(here) != 40 {
		t.Errorf("the first director has %d connections, want 40", len(here))
	}
	if traffic := p.half(p.second, "backup").Traffic; traffic == nil || traffic.Sockets != 1 || traffic.Drops != 0 {
		t.Errorf("traffic of the backup %+v", traffic)
	}
	if traffic := p.half(p.first, "master").Traffic; traffic == nil || traffic.Sockets != 1 {
		t.Errorf("traffic of the master %+v", traffic)
	}
	t.Logf("the second director forgets them after (s): %v", p.second.expiries())
	p.die()
	p.take()
	p.lost("killed")
	p.second.syncs("master")
	kept := p.answered(young)
	p.figure("young", len(young)-kept, len(young))
	t.Logf("30 connections were carried over in %v; %s; %s; of 10 with 2 packets %d go on", took.Round(time.Millisecond), p.first.long.Report(), p.second.counted(), kept)
	if kept != 0 {
		t.Errorf("%d connections go on that were never carried over", kept)
	}
	// The second director counts what it has learned, so that a drain waits for it.
	p.second.becomes(strings.Replace(read(t, p.second.conf), realServerOf(p.second, 3), "", 1), "1:1 2:1 3:0")
	p.second.stays("1:1 2:1 3:0", 3*time.Second)
	p.lost("killed, removed")
	if n := p.fresh(6); n != 6 {
		t.Errorf("%d of 6 new connections are answered by the second director", n)
	}
}

func (p *pair) half(b *bed, state string) engine.SyncHalf {
	p.Helper()
	s := b.status().Sync
	if s == nil {
		p.Fatal("no sync daemon in the status")
	}
	for _, h := range s.Halves {
		if h.State == state {
			return h
		}
	}
	p.Fatalf("no %s in %+v", state, s)
	return engine.SyncHalf{}
}

// TestKernelSyncSwitchover: directors change sides by their track files just when
// connections were opened. What the first had gathered to tell is told, and a reload and
// a restart of the second do not interrupt its backup. Persistence is carried over too.
func TestKernelSyncSwitchover(t *testing.T) {
	p := newPair(t, 3, "wlc", "persistence_timeout 300")
	before := thread(t, "ipvs-b:")
	p.second.write(read(t, p.second.conf) + "# again\n")
	p.second.daemon.Signal(t, syscall.SIGHUP)
	p.second.daemon.WaitLine(t, patience, "Reloaded")
	p.second.daemon.Kill()
	p.second.start()
	p.second.syncs("backup")
	if after := thread(t, "ipvs-b:"); after != before || before == "" {
		t.Errorf("the backup's thread was %q and is %q after a reload and a restart", before, after)
	}
	// So few fill no message, and none is due for two seconds.
	p.hold(5)
	p.first.side(0)
	took := p.carried(5)
	p.second.side(1)
	p.second.changes("master", "backup")
	p.take()
	p.lost("sides")
	p.first.syncs("backup")
	p.second.syncs("master")
	report := p.first.long.Report()
	t.Logf("5 connections were told of %v after the change of sides; %s", took.Round(time.Millisecond), report)
	if len(report.KeptBy) != 1 {
		t.Fatalf("persistent connections on several servers: %s", report)
	}
	again := testkit.OpenLong(t, p.Client, p.VIP.String()+":80", 6)
	if r := again.Report(); r.Kept != 6 || !maps.EqualFunc(r.KeptBy, report.KeptBy, func(_, _ int) bool { return true }) {
		t.Errorf("new connections of a persistent client: %s, want them on the server of %s", r, report)
	}
	// And the other way round: the first takes in what the second tells.
	testkit.Eventually(t, patience, func() string {
		if _, learned := p.first.connections(); learned < 6 {
			return fmt.Sprintf("%d connections carried back", learned)
		}
		return ""
	})
}

// TestKernelSyncYoung: what becomes of connections of two packets (opened, nothing sent)
// when the first director dies, with what helps against their loss in
// TestKernelSyncTakeover.
func TestKernelSyncYoung(t *testing.T) {
	const n = 10
	for _, c := range []struct {
		figure, scheduler string
		sysctl, value     string
		carried           int
	}{
		{"young, threshold of 2", "rr", "net.ipv4.vs.sync_threshold", "2\t50", n},
		{"young, sloppy_tcp", "mh", "net.ipv4.vs.sloppy_tcp", "1", 0},
	} {
		t.Run(c.figure, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 3, c.scheduler, extraOf(c.scheduler))
			p.Director.Sysctl(t, c.sysctl, c.value)
			p.Second.Sysctl(t, c.sysctl, c.value)
			p.hold(1)
			p.carried(1)
			young := p.silent(n)
			p.carried(1 + c.carried)
			p.die()
			p.take()
			p.first.kept()
			lost := n - p.answered(young)
			p.figure(c.figure, lost, n)
			if lost != 0 {
				t.Errorf("%d of %d connections with 2 packets are lost", lost, n)
			}
		})
	}
}

// extraOf has Maglev go by the port as well.
func extraOf(scheduler string) string {
	if scheduler == "mh" {
		return "mh-port"
	}
	return ""
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// thread is the id of a kernel thread whose name begins so.
func thread(t *testing.T, name string) string {
	t.Helper()
	comms, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range comms {
		if b, err := os.ReadFile(c); err == nil && strings.HasPrefix(string(b), name) {
			return filepath.Base(filepath.Dir(c))
		}
	}
	return ""
}

// TestKernelSyncDrops: messages that the backup's socket has no room for are counted
// where an operator looks. A daemon that somebody stopped is started again.
func TestKernelSyncDrops(t *testing.T) {
	p := newPair(t, 1, "rr", "")
	p.Second.Sysctl(t, "net.ipv4.vs.sync_sock_size", "1") // the least that the kernel takes
	p.Second.Run(t, "ipvsadm", "--stop-daemon", "backup")
	p.second.daemon.Signal(t, syscall.SIGHUP)
	p.second.syncs("backup")
	p.Director.IP(t, "route add 224.0.0.0/4 dev link")
	flood, err := p.Director.ListenPacket("udp4", "10.9.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	to, message := net.UDPAddrFromAddrPort(netip.MustParseAddrPort("224.0.0.81:8848")), make([]byte, 1400)
	testkit.Eventually(t, patience, func() string {
		for range 1000 {
			if _, err := flood.WriteTo(message, to); err != nil {
				return err.Error()
			}
		}
		if tr := p.half(p.second, "backup").Traffic; tr == nil || tr.Drops == 0 {
			return fmt.Sprintf("status says of the flooded socket %+v", tr)
		}
		return ""
	})
	scrape := p.second.scrape()
	for _, line := range []string{`sluice_sync_daemon_up{state="backup"} 1`, `sluice_sync_daemon_wanted{state="master"} 0`, `sluice_sync_daemon_receive_drops_total{state="backup"} `} {
		if !strings.Contains(scrape, "\n"+line) || strings.Contains(scrape, "\n"+line+"0\n") {
			t.Errorf("a scrape has no %s", line)
		}
	}
}

// scrape is what the daemon tells Prometheus.
func (b *bed) scrape() string {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", b.socket)
	}}}
	r, err := client.Get("http://sluice/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}
