package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// text gives a set one spelling.
func text(set map[netip.Addr]bool) string {
	var out []string
	for _, a := range slices.SortedFunc(maps.Keys(set), netip.Addr.Compare) {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

// watching runs a watch in a namespace; what it tells comes out of the channel.
func watching(t *testing.T, ns *testkit.NS) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan string)
	done := make(chan error, 1)
	go func() {
		done <- ns.Do(func() error {
			return WatchAddresses(ctx, func(present map[netip.Addr]bool) {
				select {
				case told <- text(present):
				case <-ctx.Done():
				}
			})
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v, want context.Canceled", err)
		}
	})
	return told
}

// next waits for the next set, which must be want.
func next(t *testing.T, told <-chan string, want string) {
	t.Helper()
	select {
	case got := <-told:
		if got != want {
			t.Fatalf("told %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("not told of %q in a minute", want)
	}
}

// until waits for a set, whatever is told before it.
func until(t *testing.T, told <-chan string, want string) {
	t.Helper()
	got := ""
	for end := time.After(time.Minute); got != want; {
		select {
		case got = <-told:
		case <-end:
			t.Fatalf("last told %q, not %q in a minute", got, want)
		}
	}
}

func needRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces: needs root")
	}
}

func TestWatchAddresses(t *testing.T) {
	needRoot(t)
	ns := testkit.NewNS(t, "addresses")
	told := watching(t, ns)
	next(t, told, "127.0.0.1 ::1")
	ns.IP(t, "addr add 192.0.2.1/32 dev lo")
	next(t, told, "127.0.0.1 192.0.2.1 ::1")
	ns.IP(t, "addr add 2001:db8::1/128 dev lo")
	next(t, told, "127.0.0.1 192.0.2.1 ::1 2001:db8::1")
	ns.IP(t, "addr del 192.0.2.1/32 dev lo")
	next(t, told, "127.0.0.1 ::1 2001:db8::1")
	ns.IP(t, "addr add 192.0.2.1/32 dev lo")
	next(t, told, "127.0.0.1 192.0.2.1 ::1 2001:db8::1")
	// With a peer it is the near end that counts.
	ns.IP(t, "addr add 198.51.100.1 peer 198.51.100.2 dev lo")
	next(t, told, "127.0.0.1 192.0.2.1 198.51.100.1 ::1 2001:db8::1")
	// All at once: IPv6 goes with the interface, IPv4 stays.
	ns.IP(t, "link set lo down")
	until(t, told, "127.0.0.1 192.0.2.1 198.51.100.1")
}

// TestWatchAddressesRefresh: a lifetime that is refreshed is an event, and no
// second address that would have to be removed too.
func TestWatchAddressesRefresh(t *testing.T) {
	needRoot(t)
	ns := testkit.NewNS(t, "refresh")
	told := watching(t, ns)
	next(t, told, "127.0.0.1 ::1")
	ns.IP(t, "addr add 192.0.2.1/32 dev lo valid_lft 1000 preferred_lft 1000")
	next(t, told, "127.0.0.1 192.0.2.1 ::1")
	for range 3 {
		ns.IP(t, "addr change 192.0.2.1/32 dev lo valid_lft 2000 preferred_lft 2000")
	}
	ns.IP(t, "addr del 192.0.2.1/32 dev lo")
	next(t, told, "127.0.0.1 ::1") // and nothing between: told holds one set at a time
}

// TestWatchAddressesTwice: an address that two interfaces have is there until
// both have lost it.
func TestWatchAddressesTwice(t *testing.T) {
	needRoot(t)
	ns := testkit.NewNS(t, "twice")
	ns.IP(t, "link add one type veth peer name two", "addr add 192.0.2.1/32 dev one", "addr add 192.0.2.1/32 dev two")
	told := watching(t, ns)
	next(t, told, "127.0.0.1 192.0.2.1 ::1")
	ns.IP(t, "addr del 192.0.2.1/32 dev one", "addr add 203.0.113.1/32 dev lo")
	until(t, told, "127.0.0.1 192.0.2.1 203.0.113.1 ::1")
	ns.IP(t, "link del one")
	until(t, told, "127.0.0.1 203.0.113.1 ::1")
}

