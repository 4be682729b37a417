package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// edging is what of the machine goes with the services, as far as the loop goes: what
// was handed over, and what waits until an address is gone.
type edging struct {
	// on: somebody takes wishes. heard: the table was reached, so that there are any.
	on, heard bool
	// turn is that of the last wishes, report the newest answer.
	turn   uint64
	report edge.Report
	// pending: not all that is wished is reported, as it was published. anew: what fails is
	// to be tried again.
	pending, anew bool
	// via is why check_via does not work, nil if it does.
	via *edge.Failure
	// nftables is what was handed over last.
	nftables *config.NFTables
	// dirty are the virtual servers whose wish may be another one; one that waits for
	// the table stays here.
	dirty map[*server]bool
	// waiting are those whose addresses are to be gone, and of which something may wait for
	// that.
	waiting map[*server]bool
	// departing lose services by the reload that is under way, ended lost all.
	departing []departing
	ended     []config.VSKey
	// ghosts are what is left in the table of virtual servers that lost a service.
	ghosts map[config.VSKey]*ghost
	// withdrawn: the process is about to end, and no address is announced any more.
	withdrawn bool
	// reported is done when all that was handed over was worked on.
	reported []func()
}

// vipState is what one virtual server has of the machine.
type vipState struct {
	// addresses are those of its configuration.
	addresses []netip.Addr
	// wish is the last that was handed over, nil for none.
	wish *edge.Wish
	// before: an earlier process may have its addresses on their device.
	before bool
	gone   gone
	// lost: the table is to hear of the lost quorum when the addresses are gone.
	lost bool
	// stays: its services are withheld from the start and stay until they are.
	stays bool
}

// gone is when addresses that were withdrawn count as gone: at, which is brought
// forward by the report on a turn.
type gone struct {
	turn uint64
	at   time.Time
}

// unreported is how long a report is waited for: a machine whose addresses cannot be
// written must not keep a director from draining.
const unreported = 5 * time.Second

func (v *vipState) announced() bool { return v.before || v.wish != nil && v.wish.Announce }

// addressed reports whether clients may still be led here, so that nothing of it may
// drain yet.
func (v *vipState) addressed(now time.Time) bool {
	return v != nil && (v.announced() || now.Before(v.gone.at))
}

// take notes the wish that is about to be handed over, and reports whether it is
// another than the last.
func (v *vipState) take(w *edge.Wish, e *Engine, now time.Time) bool {
	if sameWish(v.wish, w) && !v.before {
		return false
	}
	switch announce := w != nil && w.Announce; {
	case announce:
		v.gone = gone{}
	case v.announced():
		v.gone = gone{e.edge.turn + 1, now.Add(e.config.Global.VIPDelay + unreported)}
	}
	v.wish, v.before = w, false
	return true
}

func sameWish(a, b *edge.Wish) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Device == b.Device && a.Announce == b.Announce && a.Local == b.Local && a.Guard == b.Guard && a.Mark == b.Mark &&
		slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.Services, b.Services) && slices.Equal(a.Mapped, b.Mapped)
}

func newEdging(opts *Options) edging {
	return edging{on: opts.Edge != nil && !opts.Observe, dirty: map[*server]bool{}, waiting: map[*server]bool{}, ghosts: map[config.VSKey]*ghost{}}
}

// featured reports whether anything of the machine goes with a virtual server.
func (e *Engine) featured(vc *config.VirtualServer) bool {
	return e.edge.on && (vc.VIP.Device != "" || vc.VIP.Guard || vc.Mark != 0)
}

// dress gives a virtual server what the one before it had of the machine.
func (e *Engine) dress(vs, was *server) {
	if was != nil {
		vs.vip, vs.withheld = was.vip, was.withheld
	}
	vs.told = marked(vs.Config)
	if !e.featured(vs.Config) {
		if vs.vip != nil {
			vs.vip.lost = false
			e.edge.dirty[vs] = true
		}
		return
	}
	if vs.vip == nil {
		vs.vip = &vipState{}
	}
	vs.vip.addresses = vs.Config.Addresses()
	vs.vip.lost = vs.vip.lost && vs.Config.VIP.Follow == config.VIPQuorum && !vs.QuorumUp()
	e.edge.dirty[vs] = true
}

