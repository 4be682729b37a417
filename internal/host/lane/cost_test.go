package lane

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// asker asks the kernel of a namespace for routes.
type asker struct {
	k       *linux
	request []byte
}

func newAsker(t *testing.T, ns *testkit.NS, to netip.Addr) *asker {
	t.Helper()
	request := &rtnetlink.RouteMessage{Family: family(to.Is6()), DstLength: uint8(to.BitLen())}
	request.Attributes.Dst = to.AsSlice()
	data, err := request.MarshalBinary()
	must(t, err)
	a := &asker{request: data}
	must(t, ns.Do(func() error {
		k, err := openKernel()
		if err == nil {
			a.k = k.(*linux)
		}
		return err
	}))
	t.Cleanup(a.k.close)
	return a
}

// kind is that of the route that a packet without a mark takes.
func (a *asker) kind() (uint8, error) {
	answer, err := a.k.ask(unix.RTM_GETROUTE, 0, a.request)
	if err != nil {
		return 0, err
	}
	var m rtnetlink.RouteMessage
	err = m.UnmarshalBinary(answer[0].Data)
	return m.Type, err
}

// fastest is the shortest time per lookup of several batches.
func (a *asker) fastest(t *testing.T) time.Duration {
	t.Helper()
	best := time.Duration(1 << 62)
	for range 40 {
		const n = 25
		begun := time.Now()
		for range n {
			_, err := a.kind()
			must(t, err)
		}
		best = min(best, time.Since(begun)/n)
	}
	return best
}

