package engine

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config"
)

// TestMarkedTellsRanges: ten thousand addresses are a few lines.
func TestMarkedTellsRanges(t *testing.T) {
	if marked(&config.VirtualServer{}) != nil {
		t.Error("a virtual server without a mark is told of")
	}
	vc := &config.VirtualServer{Mark: 1000}
	add := func(addr string, port uint16) {
		vc.Entries = append(vc.Entries, config.Entry{Addr: netip.AddrPortFrom(netip.MustParseAddr(addr), port)})
	}
	for a := netip.MustParseAddr("10.0.0.250"); a != netip.MustParseAddr("10.0.1.5"); a = a.Next() {
		add(a.String(), 80)
	}
	add("10.0.0.251", 443)
	add("10.0.0.251", 443)
	add("192.0.2.1", 80)
	add("2001:db8::2", 80)
	add("2001:db8::1", 80)
	add("203.0.113.9", 0)
	vc.Entries = append(vc.Entries, config.Entry{FWMark: 7})
	want := &Marked{Mark: 1000, Count: 16, Ranges: []string{
		"203.0.113.9", "10.0.0.250-10.0.1.4 80", "192.0.2.1 80", "2001:db8::1-2001:db8::2 80", "10.0.0.251 443",
	}}
	if d := cmp.Diff(want, marked(vc)); d != "" {
		t.Error(d)
	}
}