// TestWatchAddressesTentative: an IPv6 address counts once it is known to be
// nobody else's, and never if it is.
func TestWatchAddressesTentative(t *testing.T) {
	needRoot(t)
	ns, other := testkit.NewNS(t, "tentative"), testkit.NewNS(t, "other")
	ns.IP(t, "link add here type veth peer name there netns "+other.Path())
	ns.Sysctl(t, "net.ipv6.conf.here.addr_gen_mode", "1") // no link-local address
	// A namespace of a test has no duplicate address detection, but for this test.
	ns.Sysctl(t, "net.ipv6.conf.all.accept_dad", "1")
	ns.Sysctl(t, "net.ipv6.conf.here.accept_dad", "1")
	other.IP(t, "link set there up", "addr add 2001:db8::66/64 dev there nodad")
	ns.IP(t, "addr add 2001:db8::5/64 dev here") // the interface is down: tentative
	told := watching(t, ns)
	next(t, told, "127.0.0.1 ::1")
	ns.IP(t, "link set here up", "addr add 2001:db8::66/64 dev here", "addr add 2001:db8::7/64 dev here")
	seen := ""
	for end := time.After(time.Minute); !strings.Contains(seen, "2001:db8::5 2001:db8::7"); {
		select {
		case seen = <-told:
		case <-end:
			t.Fatalf("last told %q, without ::5 and ::7, in a minute", seen)
		}
		if strings.Contains(seen, "::66") {
			t.Fatalf("told %q, and ::66 is another's", seen)
		}
	}
	if out := ns.Run(t, "ip", "-6", "addr", "show", "dev", "here"); !strings.Contains(out, "dadfailed") {
		t.Errorf("there was no duplicate to find:\n%s", out)
	}
}

// TestWatchAddressesOverrun: lost events are as good as seen ones.
func TestWatchAddressesOverrun(t *testing.T) {
	needRoot(t)
	ns := testkit.NewNS(t, "overrun")
	// Two alike: one shows that events are lost, the other one what comes of it.
	var k, witness kernelAddresses
	for _, one := range []*kernelAddresses{&k, &witness} {
		if err := ns.Do(func() (err error) { *one, err = openAddresses(); return err }); err != nil {
			t.Fatal(err)
		}
		defer one.close()
		if err := one.events.SetReadBuffer(1); err != nil { // the kernel makes it its minimum
			t.Fatal(err)
		}
	}
	for _, verb := range []string{"add", "del"} {
		var lines []string
		for i := range 200 {
			lines = append(lines, fmt.Sprintf("addr %s 10.0.0.%d/32 dev lo", verb, i+1))
		}
		ns.IP(t, lines...)
	}
	if _, err := witness.events.Receive(); !errors.Is(err, unix.ENOBUFS) {
		t.Fatalf("got %v, want an overrun: the test does not test what it says", err)
	}
	if err := k.wait(t.Context()); err != nil {
		t.Errorf("waiting through an overrun: %v", err)
	}
	all, whole, err := k.list()
	if got := text(present(all)); !whole || err != nil || got != "127.0.0.1 ::1" {
		t.Errorf("%q, whole %v, %v", got, whole, err)
	}
}

func message(family uint8, flags uint32, addr string) rtnetlink.AddressMessage {
	ip := net.IP(netip.MustParseAddr(addr).AsSlice())
	return rtnetlink.AddressMessage{Family: family, Flags: uint8(flags), Attributes: &rtnetlink.AddressAttributes{Address: ip, Flags: flags}}
}

