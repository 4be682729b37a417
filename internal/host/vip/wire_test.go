package vip

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/host"
)

// TestWire: what is sent is what would be read.
func TestWire(t *testing.T) {
	for _, a := range []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")} {
		m, err := encode(op{do: addAddress, addr: a, index: 7})
		if err != nil || len(m) != 1 {
			t.Fatal(m, err)
		}
		got, s, ok := decodeAddress(m[0].Data)
		if want := (spot{index: 7, bits: uint8(a.BitLen()), proto: host.Protocol}); got != a || s != want || !ok {
			t.Errorf("%s: %v %+v %v", a, got, s, ok)
		}
		m, err = encode(op{do: addRoute, addr: a, index: 1})
		if err != nil || len(m) != 1 {
			t.Fatal(m, err)
		}
		if got, ok := decodeRoute(m[0].Data); got != a || !ok {
			t.Errorf("route of %s: %v %v", a, got, ok)
		}
	}
	m, err := encode(op{do: makeLink, name: "sluice0"})
	if err != nil || len(m) != 2 {
		t.Fatal(m, err)
	}
	made, _ := decodeLink(m[0].Data)
	named, ok := decodeLink(m[1].Data)
	if made.kind != dummy || named.alias != Alias || named.name != "sluice0" || named.flags != unix.IFF_UP || !ok {
		t.Errorf("%+v, %+v", made, named)
	}
}

func TestVersionKeepsOriginators(t *testing.T) {
	for release, want := range map[string]bool{
		"6.1.0-48-amd64": true, "5.18.0": true, "5.18-rc1": true, "5.17.9": false, "5.4.0-generic": false,
		"4.18.0-553.el8": false, "10.0": true, "": false, "strange": false,
	} {
		if got := versionKeepsOriginators(release); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}

// FuzzDecode: no bytes make it fall, and what it takes for ours is whole.
func FuzzDecode(f *testing.F) {
	for _, o := range []op{{do: makeLink, name: "sluice0"}, {do: addAddress, addr: netip.MustParseAddr("192.0.2.10"), index: 7}, {do: addRoute, addr: netip.MustParseAddr("2001:db8::10"), index: 1}} {
		list, err := encode(o)
		if err != nil {
			f.Fatal(err)
		}
		for _, m := range list {
			f.Add(m.Data)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, ok := decodeLink(b); ok && l.name == "" {
			t.Error("a device without a name")
		}
		if a, _, ok := decodeAddress(b); ok && (!a.IsValid() || a.Is4In6() && a.Is4()) {
			t.Errorf("address %v", a)
		}
		if a, ok := decodeRoute(b); ok && !a.IsValid() {
			t.Errorf("route %v", a)
		}
	})
}