func contains(t *testing.T, got, want string) {
	t.Helper()
	if want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// plain is a director with one device.
func plain(t *testing.T) *testkit.NS {
	t.Helper()
	testkit.Kernel(t)
	ns := testkit.NewNS(t, "lanes")
	ns.IP(t, "link set lo up", "link add name front type dummy", "link set front up", "address add 10.0.0.1/16 dev front", "address add fd00::1/64 dev front nodad")
	return ns
}

// TestKernelLocalRuleStays: whoever asks in the meantime for the way to an address of
// this machine hears that it is here, in every round of a first lane and a last one.
func TestKernelLocalRuleStays(t *testing.T) {
	ns := plain(t)
	stop, ended := make(chan struct{}), make(chan error, 2)
	count := make([]int, 2)
	for i, to := range []string{"10.0.0.1", "fd00::1"} {
		a := newAsker(t, ns, netip.MustParseAddr(to))
		go func() {
			for {
				select {
				case <-stop:
					ended <- nil
					return
				default:
				}
				if kind, err := a.kind(); err != nil || kind != unix.RTN_LOCAL {
					ended <- fmt.Errorf("after %d questions %s is reached by a route of type %d: %w", count[i], to, kind, err)
					return
				}
				count[i]++
			}
		}()
	}
	keeper := New(Options{Manage: func() bool { return true }})
	lanes := []Lane{drLane(1, "10.0.0.11"), drLane(2, "fd00::11")}
	const rounds = 10
	for range rounds {
		for _, want := range [][]Lane{lanes, nil} {
			must(t, ns.Do(func() error { return keeper.Sync(context.Background(), want) }))
		}
	}
	close(stop)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d and %d questions in %d rounds", count[0], count[1], rounds)
}

// TestKernelManyLanes: what packets without a mark pay does not grow with the number of
// lanes, for one rule has them jump over all of these.
func TestKernelManyLanes(t *testing.T) {
	ns := plain(t)
	ns.IP(t, "route add 198.51.100.0/24 via 10.0.0.2")
	a := newAsker(t, ns, netip.MustParseAddr("198.51.100.7"))
	keeper := New(Options{Manage: func() bool { return true }})
	sync := func(lanes []Lane) time.Duration {
		begun := time.Now()
		must(t, ns.Do(func() error { return keeper.Sync(context.Background(), lanes) }))
		return time.Since(begun)
	}
	var lanes []Lane
	for i := range 500 {
		lanes = append(lanes, drLane(uint32(i+1), fmt.Sprintf("10.0.%d.%d", 1+i/250, 1+i%250)))
	}
	none := a.fastest(t)
	sync(lanes[:1])
	one := a.fastest(t)
	made := sync(lanes)
	for _, l := range lanes {
		must(t, keeper.Err(l.Mark, false))
	}
	again, more := sync(lanes), sync(append(lanes, drLane(501, "10.0.9.1")))
	begun := time.Now()
	must(t, ns.Do(func() error {
		if keeper.strayed() {
			return fmt.Errorf("strayed")
		}
		return nil
	}))
	glance := time.Since(begun)
	many := a.fastest(t)
	ns.Run(t, "ip", "rule", "del", "pref", fmt.Sprint(prefSkip))
	all := a.fastest(t)
	t.Logf("a lookup takes %v, with one lane %v, with 500 %v, and without the rule in front %v", none, one, many, all)
	t.Logf("Sync of 500 took %v, again %v, one more %v; the ways of 500 servers %v", made.Round(time.Millisecond), again.Round(time.Millisecond), more.Round(time.Millisecond), glance.Round(time.Millisecond))
	if many > 2*one {
		t.Errorf("a lookup takes %v with 500 lanes, and %v with one", many, one)
	}
	t.Logf("removing them took %v", sync(nil).Round(time.Millisecond))
	ns.Run(t, "modprobe", "fou")
	gue := config.Forwarding{Method: config.TUN, Tunnel: config.GUE, Port: 6080}
	for i := range lanes[:10] {
		lanes[i].Forward = gue
	}
	t.Logf("Sync of 10 by GUE took %v", sync(lanes[:10]).Round(time.Millisecond))
	for _, l := range lanes[:10] {
		must(t, keeper.Err(l.Mark, false))
	}
}

// TestKernelTunnelsAlike: of tunnels with the same ends there is one, and whoever gets
// none hears why; a change of the port by a reload takes effect at once.
func TestKernelTunnelsAlike(t *testing.T) {
	ns := plain(t)
	ns.Run(t, "modprobe", "-a", "fou", "ipip")
	gue := func(n uint32, port uint16) Lane {
		l := drLane(n, "10.0.0.11")
		l.Forward = config.Forwarding{Method: config.TUN, Tunnel: config.GUE, Port: port}
		return l
	}
	keeper := New(Options{Manage: func() bool { return true }})
	sync := func(lanes ...Lane) {
		t.Helper()
		_ = ns.Do(func() error { return keeper.Sync(context.Background(), lanes) })
	}
	says := func(l Lane, want string) {
		t.Helper()
		contains(t, text(keeper.Err(l.Mark, false)), want)
	}
	old, next := gue(2, 6080), gue(3, 6081)
	sync(old)
	says(old, "")
	sync(old, next)
	says(old, "")
	says(next, "by TUN type gue port 6081: "+ErrTaken.Error()+" (slu53000002, by TUN type gue port 6080)")
	sync(next)
	says(next, "")
	sync()
	ns.Run(t, "ip", "link", "add", "mine", "type", "ipip", "local", "10.0.0.1", "remote", "10.0.0.11")
	sync(old)
	says(old, "mine is already the ipip tunnel from 10.0.0.1 to 10.0.0.11")
	ns.Run(t, "ip", "link", "add", "every", "type", "ipip", "external")
	l := drLane(4, "10.0.0.12")
	l.Forward.Method = config.TUN
	sync(l)
	says(l, "every is already the ipip tunnel that takes its destinations from routes")
	ns.Run(t, "ip", "link", "del", "every")
	ns.Run(t, "ip", "link", "add", "sluice-ipip", "type", "dummy")
	sync(l)
	says(l, "a device sluice-ipip that is not ours is there already")
	ns.Run(t, "ip", "link", "del", "sluice-ipip")
	sync(l)
	says(l, "")
	// A server that is reached by another device is led there.
	ns.IP(t, "link add name back type dummy", "link set back up", "address add 10.1.0.1/24 dev back", "route add 10.0.0.13/32 dev back")
	d := drLane(5, "10.0.0.13")
	sync(d)
	contains(t, ns.Run(t, "ip", "route", "show", "table", fmt.Sprint(d.Mark)), "dev back")
	ns.IP(t, "route del 10.0.0.13/32 dev back")
	strayed := false
	_ = ns.Do(func() error { strayed = keeper.strayed(); return nil })
	sync(d)
	contains(t, ns.Run(t, "ip", "route", "show", "table", fmt.Sprint(d.Mark)), "dev front")
	if !strayed {
		t.Error("the new way was not seen")
	}
	sync()
}
