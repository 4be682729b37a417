package testkit

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) { Main(m) }

// Here ipvsadm balances, not sluice: what is proven is that the topologies carry
// traffic, and that the clients count a loss when there is one.

// balance sets up a service on the VIP over the backends' ports.
func balance(t *testing.T, top *Topology, port int, method string, backends ...*Backend) (vip string) {
	t.Helper()
	vip = fmt.Sprintf("%s:%d", top.VIP, port)
	top.Director.Run(t, "ipvsadm", "-A", "-t", vip, "-s", "rr")
	for _, b := range backends {
		top.Director.Run(t, "ipvsadm", "-a", "-t", vip, "-r", fmt.Sprintf("%s:%d", b.Addr, port), method, "-w", "1")
	}
	return vip
}

func TestKernelTestkitNAT(t *testing.T) {
	Kernel(t)
	proveTopology(t, NewNAT(t, 2), "-m", "masq")
}

func TestKernelTestkitDR(t *testing.T) {
	Kernel(t)
	proveTopology(t, NewDR(t, 2), "-g", "route")
}

func proveTopology(t *testing.T, top *Topology, option, method string) {
	d := top.Director
	vip := balance(t, top, 80, option, top.Backends...)
	var reals [2]string
	for i, b := range top.Backends {
		reals[i] = fmt.Sprintf("%s:80", b.Addr)
		NewEcho(t, b.NS, ":80")
	}
	d.Sysctl(t, "net.ipv4.vs.expire_nodest_conn", "1")

	long := OpenLong(t, top.Client, vip, 6)
	want := LongReport{Opened: 6, Kept: 6, KeptBy: map[string]int{"b1": 3, "b2": 3}, LostBy: map[string]int{}, Losses: map[Loss]int{}}
	if diff := cmp.Diff(want, long.Report()); diff != "" {
		t.Fatalf("after opening (-want +got):\n%s", diff)
	}

	table := Table{{Key: "tcp " + vip, Scheduler: "rr", Dests: []Dest{
		{Addr: netip.MustParseAddrPort(reals[0]), Method: method, Weight: 1},
		{Addr: netip.MustParseAddrPort(reals[1]), Method: method, Weight: 1},
	}}}
	if diff := cmp.Diff(table, ReadTable(t, d), addrs()); diff != "" {
		t.Errorf("ipvsadm's table (-want +got):\n%s", diff)
	}
	table[0].Dests[0].Active, table[0].Dests[1].Active = 3, 3
	if diff := cmp.Diff(table, ReadProc(t, d), addrs()); diff != "" {
		t.Errorf("/proc's table (-want +got):\n%s", diff)
	}
	Eventually(t, 10*time.Second, func() string { // the kernel sums them up every two seconds
		if got := ReadStats(t, d)["tcp "+vip].Conns; got != 6 {
			return fmt.Sprintf("the service counts %d connections, want 6", got)
		}
		return ""
	})
	established := map[string]int{}
	for _, c := range ReadConns(t, d) {
		if c.State == "ESTABLISHED" && c.Virtual.String() == vip {
			established[c.Dest.String()]++
		}
	}
	if diff := cmp.Diff(map[string]int{reals[0]: 3, reals[1]: 3}, established); diff != "" {
		t.Errorf("connections by destination (-want +got):\n%s", diff)
	}

	// Weight 0 keeps what is established and sends nothing new.
	d.Run(t, "ipvsadm", "-e", "-t", vip, "-r", reals[0], option, "-w", "0")
	long.Settle(t)
	if diff := cmp.Diff(want, long.Report()); diff != "" {
		t.Errorf("after weight 0 (-want +got):\n%s", diff)
	}
	if got := OpenLong(t, top.Client, vip, 4).Report().KeptBy; got["b2"] != 4 {
		t.Errorf("new connections after weight 0 went to %v, want all 4 to b2", got)
	}

	// Deleting it resets them: a loss that the client must count.
	d.Run(t, "ipvsadm", "-d", "-t", vip, "-r", reals[0])
	long.Settle(t)
	want = LongReport{Opened: 6, Kept: 3, KeptBy: map[string]int{"b2": 3}, LostBy: map[string]int{"b1": 3}, Losses: map[Loss]int{Reset: 3}}
	if diff := cmp.Diff(want, long.Report()); diff != "" {
		t.Errorf("after the deletion (-want +got):\n%s", diff)
	}
}

