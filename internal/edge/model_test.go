package edge

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// drawWish draws what the engine may wish: what is announced has its services let in.
func drawWish(t *rapid.T) *Wish {
	if rapid.IntRange(0, 4).Draw(t, "gone") == 0 {
		return nil
	}
	w := &Wish{
		Device:   rapid.SampledFrom([]string{"", "sluice0", "sluice1"}).Draw(t, "device"),
		Announce: rapid.Bool().Draw(t, "announce"),
		Local:    rapid.Bool().Draw(t, "local"),
		Guard:    rapid.Bool().Draw(t, "guard"),
	}
	for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(1, 4), 1, 3, rapid.ID[int]).Draw(t, "addresses") {
		w.Addresses = append(w.Addresses, addr(n))
		if w.Announce || w.Local || rapid.Bool().Draw(t, "serves") {
			w.Services = append(w.Services, service(n, rapid.IntRange(80, 82).Draw(t, "port")))
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "marked") == 0 {
		w.Mark = uint32(rapid.IntRange(1, 2).Draw(t, "mark"))
		for _, a := range w.Addresses {
			w.Mapped = append(w.Mapped, Mapped{ipvs.TCP, netip.AddrPortFrom(a, 80)})
		}
	}
	return w
}

// turnDraw is one turn of the engine, and what goes wrong from then on.
type turnDraw struct {
	changed    map[config.VSKey]*Wish
	fault      int
	wait, mend bool
}

func drawTurn(t *rapid.T) turnDraw {
	d := turnDraw{changed: map[config.VSKey]*Wish{}, fault: rapid.IntRange(0, 9).Draw(t, "fault")}
	for range rapid.IntRange(1, 3).Draw(t, "changes") {
		d.changed[vs(rapid.IntRange(1, 4).Draw(t, "vs"))] = drawWish(t)
	}
	d.wait, d.mend = rapid.Bool().Draw(t, "wait"), rapid.Bool().Draw(t, "mend")
	return d
}

// modelWant is the aggregate by the plainest of means.
func modelWant(all map[config.VSKey]*Wish) (places map[netip.Addr]Place, guard map[string]bool, marks map[Mapped]uint32) {
	places, guard, marks = map[netip.Addr]Place{}, map[string]bool{}, map[Mapped]uint32{}
	guarded := map[netip.Addr]bool{}
	for _, w := range all {
		for _, a := range w.Addresses {
			if w.Guard {
				guarded[a] = true
				guard[a.String()] = true
			}
			if w.Device == "" {
				continue
			}
			p := places[a]
			p.Local = p.Local || w.Local
			switch {
			case w.Announce && (!p.Announce || w.Device < p.Device):
				p.Announce, p.Device = true, w.Device
			case !w.Announce && !p.Announce && (p.Device == "" || w.Device < p.Device):
				p.Device = w.Device
			}
			places[a] = p
		}
		for _, m := range w.Mapped {
			if old, ok := marks[m]; !ok || w.Mark < old {
				marks[m] = w.Mark
			}
		}
	}
	for _, w := range all {
		for _, s := range w.Services {
			if guarded[s.Addr] {
				guard[s.String()] = true
			}
		}
	}
	return places, guard, marks
}

func guardText(g *Guard) map[string]bool {
	set := map[string]bool{}
	if g != nil {
		for _, a := range g.Addresses {
			set[a.String()] = true
		}
		for _, s := range g.Services {
			set[s.String()] = true
		}
	}
	return set
}

