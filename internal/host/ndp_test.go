package host

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// advertised is a packet that a kernel sent: 2001:db8::a answers fd00:1::1.
const advertised = "6000000000203aff" + "20010db800000000000000000000000a" + "fd000001000000000000000000000001" +
	"8800" + "9532" + "e0000000" + "20010db800000000000000000000000a" + "020112daa6afee5d"

func packet(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSolicitationIsAsDescribed: a request as RFC 4861, section 4.3, has it. That its
// checksum is right is for a kernel to say, in TestNeighboursAreAskedInIPv6.
func TestSolicitationIsAsDescribed(t *testing.T) {
	s := solicitation{hw: [hardware]byte{2, 0, 0, 0, 0, 1}, source: netip.MustParseAddr("fd00::1"), target: netip.MustParseAddr("2001:db8::12:345a")}
	b := s.marshal()
	want := "6000000000203aff" + "fd000000000000000000000000000001" + "ff0200000000000000000001ff12345a" +
		"8700" + hex.EncodeToString(b[42:44]) + "00000000" + "20010db800000000000000000012345a" + "0101020000000001"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// TestAdvertisementsThatAreNotValid are those that RFC 4861, section 7.1.2, has ignored.
func TestAdvertisementsThatAreNotValid(t *testing.T) {
	// mended has a checksum that is right.
	mended := func(b []byte) []byte {
		b[42], b[43] = 0, 0
		sum := ^onesSum(netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])), b[ipHeader:])
		b[42], b[43] = byte(sum>>8), byte(sum)
		return b
	}
	for name, change := range map[string]func(b []byte) []byte{
		"IPv4":                                  func(b []byte) []byte { b[0] = 0x45; return b },
		"another protocol":                      func(b []byte) []byte { b[6] = unix.IPPROTO_UDP; return b },
		"forwarded by a router":                 func(b []byte) []byte { b[7] = 254; return b },
		"a solicitation":                        func(b []byte) []byte { b[40] = typeSolicitation; return mended(b) },
		"with a code":                           func(b []byte) []byte { b[41] = 1; return mended(b) },
		"a checksum that is wrong":              func(b []byte) []byte { b[43]++; return b },
		"cut off":                               func(b []byte) []byte { return b[:70] },
		"too short":                             func(b []byte) []byte { b[5] = 16; return mended(b[:56]) },
		"about a group":                         func(b []byte) []byte { b[48] = 0xff; return mended(b) },
		"solicited, though for all":             func(b []byte) []byte { copy(b[24:], "\xff\x02"); return mended(b) },
		"an option of no length":                func(b []byte) []byte { b[65] = 0; return mended(b) },
		"an option that is longer than the end": func(b []byte) []byte { b[65] = 2; return mended(b) },
	} {
		var a advertisement
		if b := change(packet(t, advertised)); a.unmarshal(b) {
			t.Errorf("%s: taken for %+v: %x", name, a, b)
		}
	}
	for name, change := range map[string]func(b []byte) []byte{
		"as it was":               func(b []byte) []byte { return b },
		"padded":                  func(b []byte) []byte { return append(b, 0, 0, 0) },
		"an option nobody knows":  func(b []byte) []byte { b[64] = 99; return mended(b) },
		"without options":         func(b []byte) []byte { b[5] = 24; return mended(b[:64]) },
		"its checksum made again": mended,
	} {
		var a advertisement
		if !a.unmarshal(change(packet(t, advertised))) || a != (advertisement{netip.MustParseAddr("2001:db8::a"), true}) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	// One that nobody asked for is valid, and no answer.
	b := packet(t, advertised)
	b[44] = 0x20
	if about, is := discovery.answer(mended(b)); is || about != netip.MustParseAddr("2001:db8::a") {
		t.Errorf("unsolicited: %v, %v", about, is)
	}
}

