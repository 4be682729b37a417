package host

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// crowd is how many addresses lo has in these tests: their list is several datagrams.
const crowd = 400

// asking opens an Asker in a namespace of its own whose lo has a crowd of addresses.
func asking(t *testing.T) (*Asker, *testkit.NS) {
	t.Helper()
	testkit.NeedRoot(t)
	var a *Asker
	ns := testkit.NewNS(t, "asked")
	if err := ns.Do(func() error {
		c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
		if err == nil {
			a = NewAsker(c, time.Minute)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	for n := range crowd {
		addAddress(t, a, netip.AddrFrom4([4]byte{10, 9, byte(n >> 8), byte(n)}))
	}
	return a, ns
}

func addAddress(t *testing.T, a *Asker, addr netip.Addr) {
	t.Helper()
	body := encoded(t, &rtnetlink.AddressMessage{Family: unix.AF_INET, PrefixLength: 32, Index: 1,
		Attributes: &rtnetlink.AddressAttributes{Local: addr.AsSlice(), Address: addr.AsSlice()}})
	if _, err := a.Ask(unix.RTM_NEWADDR, netlink.Acknowledge|netlink.Create|netlink.Excl, body); err != nil {
		t.Fatal(err)
	}
}

func encoded(t *testing.T, m interface{ MarshalBinary() ([]byte, error) }) []byte {
	t.Helper()
	b, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// left sends a request and leaves its answer where it is, as one that came late. For a
// list, read is how many datagrams of it are read.
func left(t *testing.T, c *netlink.Conn, kind uint16, flags netlink.HeaderFlags, body []byte, read int) {
	t.Helper()
	if _, err := c.Send(netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags}, Data: body}); err != nil {
		t.Fatal(err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for range read {
		if e := raw.Control(func(fd uintptr) { _, err = datagram(int(fd)) }); e != nil || err != nil {
			t.Fatal(e, err)
		}
	}
}

// right fails the test unless the next answers are to what is asked.
func right(t *testing.T, a *Asker) {
	t.Helper()
	for range 2 {
		// A list, one thing, a change, and what is refused.
		list, whole, err := a.List(unix.RTM_GETADDR, encoded(t, &rtnetlink.AddressMessage{Family: unix.AF_INET}))
		if n := ofType(list, unix.RTM_NEWADDR); err != nil || !whole || n < crowd || n != len(list)-1 {
			t.Fatalf("%d addresses among %d messages, whole %t, %v; want at least %d and an end", n, len(list), whole, err, crowd)
		}
		lo, err := a.Ask(unix.RTM_GETLINK, 0, encoded(t, &rtnetlink.LinkMessage{Index: 1}))
		if err != nil || len(lo) != 1 || lo[0].Header.Type != unix.RTM_NEWLINK {
			t.Fatalf("%v, %v; want lo", lo, err)
		}
		rule := encoded(t, &rtnetlink.RuleMessage{Family: unix.AF_INET, Table: 77, Action: unix.FR_ACT_TO_TBL})
		for _, kind := range []uint16{unix.RTM_NEWRULE, unix.RTM_DELRULE} {
			done, err := a.Ask(kind, netlink.Acknowledge, rule)
			if err != nil || len(done) != 1 || done[0].Header.Type != netlink.Error {
				t.Fatalf("a rule, message %d: %v, %v", kind, done, err)
			}
		}
		_, err = a.Ask(unix.RTM_DELRULE, netlink.Acknowledge, rule)
		if !errors.Is(err, unix.ENOENT) || a.dirty {
			t.Fatalf("%v, dirty %t; want a clean refusal, ENOENT", err, a.dirty)
		}
	}
}

func ofType(list []netlink.Message, kind uint16) (n int) {
	for _, m := range list {
		if m.Header.Type == netlink.HeaderType(kind) {
			n++
		}
	}
	return n
}

func TestAsker(t *testing.T) {
	a, _ := asking(t)
	right(t, a)
}

// giveUp has a question without an answer: the kernel passes over messages of this type.
func giveUp(t *testing.T, a *Asker) {
	t.Helper()
	was := a.patience
	a.patience = time.Millisecond
	_, err := a.Ask(unix.NLMSG_NOOP, 0, nil)
	a.patience = was
	if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "no answer from the kernel in 1ms") {
		t.Fatal(err)
	}
}

// Whatever comes of a question that was given up, and whenever: the next have their own
// answers.
func TestAskerAfterAQuestionThatWasGivenUp(t *testing.T) {
	addresses := encoded(t, &rtnetlink.AddressMessage{})
	lo := encoded(t, &rtnetlink.LinkMessage{Index: 1})
	for name, late := range map[string]func(*testing.T, *Asker){
		"nothing comes":      func(*testing.T, *Asker) {},
		"one thing":          func(t *testing.T, a *Asker) { left(t, a.conn, unix.RTM_GETLINK, 0, lo, 0) },
		"an acknowledgment":  func(t *testing.T, a *Asker) { left(t, a.conn, unix.RTM_GETLINK, netlink.Acknowledge, lo, 1) },
		"a list":             func(t *testing.T, a *Asker) { left(t, a.conn, unix.RTM_GETADDR, netlink.Dump, addresses, 0) },
		"the rest of a list": func(t *testing.T, a *Asker) { left(t, a.conn, unix.RTM_GETADDR, netlink.Dump, addresses, 1) },
		"more than there is room for": func(t *testing.T, a *Asker) {
			overrun(t, a)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := asking(t)
			giveUp(t, a)
			late(t, a)
			right(t, a)
		})
	}
}

// overrun has so many answers come that the kernel loses some.
func overrun(t *testing.T, a *Asker) {
	t.Helper()
	if err := a.conn.SetReadBuffer(1); err != nil {
		t.Fatal(err)
	}
	request := netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request}, Data: encoded(t, &rtnetlink.LinkMessage{Index: 1})}
	if _, err := a.conn.SendMessages(slices.Repeat([]netlink.Message{request}, 64)); err != nil {
		t.Fatal(err)
	}
}