// redress has the wish of a virtual server looked at.
func (e *Engine) redress(vs *server) {
	if vs.vip != nil {
		e.edge.dirty[vs] = true
	}
}

// undress forgets a virtual server that another one takes the place of, or nobody.
func (e *Engine) undress(vs *server) {
	delete(e.edge.dirty, vs)
	delete(e.edge.waiting, vs)
}

// handOver hands the wishes that changed in this turn to who keeps the machine.
func (e *Engine) handOver(now time.Time) {
	x := &e.edge
	if !x.on || !x.heard {
		return
	}
	moved := e.applier.Moved()
	for _, k := range moved {
		for _, vs := range e.owners[k] {
			e.redress(vs)
		}
	}
	changed := map[config.VSKey]*edge.Wish{}
	for _, k := range x.ended {
		if e.byKey[k] == nil {
			changed[k] = nil
		}
	}
	x.ended = nil
	for vs := range x.dirty {
		var w *edge.Wish
		final := true
		if e.featured(vs.Config) {
			w, final = e.wish(vs)
		}
		if final {
			delete(x.dirty, vs)
		}
		if vs.vip.take(w, e, now) {
			changed[vs.Config.Key] = w
			e.markHead(vs)
			if !vs.vip.announced() && vs.vip.addressed(now) {
				x.waiting[vs] = true // for the report, whatever is asked of it meanwhile
			}
		}
	}
	e.haunt(changed, now)
	first := x.turn == 0 && e.opts.EdgeLeft
	anew := x.anew && len(x.report.Failures) > 0
	x.anew = false
	if nft := e.config.Global.NFTables; len(changed) == 0 && sameNFTables(nft, x.nftables) && !first && !anew {
		return
	}
	x.turn, x.nftables = x.turn+1, e.config.Global.NFTables
	e.headTouched = true
	e.opts.Edge(edge.Wishes{Turn: x.turn, Changed: changed, NFTables: x.nftables, Anew: anew})
}

func sameNFTables(a, b *config.NFTables) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Pos = y.Pos
	return x == y
}

// wish is what a virtual server wants of the machine. It is not final while its services
// are still to be written before its addresses are announced.
func (e *Engine) wish(vs *server) (w *edge.Wish, final bool) {
	vc, was := vs.Config, vs.vip.wish
	w = &edge.Wish{Device: vc.VIP.Device, Addresses: vs.vip.addresses, Mark: vc.Mark}
	want := vc.VIP.Device != "" && len(vs.vip.addresses) > 0 && !e.edge.withdrawn && !e.passive.on && !vs.withheld &&
		(vc.VIP.Follow == config.VIPAlways || vs.QuorumUp())
	w.Announce, final = want, true
	var open [2]bool // by family
	there := false
	kernel := e.applier.Lookup(vc.Key)
	for i := range kernel.Services {
		k := kernel.Services[i].ServiceKey
		has := e.applier.Has(k)
		there = there || has
		if e.open(k) {
			if vc.Mark == 0 {
				w.Services = append(w.Services, k)
			}
			open[familyIndex(k.Family == ipvs.INET6)] = true
		}
		// What is announced stays so while a weight is still to be written.
		if written := e.applier.Serving(k) || was != nil && was.Announce && has && e.applier.Claimed(k); !written {
			w.Announce, final = false, final && !want
		}
	}
	w.Local = there && vc.VIP.Device != ""
	w.Guard = vc.VIP.Guard && (there || !vs.withheld)
	for _, k := range apply.Carried(vc) {
		if open[familyIndex(k.Family == ipvs.INET6)] {
			w.Mapped = append(w.Mapped, edge.Mapped{Protocol: k.Protocol, Addr: netip.AddrPortFrom(k.Addr, k.Port)})
			// The guard sees addresses and ports, and no mark.
			w.Services = append(w.Services, k)
		}
	}
	return w, final
}