func FuzzAdvertisement(f *testing.F) {
	f.Add(packet(f, advertised))
	f.Add(packet(f, advertised)[:64])
	s := solicitation{source: netip.MustParseAddr("fd00::1"), target: netip.MustParseAddr("2001:db8::a")}
	f.Add(s.marshal())
	vm, err := bpf.NewVM(discovery.filter)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var a advertisement
		if !a.unmarshal(b) {
			return
		}
		if n, err := vm.Run(b); err != nil || n < len(b) {
			t.Errorf("the kernel would hand over %d of %d bytes, %v: %x", n, len(b), err, b)
		}
		if !slices.Equal(a.target.AsSlice(), b[48:64]) || a.target.IsMulticast() || b[7] != 255 || a.solicited && b[24] == 0xff {
			t.Errorf("%x is read as %+v", b, a)
		}
		b[63]++
		if a.unmarshal(b) {
			t.Errorf("another address, and the checksum is right: %x", b)
		}
	})
}

// TestFilterOfDiscovery: what else is IPv6 stays in the kernel.
func TestFilterOfDiscovery(t *testing.T) {
	vm, err := bpf.NewVM(discovery.filter)
	if err != nil {
		t.Fatal(err)
	}
	good := packet(t, advertised)
	for name, tt := range map[string]struct {
		b    []byte
		pass bool
	}{
		"an advertisement": {good, true},
		"a solicitation":   {(&solicitation{source: netip.MustParseAddr("fd00::1"), target: netip.MustParseAddr("fd00::2")}).marshal(), false},
		"TCP":              {slices.Replace(slices.Clone(good), 6, 7, unix.IPPROTO_TCP), false},
		"a header":         {good[:40], false},
	} {
		if n, err := vm.Run(tt.b); err != nil || n > 0 != tt.pass {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
}

// TestNeighboursAreAskedInIPv6: a server answers for an address that is on the device
// between, and is silent about one that is on lo.
func TestNeighboursAreAskedInIPv6(t *testing.T) {
	testkit.NeedRoot(t)
	director := testkit.NewNS(t, "director")
	vip := netip.MustParseAddr("2001:db8::a")
	var q Query
	var names []string
	server := func(name, own string, commands ...string) {
		ns := testkit.NewNS(t, name)
		for _, all := range []string{"forwarding", "proxy_ndp"} { // as a director that is a real server too
			ns.Sysctl(t, "net.ipv6.conf.all."+all, "1")
		}
		director.IP(t, "link add name to-"+name+" type veth peer name eth0 netns "+ns.Path(), "link set dev to-"+name+" up",
			"address add "+strings.TrimSuffix(own, "2")+"1/64 dev to-"+name+" nodad")
		ns.IP(t, "link set dev eth0 up", "address add "+own+"/64 dev eth0 nodad")
		ns.IP(t, commands...)
		_, hw, _ := strings.Cut(ns.Run(t, "ip", "-o", "link", "show", "eth0"), "link/ether ")
		hw, _, _ = strings.Cut(hw, " ")
		director.IP(t, fmt.Sprintf("neigh replace %s lladdr %s dev to-%s", own, hw, name))
		q.Questions = append(q.Questions, Question{netip.MustParseAddr(own), vip})
		q.Routes = append(q.Routes, netip.MustParseAddr(own))
		names = append(names, name)
	}
	server("loud", "fd00:1::2", "address add 2001:db8::a/128 dev eth0 nodad")
	server("quiet", "fd00:2::2", "address add 2001:db8::a/128 dev lo nodad")
	server("none", "fd00:3::2")
	server("proxy", "fd00:4::2", "neigh add proxy 2001:db8::a dev eth0", "route add 2001:db8::a/128 dev lo")
	var f *Facts
	if err := director.Do(func() error { f = Machine{}.Facts(q); return nil }); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, false, true} {
		if a := f.Answers[q.Questions[i]]; a.Yes != want || a.Unknown != "" {
			t.Errorf("%s: %+v", names[i], a)
		}
	}
}
