package top

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

// TestHeadTellsOfPassive and of what around the table does not work.
func TestHeadTellsOfPassive(t *testing.T) {
	m := New(time.Second)
	m.Color = true
	m.Resize(200, 24)
	s := sample()
	s.Passive = &engine.Passive{On: true, Sources: []engine.PassiveSource{{Who: "ann\x1b[2J", Since: at.Add(-5 * time.Minute)}}}
	s.VirtualServers[0].RealServers[0].State = engine.StatePassive
	m.Take(s, nil)
	v := m.View()
	if want := odd + "sluiced 1.2.3, up 1d2h, configuration 4; PASSIVE for 5m by ann\uFFFD[2J, services are withheld" + plain; v[0] != want {
		t.Errorf("head %q, want %q", v[0], want)
	}
	if !strings.Contains(v[1], "1 passive") {
		t.Errorf("sum %q", v[1])
	}
	s.Passive = nil
	s.Edge = &engine.Edge{Failures: []engine.EdgeFailure{{Feature: "vip_guard", Reason: "no nf_tables"}}}
	m.Take(s, nil)
	if v := m.View(); !strings.HasPrefix(v[0], bad) || !strings.Contains(v[0], "VIP_GUARD DOES NOT WORK: no nf_tables") {
		t.Errorf("head %q", v[0])
	}
}

// TestRowsTellThatNobodyComes: a server that is up behind an address that is not there
// is no good row.
func TestRowsTellThatNobodyComes(t *testing.T) {
	m := New(time.Second)
	m.Resize(200, 24)
	s := sample()
	s.VirtualServers[0].VIP = &engine.VIP{Device: "vips", Why: "this daemon is about to stop"}
	s.VirtualServers[1].VIP = &engine.VIP{Device: "vips", Announced: true, Addresses: 3, Missing: []engine.MissingAddress{{Address: "192.0.2.20"}}}
	m.Take(s, nil)
	text := screen(m)
	for _, want := range []string{
		"2 NOT ANNOUNCED", "NOT ANNOUNCED: this daemon is about to stop; all checks pass",
		"NOT ANNOUNCED: this daemon is about to stop; TCP_CHECK", "NOT ANNOUNCED: 1 of 3 addresses; track_file mail",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	m.Key("!")
	if !strings.Contains(screen(m), "10.0.0.11:80") {
		t.Errorf("what nobody reaches is no trouble:\n%s", screen(m))
	}
	s.VirtualServers[0].VIP.Announced = true
	m.Take(s, nil)
	if strings.Contains(screen(m), "10.0.0.11:80") {
		t.Errorf("what is announced is trouble:\n%s", screen(m))
	}
}
