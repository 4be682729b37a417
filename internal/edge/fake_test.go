package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// machineFake is a machine whose every write is noted.
type machineFake struct {
	mu    sync.Mutex
	addrs map[netip.Addr]Place
	guard *Guard
	marks *Marking
	// steps are the writes in order, in words.
	steps []string
	// after is called after each write, with the machine held.
	after func()
	// failures: what fails now, with what.
	openErr, syncErr, guardErr, marksErr error
	bad                                  map[netip.Addr]error
	opened                               int // handles that are open
	rings                                chan struct{}
	watchErr                             error
}

func newMachine() *machineFake {
	return &machineFake{addrs: map[netip.Addr]Place{}, bad: map[netip.Addr]error{}, rings: make(chan struct{}, 10)}
}

func (m *machineFake) step(format string, args ...any) {
	m.steps = append(m.steps, fmt.Sprintf(format, args...))
	if m.after != nil {
		m.after()
	}
}

// taken returns the steps since it was last called.
func (m *machineFake) taken() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := strings.Join(m.steps, "; ")
	m.steps = nil
	return out
}

func (m *machineFake) with(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

type addressesFake struct{ *machineFake }

func (f addressesFake) Sync(want map[netip.Addr]Place) (int, map[netip.Addr]error, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.syncErr != nil {
		f.step("sync fails")
		return 0, nil, f.syncErr
	}
	repaired := 0
	missing := map[netip.Addr]error{}
	for a, p := range f.addrs {
		if want[a] != p && f.bad[a] == nil {
			delete(f.addrs, a)
		}
	}
	for a, p := range want {
		if f.bad[a] != nil {
			missing[a] = f.bad[a]
			continue
		}
		f.addrs[a] = p
	}
	for a := range f.addrs {
		if _, ok := want[a]; !ok {
			missing[a] = f.bad[a]
		}
	}
	f.step("sync %d", len(want))
	return repaired, missing, nil
}

func (f addressesFake) Change(want map[netip.Addr]Place) (map[netip.Addr]error, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.syncErr != nil {
		f.step("change fails")
		return nil, f.syncErr
	}
	missing := map[netip.Addr]error{}
	var text []string
	for _, a := range slices.SortedFunc(maps.Keys(want), netip.Addr.Compare) {
		p := want[a]
		text = append(text, fmt.Sprint(a, " ", placeText(p)))
		switch {
		case f.bad[a] != nil:
			missing[a] = f.bad[a]
		case p == Place{}:
			delete(f.addrs, a)
		default:
			f.addrs[a] = p
		}
	}
	f.step("change %s", strings.Join(text, ", "))
	return missing, nil
}

func placeText(p Place) string {
	switch {
	case p.Announce:
		return "on " + p.Device
	case p.Local:
		return "local"
	case p.Device != "":
		return "off " + p.Device
	}
	return "gone"
}

func (f addressesFake) Watch(ctx context.Context, changed func()) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.rings:
			if f.watchErr != nil {
				return f.watchErr
			}
			changed()
		}
	}
}

func (f addressesFake) Close() error {
	f.with(func() { f.opened-- })
	return nil
}

type filterFake struct{ *machineFake }

func (f filterFake) Guard(want *Guard) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.guardErr != nil {
		f.step("guard fails")
		return 0, f.guardErr
	}
	f.guard = want
	if want == nil {
		f.step("guard off")
	} else {
		f.step("guard %d/%d", len(want.Addresses), len(want.Services))
	}
	return 0, nil
}

func (f filterFake) Marks(want *Marking) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.marksErr != nil {
		f.step("marks fail")
		return 0, f.marksErr
	}
	f.marks = want
	if want == nil {
		f.step("marks off")
	} else {
		f.step("marks %d", len(want.Marks))
	}
	return 0, nil
}

func (f filterFake) Close() error {
	f.with(func() { f.opened-- })
	return nil
}

// rig is a Keeper at work on a fake machine.
type rig struct {
	*Keeper
	m       *machineFake
	mu      sync.Mutex
	reports []Report
	log     strings.Builder
	turn    uint64
}

type lockedWriter struct{ r *rig }

func (w lockedWriter) Write(b []byte) (int, error) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.r.log.Write(b)
}

func newRig(m *machineFake, change func(*Options)) *rig {
	r := &rig{m: m}
	open := func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.openErr == nil {
			m.opened++
		}
		return m.openErr
	}
	o := Options{
		Log:       slog.New(slog.NewTextHandler(lockedWriter{r}, nil)),
		Addresses: func() (Addresses, error) { return addressesFake{m}, open() },
		Filter:    func() (Filter, error) { return filterFake{m}, open() },
		Tell: func(rep Report) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reports = append(r.reports, rep)
		},
		Begin: func() error { m.with(func() { m.step("begin") }); return nil },
		End:   func() error { m.with(func() { m.step("end") }); return nil },
	}
	if change != nil {
		change(&o)
	}
	r.Keeper = New(o)
	return r
}

// run starts the Keeper until the test ends.
func (r *rig) run(t *testing.T) *rig {
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-over
		if r.m.opened != 0 {
			t.Errorf("%d handles are open at the end", r.m.opened)
		}
	})
	return r
}

func (r *rig) wish(w map[config.VSKey]*Wish) {
	r.turn++
	r.Wish(Wishes{Turn: r.turn, Changed: w})
}

// last is the newest report.
func (r *rig) last() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.reports) == 0 {
		return Report{}
	}
	return r.reports[len(r.reports)-1]
}

// logged counts the lines of an event.
func (r *rig) logged(kind string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.log.String(), "event="+kind+" ")
}

func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}) }

func vs(n int) config.VSKey {
	return config.VSKey{Protocol: config.TCP, Addr: netip.AddrPortFrom(addr(n), 80)}
}

func service(n, port int) ipvs.ServiceKey {
	return ipvs.ServiceKey{Family: ipvs.INET, Protocol: ipvs.TCP, Addr: addr(n), Port: uint16(port)}
}

// announced is the wish of a virtual server at its best.
func announced(n int) *Wish {
	return &Wish{Device: "sluice0", Addresses: []netip.Addr{addr(n)}, Announce: true, Local: true, Guard: true, Services: []ipvs.ServiceKey{service(n, 80)}}
}

func but(w *Wish, change func(*Wish)) *Wish {
	c := *w
	change(&c)
	return &c
}

var errTest = errors.New("test trouble")

const short = 10 * time.Millisecond