func TestKernelTestkitIPv6(t *testing.T) {
	Kernel(t)
	for method, build := range map[string]func(T, int) *Topology{"-m": NewNAT, "-g": NewDR} {
		top := build(t, 2)
		vip := fmt.Sprintf("[%s]:80", top.VIP6)
		top.Director.Run(t, "ipvsadm", "-A", "-t", vip, "-s", "rr")
		for _, b := range top.Backends {
			NewEcho(t, b.NS, "[::]:80")
			top.Director.Run(t, "ipvsadm", "-a", "-t", vip, "-r", fmt.Sprintf("[%s]:80", b.Addr6), method)
		}
		got := OpenLong(t, top.Client, vip, 4).Report().KeptBy
		if diff := cmp.Diff(map[string]int{"b1": 2, "b2": 2}, got); diff != "" {
			t.Errorf("%s: connections by server (-want +got):\n%s", method, diff)
		}
	}
}

func TestKernelTestkitShortRequests(t *testing.T) {
	Kernel(t)
	top := NewNAT(t, 2)
	d := top.Director
	vip := balance(t, top, 80, "-m", top.Backends...)
	one, two := NewHTTP(t, top.Backends[0].NS, ":80"), NewHTTP(t, top.Backends[1].NS, ":80")

	short := StartShort(t, top.Client, vip, 20)
	short.Await(t, 10)
	if r := short.Report(); r.Lost() != 0 || r.By["b1"] == 0 || r.By["b2"] == 0 {
		t.Fatalf("with two good servers: %v", r)
	}

	two.SetStatus(503)
	short.Await(t, 10)
	if r := short.Report(); r.Losses[Status] == 0 {
		t.Errorf("with one that answers 503: %v", r)
	}
	two.SetStatus(204)

	one.Refuse()
	short.Await(t, 10)
	if r := short.Report(); r.Losses[Refused] == 0 {
		t.Errorf("with one that refuses: %v", r)
	}
	one.Start(t)

	one.Hang()
	short.Await(t, 10)
	two.Hang()
	short.Await(t, 2)
	if r := short.Report(); r.Losses[TimedOut] == 0 {
		t.Errorf("with one that hangs: %v", r)
	}
	one.Resume()
	two.Resume()

	// No destination at all: the kernel answers with an ICMP error.
	d.Run(t, "ipvsadm", "-d", "-t", vip, "-r", top.Backends[0].Addr.String()+":80")
	d.Run(t, "ipvsadm", "-d", "-t", vip, "-r", top.Backends[1].Addr.String()+":80")
	before := short.Report().Losses[Refused]
	for range 200 { // those that hung, a second's or more, are answered first
		if short.Await(t, 1); short.Report().Losses[Refused] > before {
			break
		}
	}
	if r := short.Report(); r.Losses[Refused] == before {
		t.Errorf("without a destination: %v", r)
	}
	if r := short.Report(); r.Losses[Other] != 0 {
		t.Errorf("losses of an unknown kind: %v: %v", r, r.FirstErr)
	}
}

func TestKernelTestkitBackendStates(t *testing.T) {
	Kernel(t)
	top := NewNAT(t, 1)
	vip := balance(t, top, 80, "-m", top.Backends[0])
	server := NewEcho(t, top.Backends[0].NS, ":80")

	long := OpenLong(t, top.Client, vip, 2)
	server.Refuse()
	long.Settle(t)
	if r := long.Report(); r.Kept != 2 {
		t.Errorf("established connections of a server that refuses new ones: %v", r)
	}
	if r := OpenLong(t, top.Client, vip, 2).Report(); r.Losses[Refused] != 2 {
		t.Errorf("new connections to a server that refuses: %v", r)
	}
	server.Start(t)
	server.Hang()
	if r := OpenLong(t, top.Client, vip, 1).Report(); r.Losses[TimedOut] != 1 {
		t.Errorf("a connection to a server that hangs: %v", r)
	}
	server.Resume()

	long = OpenLong(t, top.Client, vip, 2)
	server.Stop()
	long.Settle(t)
	if r := long.Report(); r.Losses[Closed]+r.Losses[Reset] != 2 {
		t.Errorf("established connections of a server that stopped: %v", r)
	}
	server.Start(t)
	if r := OpenLong(t, top.Client, vip, 2).Report(); r.Kept != 2 {
		t.Errorf("connections to a server that started again: %v", r)
	}
}