func TestPresent(t *testing.T) {
	peer := message(unix.AF_INET, unix.IFA_F_PERMANENT, "198.51.100.2")
	peer.Attributes.Local = net.IP{198, 51, 100, 1}
	old := message(unix.AF_INET6, 0, "2001:db8::9")
	old.Flags = unix.IFA_F_TENTATIVE // and no attribute
	short := message(unix.AF_INET, 0, "192.0.2.1")
	short.Attributes.Address = net.IP{1, 2, 3}
	for _, c := range []struct {
		name string
		in   []rtnetlink.AddressMessage
		want string
	}{
		{"nothing", nil, ""},
		{"no attributes", []rtnetlink.AddressMessage{{Family: unix.AF_INET}}, ""},
		{"no address", []rtnetlink.AddressMessage{{Family: unix.AF_INET, Attributes: &rtnetlink.AddressAttributes{}}}, ""},
		{"another family", []rtnetlink.AddressMessage{message(unix.AF_BRIDGE, 0, "192.0.2.1")}, ""},
		{"a torn address", []rtnetlink.AddressMessage{short}, ""},
		{"IPv6 in IPv4", []rtnetlink.AddressMessage{message(unix.AF_INET, 0, "2001:db8::1")}, ""},
		{"peer", []rtnetlink.AddressMessage{peer}, "198.51.100.1"},
		{"secondary and deprecated", []rtnetlink.AddressMessage{message(unix.AF_INET, unix.IFA_F_SECONDARY|unix.IFA_F_DEPRECATED, "192.0.2.1")}, "192.0.2.1"},
		{"tentative", []rtnetlink.AddressMessage{message(unix.AF_INET6, unix.IFA_F_TENTATIVE, "2001:db8::1")}, ""},
		{"optimistic", []rtnetlink.AddressMessage{message(unix.AF_INET6, unix.IFA_F_TENTATIVE|unix.IFA_F_OPTIMISTIC, "2001:db8::1")}, ""},
		{"duplicate", []rtnetlink.AddressMessage{message(unix.AF_INET6, unix.IFA_F_DADFAILED|unix.IFA_F_PERMANENT, "2001:db8::1")}, ""},
		{"tentative of an old kernel", []rtnetlink.AddressMessage{old}, ""},
		{"tentative on one of two", []rtnetlink.AddressMessage{message(unix.AF_INET6, unix.IFA_F_TENTATIVE, "fe80::1"), message(unix.AF_INET6, unix.IFA_F_PERMANENT, "fe80::1")}, "fe80::1"},
		{"tentative on two of two", []rtnetlink.AddressMessage{message(unix.AF_INET6, unix.IFA_F_PERMANENT, "fe80::1"), message(unix.AF_INET6, unix.IFA_F_TENTATIVE, "fe80::1")}, "fe80::1"},
	} {
		if got := text(present(c.in)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// modelKernel is a list of addresses that changes as a test says.
type modelKernel struct {
	mu    sync.Mutex
	has   map[[2]int]bool // interface and address: whether it can be used
	torn  int             // so many readings from now are of a list that changes
	rings chan struct{}
	fail  error
}

func (m *modelKernel) wait(ctx context.Context) error {
	select {
	case <-m.rings:
		return m.fail
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *modelKernel) list() (all []rtnetlink.AddressMessage, whole bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.torn > 0 {
		m.torn--
		return []rtnetlink.AddressMessage{message(unix.AF_INET, 0, "255.0.0.1")}, false, nil
	}
	for k, usable := range m.has {
		a := message(unix.AF_INET, unix.IFA_F_PERMANENT, fmt.Sprintf("10.0.0.%d", k[1]))
		if !usable {
			a.Attributes.Flags = unix.IFA_F_TENTATIVE
		}
		a.Index = uint32(k[0])
		all = append(all, a)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, true, nil
}

func (m *modelKernel) set() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	set := map[netip.Addr]bool{}
	for k, usable := range m.has {
		if usable {
			set[netip.AddrFrom4([4]byte{10, 0, 0, byte(k[1])})] = true
		}
	}
	return text(set)
}

// TestWatchAddressesModel: whatever happens, and however often the kernel tells
// of it, the last set that is told is the one there is, and none is told twice.
func TestWatchAddressesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &modelKernel{has: map[[2]int]bool{}, rings: make(chan struct{}, 1000)}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		told, done := make(chan string), make(chan error, 1)
		go func() {
			done <- watchAddresses(ctx, m, func(set map[netip.Addr]bool) {
				s := text(set)
				set[netip.Addr{}] = true // it is ours to keep
				select {
				case told <- s:
				case <-ctx.Done():
				}
			})
		}()
		last := "never told"
		take := func() {
			got := <-told
			if got == last || strings.Contains(got, "255.") {
				t.Fatalf("told %q after %q", got, last)
			}
			last = got
		}
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			key := [2]int{rapid.IntRange(1, 2).Draw(t, "interface"), rapid.IntRange(1, 3).Draw(t, "address")}
			m.mu.Lock()
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				delete(m.has, key)
			case 1:
				m.has[key] = false
			case 2:
				m.torn = rapid.IntRange(0, 3).Draw(t, "torn")
			default:
				m.has[key] = true
			}
			m.mu.Unlock()
			for range rapid.IntRange(1, 3).Draw(t, "rings") {
				m.rings <- struct{}{}
			}
			if rapid.Bool().Draw(t, "look") {
				for last != m.set() {
					take()
				}
			}
		}
		for last != m.set() {
			take()
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("ended with %v", err)
		}
	})
}

// TestWatchAddressesRestless: a list that never holds still is not read without
// a pause, and ends with the context.
func TestWatchAddressesRestless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &modelKernel{torn: 81, rings: make(chan struct{})}
		ctx, cancel := context.WithTimeout(t.Context(), 10*addressPause+addressPause/2)
		defer cancel()
		calls := 0
		err := watchAddresses(ctx, m, func(map[netip.Addr]bool) { calls++ })
		if calls != 1 || m.torn != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("told %d times with %d readings left, %v", calls, m.torn, err)
		}
	})
}

func TestWatchAddressesFails(t *testing.T) {
	m := &modelKernel{rings: make(chan struct{}, 1), fail: unix.EIO}
	m.rings <- struct{}{}
	err := watchAddresses(t.Context(), m, func(map[netip.Addr]bool) {})
	if !errors.Is(err, unix.EIO) || err.Error() != "watch addresses: input/output error" {
		t.Errorf("got %v", err)
	}
}
