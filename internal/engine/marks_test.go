package engine

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/state"
)

// TestMarksSurvive a restart: the state file has what the running configuration was
// given, and gives it back.
func TestMarksSurvive(t *testing.T) {
	want := config.Marks{Groups: map[config.MarkKey]uint32{}, Via: map[config.ViaKey]uint32{}}
	cfg := many(4, 4)
	for i, vc := range cfg.VirtualServers {
		vc.Protocol = []config.Protocol{config.TCP, config.UDP, config.SCTP, config.TCP}[i]
		vc.Key.Group = []string{"one", "one", "", "two \"three\""}[i]
		if vc.Key.Group != "" {
			vc.Mark = uint32(1000 + i)
			want.Groups[config.MarkKey{Group: vc.Key.Group, Protocol: vc.Protocol}] = vc.Mark
		}
	}
	via := func(n int, server string, f config.Forwarding) {
		v := &config.Via{Server: netip.MustParseAddr(server), Forward: f, Mark: config.ViaMark + uint32(n)}
		cfg.VirtualServers[0].RealServers[n].Checkers[0].Conn.Via = v
		want.Via[config.ViaKey{Server: v.Server, Forward: v.Forward}] = v.Mark
	}
	via(0, "10.0.0.1", config.Forwarding{Method: config.DR})
	via(1, "2001:db8::1", config.Forwarding{Method: config.TUN})
	via(2, "10.0.0.1", config.Forwarding{Method: config.TUN, Tunnel: config.GUE, Port: 6080, Checksum: config.RemCsum})
	via(3, "10.0.0.1", config.Forwarding{Method: config.TUN, Tunnel: config.GRE, Checksum: config.Csum})

	e := loaded(t, cfg)
	var b bytes.Buffer
	if err := e.survives(e.started).Write(&b); err != nil {
		t.Fatal(err)
	}
	s, err := state.Decode(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, SavedMarks(s), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-given +saved):\n%s\n%s", diff, b.String())
	}
	// What nobody wrote so is left out and breaks nothing.
	s.Marks = []state.Mark{{}, {Mark: 1}, {Group: "g", Protocol: "XXX", Mark: 1}, {Server: "nowhere", Forward: "DR", Mark: 1},
		{Server: "10.0.0.1", Forward: "TUN gue x csum", Mark: 1}, {Server: "10.0.0.1", Forward: "TUN", Mark: 1}, {Server: "10.0.0.1", Forward: "DR"}}
	for _, s := range []*state.State{s, nil} {
		if m := SavedMarks(s); len(m.Groups)+len(m.Via) != 0 {
			t.Errorf("read %v", m)
		}
	}
}