func TestKernelTestkitUDP(t *testing.T) {
	Kernel(t)
	top := NewNAT(t, 1)
	vip := top.VIP.String() + ":53"
	top.Director.Run(t, "ipvsadm", "-A", "-u", vip, "-s", "rr")
	top.Director.Run(t, "ipvsadm", "-a", "-u", vip, "-r", top.Backends[0].Addr.String()+":53", "-m")
	NewUDPEcho(t, top.Backends[0].NS, ":53")
	c, err := top.Client.Dial(t.Context(), "udp", vip)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := c.Read(buf)
	if err != nil || string(buf[:n]) != "b1 hello" {
		t.Errorf("answer %q, %v; want \"b1 hello\"", buf[:n], err)
	}
}

func TestKernelTestkitNamespacesAreApart(t *testing.T) {
	Kernel(t)
	a, b := NewNS(t, "a"), NewNS(t, "b")
	a.Run(t, "ipvsadm", "-A", "-t", "192.0.2.1:80", "-s", "rr")
	if got := ReadTable(t, a); len(got) != 1 {
		t.Errorf("table of a: %v", got)
	}
	if got := ReadTable(t, b); len(got) != 0 {
		t.Errorf("table of b: %v", got)
	}
	if got := ReadProc(t, b); len(got) != 0 {
		t.Errorf("/proc table of b: %v", got)
	}
	a.Sysctl(t, "net.ipv4.vs.expire_nodest_conn", "1")
	if got := a.ReadSysctl(t, "net.ipv4.vs.expire_nodest_conn") + b.ReadSysctl(t, "net.ipv4.vs.expire_nodest_conn"); got != "10" {
		t.Errorf("sysctl of a and b = %s, want 1 and 0", got)
	}
}

func TestKernelTestkitProcess(t *testing.T) {
	Kernel(t)
	ns := NewNS(t, "p")
	ns.IP(t, "link add name mark type dummy")
	p := ns.Start(t, []string{"WORD=hello"}, "/bin/sh", "-c",
		`trap 'echo got hup' HUP; trap 'echo bye; exit 3' TERM; ip -o link show mark; echo "$WORD" >&2; while :; do sleep 0.1; done`)
	p.WaitLine(t, 10*time.Second, `mark.*noop`)
	p.WaitLine(t, 10*time.Second, `^hello$`)
	p.Signal(t, syscall.SIGHUP)
	p.WaitLine(t, 10*time.Second, `^got hup$`)
	if !p.Running() {
		t.Error("not running after SIGHUP")
	}
	p.Signal(t, syscall.SIGTERM)
	if status := p.Wait(t, 10*time.Second); status != 3 {
		t.Errorf("exit status %d, want 3", status)
	}
	p.WaitLine(t, time.Second, `^bye$`)

	killed := ns.Start(t, nil, "sleep", "600")
	killed.Kill()
	if status := killed.Wait(t, time.Second); status != 128+int(syscall.SIGKILL) {
		t.Errorf("exit status after SIGKILL %d, want 137", status)
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want Loss
	}{
		{nil, Kept},
		{fmt.Errorf("dial: %w", syscall.ECONNREFUSED), Refused},
		{syscall.EHOSTUNREACH, Refused},
		{syscall.ECONNRESET, Reset},
		{syscall.EPIPE, Reset},
		{io.EOF, Closed},
		{io.ErrUnexpectedEOF, Closed},
		{syscall.ETIMEDOUT, TimedOut},
		{errors.New("something else"), Other},
	} {
		if got := classify(tt.err); got != tt.want {
			t.Errorf("classify(%v) = %q, want %q", tt.err, got, tt.want)
		}
	}
}

// TestKernelMixedServer: one port serves both kinds of clients, and a check that
// connects only.
func TestKernelMixedServer(t *testing.T) {
	Kernel(t)
	ns := NewNS(t, "b1")
	NewMixed(t, ns, "127.0.0.1:80")
	c, err := ns.Dial(t.Context(), "tcp", "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	long := OpenLong(t, ns, "127.0.0.1:80", 3)
	short := StartShort(t, ns, "127.0.0.1:80", 20)
	short.Await(t, 5)
	long.Settle(t)
	if r := long.Report(); r.KeptBy["b1"] != 3 {
		t.Errorf("long-lived: %s", r)
	}
	if r := short.Close(); r.By["b1"] < 5 || r.Lost() > 0 {
		t.Errorf("short: %s, first error %v", r, r.FirstErr)
	}
}