// Nothing was given up that the Asker knows of, and there are answers all the same.
func TestAskerTakesOnlyItsOwnAnswers(t *testing.T) {
	a, _ := asking(t)
	for range 3 {
		left(t, a.conn, unix.RTM_GETLINK, 0, encoded(t, &rtnetlink.LinkMessage{Index: 1}), 0)
	}
	// A list, whose end would be that of ours.
	left(t, a.conn, unix.RTM_GETRULE, netlink.Dump, encoded(t, &rtnetlink.RuleMessage{Family: unix.AF_INET}), 0)
	right(t, a)
}

func TestAskerAnswersLost(t *testing.T) {
	a, _ := asking(t)
	overrun(t, a)
	_, err := a.Ask(unix.RTM_GETLINK, 0, encoded(t, &rtnetlink.LinkMessage{Index: 1}))
	if !errors.Is(err, unix.ENOBUFS) || !strings.Contains(err.Error(), "no room") {
		t.Fatalf("%v, want ENOBUFS", err)
	}
	right(t, a)
}

// A list that still runs, of which the Asker knows nothing, costs one question.
func TestAskerBusy(t *testing.T) {
	a, _ := asking(t)
	left(t, a.conn, unix.RTM_GETADDR, netlink.Dump, encoded(t, &rtnetlink.AddressMessage{}), 1)
	if _, _, err := a.List(unix.RTM_GETRULE, encoded(t, &rtnetlink.RuleMessage{Family: unix.AF_INET})); !errors.Is(err, unix.EBUSY) {
		t.Fatalf("%v, want EBUSY", err)
	}
	right(t, a)
}

// What is there is no late answer, whatever the clock says.
func TestAskerWithoutTime(t *testing.T) {
	a, _ := asking(t)
	a.patience = -time.Hour
	right(t, a)
}

func TestAskerSeesAListChange(t *testing.T) {
	a, ns := asking(t)
	sent, err := a.conn.Send(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETADDR, Flags: netlink.Request | netlink.Dump}, Data: encoded(t, &rtnetlink.AddressMessage{})})
	if err != nil {
		t.Fatal(err)
	}
	ns.Run(t, "ip", "address", "add", "10.8.0.1/32", "dev", "lo")
	if list, err := a.receive(sent.Header); err != nil || unchanged(list) {
		t.Errorf("%d messages, %v; want a list that changed", len(list), err)
	}
	right(t, a)
}

// Those that ask for as long as a process lives are not spoilt by one late answer.
func TestLateAnswerSpoilsNoOtherQuestion(t *testing.T) {
	_, ns := asking(t)
	var addresses kernelAddresses
	var devices *kernelNetwork
	if err := ns.Do(func() (err error) {
		if addresses, err = openAddresses(); err == nil {
			devices, err = openKernelNetwork()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer addresses.close()
	defer devices.Close()
	for _, a := range []*Asker{addresses.reads, devices.asker} {
		giveUp(t, a)
		left(t, a.conn, unix.RTM_GETADDR, netlink.Dump, encoded(t, &rtnetlink.AddressMessage{}), 1)
	}
	for range 2 {
		if all, whole, err := addresses.list(); err != nil || !whole || len(all) < crowd {
			t.Errorf("%d addresses, whole %t, %v", len(all), whole, err)
		}
		if all, err := devices.Devices(); err != nil || !slices.ContainsFunc(all, func(d Device) bool { return d.Name == "lo" && len(d.Addresses) >= crowd }) {
			t.Errorf("%v", err)
		}
		if r := devices.Route(netip.MustParseAddr("10.9.0.1")); !r.Local {
			t.Errorf("%+v", r)
		}
	}
}