// TestModel: after any sequence of wishes and failures the machine has exactly what they
// come to; and as long as nothing fails, an address is never on a device while a service
// that its wish has is refused there or its mark is not set.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		wrong := ""
		script := rapid.SliceOfN(rapid.Custom(drawTurn), 1, 12).Draw(rt, "script")
		synctest.Test(t, func(t *testing.T) {
			m := newMachine()
			all := map[config.VSKey]*Wish{}
			failing := false
			// before is what was wished before the pass, all is what is wished now. What both
			// have must work at every step.
			before := map[config.VSKey]*Wish{}
			m.after = func() {
				if failing || wrong != "" {
					return
				}
				open := guardText(m.guard)
				for key, w := range all {
					old := before[key]
					if old == nil || !w.Announce || !old.Announce || w.Device == "" {
						continue
					}
					for _, a := range w.Addresses {
						if m.addrs[a].Announce || old.Device == "" || !has(old.Addresses, a) {
							continue
						}
						wrong = fmt.Sprintf("%s: %s is off its device though it was and is wanted", m.steps[len(m.steps)-1], a)
					}
				}
				for _, w := range all {
					if !w.Announce || w.Device == "" {
						continue
					}
					for _, a := range w.Addresses {
						if !m.addrs[a].Announce || !fresh(before, a) {
							continue
						}
						for _, s := range w.Services {
							if s.Addr == a && open[a.String()] && !open[s.String()] {
								wrong = fmt.Sprintf("%s: %s is on its device and %s is refused", m.steps, a, s)
							}
						}
						for _, mapped := range w.Mapped {
							if mapped.Addr.Addr() == a && (m.marks == nil || m.marks.Marks[mapped] == 0) {
								wrong = fmt.Sprintf("%s: %s is on its device without its mark", m.steps[len(m.steps)-1], a)
							}
						}
					}
				}
				// What is to go is guarded until its address is gone.
				for key, old := range before {
					if w := all[key]; w != nil && w.Guard && w.Announce || !old.Guard || !old.Announce || old.Device == "" {
						continue
					}
					for _, a := range old.Addresses {
						if m.addrs[a].Announce && !announcedBy(all, a) && !open[a.String()] {
							wrong = fmt.Sprintf("%s: %s is on its device and its guard is gone", m.steps[len(m.steps)-1], a)
						}
					}
				}
			}
			r := newRig(m, nil)
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() { defer close(over); r.Run(ctx) }()
			defer func() { cancel(); <-over }()
			nft := &config.NFTables{Table: "keepalived_ipvs"}
			mend := func() {
				m.with(func() { m.openErr, m.syncErr, m.guardErr, m.marksErr = nil, nil, nil, nil; clear(m.bad) })
				<-time.After(2 * time.Minute)
				synctest.Wait()
				m.with(func() { failing = false })
			}
			for _, turn := range script {
				m.with(func() {
					before = map[config.VSKey]*Wish{}
					maps.Copy(before, all)
					for key, w := range turn.changed {
						if all[key] = w; w == nil {
							delete(all, key)
						}
					}
					switch turn.fault {
					case 0:
						m.openErr = errTest
					case 1:
						m.syncErr = errTest
					case 2:
						m.guardErr = errTest
					case 3:
						m.marksErr = errTest
					case 4:
						m.bad[addr(1)] = errTest
					}
					failing = failing || turn.fault < 5
				})
				r.turn++
				r.Wish(Wishes{Turn: r.turn, Changed: turn.changed, NFTables: nft})
				if turn.wait || !failing {
					synctest.Wait()
				}
				if failing && turn.mend {
					mend()
				}
			}
			mend()
			places, guard, marks := modelWant(all)
			fail := func(format string, args ...any) {
				if wrong == "" {
					wrong = fmt.Sprintf(format, args...)
				}
			}
			if !equalMaps(places, m.addrs) {
				fail("addresses %v, want %v", m.addrs, places)
			}
			if got := guardText(m.guard); !equalMaps(guard, got) {
				fail("guard %v, want %v", got, guard)
			}
			if m.marks != nil && !equalMaps(m.marks.Marks, marks) || m.marks == nil && len(marks) > 0 {
				fail("marks %v, want %v", m.marks, marks)
			}
			g := r.goal
			if len(all) == 0 && (len(g.claims)+len(g.services)+len(g.marks)+len(g.torn)+g.guarded != 0 || m.opened != 0) {
				fail("nothing is wished, and there is still %+v with %d open", g, m.opened)
			}
			if got := r.last(); got.Turn != r.turn || got.Missing != nil || got.Announced != count(places) {
				fail("report %+v", got)
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

func equalMaps[K, V comparable](a, b map[K]V) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

func has(list []netip.Addr, a netip.Addr) bool {
	return slices.Contains(list, a)
}

// fresh says whether nobody announced an address.
func fresh(all map[config.VSKey]*Wish, a netip.Addr) bool { return !announcedBy(all, a) }

func announcedBy(all map[config.VSKey]*Wish, a netip.Addr) bool {
	for _, w := range all {
		if w.Announce && w.Device != "" && has(w.Addresses, a) {
			return true
		}
	}
	return false
}

func count(places map[netip.Addr]Place) (n int) {
	for _, p := range places {
		if p.Announce {
			n++
		}
	}
	return n
}