// open reports whether the guard lets packets in to a service that is in the table. Of
// TCP what leaves takes no new connections; of the others nobody can tell new from old.
func (e *Engine) open(k ipvs.ServiceKey) bool {
	return e.applier.Has(k) && (k.Protocol != ipvs.TCP || e.applier.Claimed(k) || e.applier.Staying(k))
}

func familyIndex(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// owes reports whether the machine is not known to be as it is wished: something waits for
// the table, or was not reported yet.
func (x *edging) owes() bool {
	return x.heard && (x.report.Turn < x.turn || len(x.dirty) > 0)
}

// noteOwed has it published when that changes.
func (e *Engine) noteOwed() {
	if x := &e.edge; x.owes() != x.pending {
		x.pending = !x.pending
		e.headTouched = true
	}
}

type viaEvent struct{ failure *edge.Failure }

// CheckVia tells the engine why check_via does not work, nil if it does. Anyone may call
// it.
func (e *Engine) CheckVia(failure *edge.Failure) { e.inbox.send(viaEvent{failure}) }

func (ev viaEvent) handle(e *Engine) {
	if was := e.edge.via; (was == nil) != (ev.failure == nil) || was != nil && *was != *ev.failure {
		e.edge.via, e.headTouched = ev.failure, true
	}
}

type edgeEvent struct{ edge.Report }

// Edge tells the engine how the machine is. Anyone may call it.
func (e *Engine) Edge(r edge.Report) { e.inbox.send(edgeEvent{r}) }

func (ev edgeEvent) handle(e *Engine) {
	x := &e.edge
	if was := x.report; ev.Announced != was.Announced || ev.Repaired != was.Repaired || !maps.Equal(ev.Missing, was.Missing) || !slices.Equal(ev.Failures, was.Failures) {
		e.headTouched = true
	}
	if x.report = ev.Report; ev.Turn < x.turn {
		x.report.Failures = slices.Clone(ev.Failures)
	}
	now := time.Now()
	sooner := func(g *gone) {
		if at := now.Add(e.config.Global.VIPDelay); g.turn <= ev.Turn && at.Before(g.at) {
			g.at = at
		}
	}
	for vs := range x.waiting {
		sooner(&vs.vip.gone)
	}
	for _, g := range x.ghosts {
		sooner(&g.gone)
	}
	e.tellReported()
}

func (e *Engine) tellReported() {
	if x := &e.edge; x.report.Turn >= x.turn {
		for _, f := range x.reported {
			f()
		}
		x.reported = nil
	}
}

// errUnreported says that nobody knows whether the addresses are gone.
var errUnreported = errors.New("the addresses were not reported to be gone in time")

// Withdraw takes all addresses off their devices, for a process that is about to end,
// and returns when that was reported, after five seconds at the latest. The table is not
// touched. There is no way back.
func (e *Engine) Withdraw(ctx context.Context) error {
	done := make(chan struct{})
	if err := e.call(ctx, func(e *Engine) {
		e.edge.withdrawn = true
		for _, vs := range e.vss {
			e.redress(vs)
		}
		e.edge.reported = append(e.edge.reported, func() { close(done) })
		e.after = append(e.after, e.tellReported)
	}); err != nil {
		return err
	}
	timer := time.NewTimer(unreported)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return errUnreported
	case <-ctx.Done():
		return fmt.Errorf("withdraw: %w", context.Cause(ctx))
	}
}

// handNothing ends all wishes, once the services are removed at a stop.
func (e *Engine) handNothing() {
	x := &e.edge
	if !x.on || x.turn == 0 {
		return
	}
	changed := map[config.VSKey]*edge.Wish{}
	for k := range x.ghosts {
		changed[k] = nil
	}
	for _, vs := range e.vss {
		if vs.vip != nil && vs.vip.wish != nil {
			changed[vs.Config.Key] = nil
			vs.vip.wish = nil
		}
	}
	clear(x.ghosts)
	x.turn++
	e.opts.Edge(edge.Wishes{Turn: x.turn, Changed: changed})
}
