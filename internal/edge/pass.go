package edge

import (
	"errors"
	"maps"
	"net/netip"

	"github.com/sluice-lb/sluice/internal/event"
)

// The keywords that failures are told under.
const (
	featureVIP   = "vip_device"
	featureGuard = "vip_guard"
	featureMarks = "nftables_ipvs"
)

// scope is what a pass goes over though nothing of it is known to be wrong.
type scope struct{ addresses, filter, retry bool }

// pass is one way through: what opens, addresses, what closes.
func (k *Keeper) pass(s scope) {
	anew := k.take()
	if !k.known {
		return // what is there is in use, for all that is known
	}
	if anew && k.failing() {
		k.retry.Stop()
		k.retrying, k.pause = false, firstPause
		s = scope{addresses: true, filter: true}
	}
	k.begin()
	k.open(s)
	if k.move(s) {
		k.close()
	}
	k.finish()
	k.report()
	k.again(s)
	k.release()
}

// begin notes that there will be something to remove.
func (k *Keeper) begin() {
	if !k.begun && len(k.goal.claims) > 0 {
		k.begun = k.noted(k.Begin)
	}
}

// noted calls Begin or End. Service does not depend on either.
func (k *Keeper) noted(do func() error) bool {
	if do == nil {
		return true
	}
	err := do()
	if err != nil && !k.unnoted {
		k.Log.Warn("Cannot note whether there are virtual addresses or a guard of ours; what a kill leaves may stay", event.Key, event.VIPUnnoted, "err", err)
	}
	k.unnoted = err != nil
	return err == nil
}

// waits says whether a feature has failed and its retry is not due.
func (k *Keeper) waits(feature string, s scope) bool {
	return k.broken[feature] != nil && k.retrying && !s.filter
}

// open makes the guard and the marks what they were and what they should be, at once,
// and leaves owed what is to be closed.
func (k *Keeper) open(s scope) {
	g := k.goal
	again := s.filter || k.leftover
	k.guardOwed = k.guardOwed || g.reguard
	if (k.guardOwed || again) && !k.waits(featureGuard, s) {
		want, failed := g.guard(), k.broken[featureGuard] != nil
		sum := g.opening(want, k.guarded)
		switch {
		case sum == nil: // what is left of it, if anything, is closed
			delete(k.broken, featureGuard)
		case again || failed || !sum.equal(k.guarded):
			k.writeGuard(sum)
		}
		k.guardOwed = k.broken[featureGuard] != nil || !sum.equal(want) || want == nil && (failed || k.leftover)
	}
	k.marksOwed = k.marksOwed || g.remark
	if (k.marksOwed || again) && !k.waits(featureMarks, s) {
		want, failed := g.marking(k.nftables), k.broken[featureMarks] != nil
		sum := want.both(k.marking)
		switch {
		case sum == nil:
			delete(k.broken, featureMarks)
		case again || failed || !sum.equal(k.marking):
			k.writeMarks(sum)
		}
		k.marksOwed = k.broken[featureMarks] != nil || !sum.equal(want) || want == nil && (failed || k.leftover)
	}
	g.reguard, g.remark = false, false
}

// close makes the guard and the marks what they should be.
func (k *Keeper) close() {
	if k.guardOwed && k.broken[featureGuard] == nil {
		k.guardOwed = !k.writeGuard(k.goal.guard())
	}
	if k.marksOwed && k.broken[featureMarks] == nil {
		k.marksOwed = !k.writeMarks(k.goal.marking(k.nftables))
	}
}

func (k *Keeper) writeGuard(want *Guard) bool {
	ok := k.write(featureGuard, want == nil, want == nil && k.guarded == nil && !k.leftover, func(f Filter) (int, error) { return f.Guard(want) })
	if ok {
		k.guarded = want
	}
	return ok
}

func (k *Keeper) writeMarks(want *Marking) bool {
	ok := k.write(featureMarks, want == nil, want == nil && k.marking == nil && !k.leftover, func(f Filter) (int, error) { return f.Marks(want) })
	if ok {
		k.marking = want
	}
	return ok
}

// write has the filter do something. nothing: it is a table that should not be; idle: and
// never was, so that it need not be opened for that.
func (k *Keeper) write(feature string, nothing, idle bool, do func(Filter) (int, error)) bool {
	delete(k.broken, feature)
	if k.filter == nil {
		if idle {
			return true
		}
		f, err := k.Filter()
		if err != nil {
			return k.broke(feature, nothing, err)
		}
		k.filter = f
	}
	n, err := do(k.filter)
	if n > 0 {
		k.repaired += uint64(n)
		k.Log.Warn("Somebody else has changed our tables of nftables, they are put right", event.Key, event.GuardRepaired, "feature", feature, "repaired", n)
	}
	if err != nil {
		return k.broke(feature, nothing, err)
	}
	return true
}

// broke notes a failure. A machine that can have no table has none that has to go.
func (k *Keeper) broke(feature string, nothing bool, err error) bool {
	if nothing && errors.Is(err, errors.ErrUnsupported) {
		return true
	}
	k.broken[feature] = err
	return false
}

// finish notes that there is nothing left, if so.
func (k *Keeper) finish() {
	if k.failing() || k.guardOwed || k.marksOwed {
		return
	}
	k.leftover = false
	if len(k.goal.claims) > 0 || len(k.placed) > 0 || k.guarded != nil || k.marking != nil {
		return
	}
	k.shut()
	if k.begun && k.noted(k.End) {
		k.begun = false
	}
}

// failing says whether something is to be tried again.
func (k *Keeper) failing() bool { return len(k.broken)+len(k.trouble) > 0 }

// again sets the time of the next try, if one is needed.
func (k *Keeper) again(s scope) {
	switch {
	case !k.failing():
		k.retry.Stop()
		k.retrying, k.pause = false, firstPause
	case !k.retrying:
		if s.retry {
			k.pause = min(2*k.pause, longestPause)
		}
		k.retry.Reset(k.pause)
		k.retrying = true
	}
}

// move puts addresses where they belong. It says whether all that should be gone is.
func (k *Keeper) move(s scope) bool {
	delta := k.moves()
	full := s.addresses || !k.synced || k.leftover
	switch {
	case k.addresses == nil && !k.leftover && len(k.placed) == 0 && k.broken[featureVIP] == nil:
		return true
	case len(delta) == 0 && !full:
		return k.gone()
	case !k.synced && k.retrying && !s.addresses:
		return false
	}
	delete(k.broken, featureVIP)
	if k.addresses == nil {
		a, err := k.Addresses()
		if err != nil {
			k.broken[featureVIP] = err
			return false
		}
		k.addresses = a
		k.watch()
	}
	var missing map[netip.Addr]error
	var err error
	if full {
		var n int
		n, missing, err = k.addresses.Sync(k.placed)
		if n > 0 {
			k.repaired += uint64(n)
			k.Log.Warn("Somebody else has changed virtual addresses or their device, they are put right", event.Key, event.VIPRepaired, "repaired", n)
		}
	} else {
		missing, err = k.addresses.Change(delta)
	}
	if err != nil {
		k.broken[featureVIP] = err
		if missing == nil { // nothing could be read, and nothing was done
			k.synced = false
			return false
		}
	}
	if full {
		k.synced = true
		clear(k.trouble)
	}
	for a := range delta {
		delete(k.trouble, a)
	}
	maps.Copy(k.trouble, missing)
	k.tally(full, delta, missing)
	return k.gone()
}

// moves are the addresses whose place is another one than Addresses was told.
func (k *Keeper) moves() map[netip.Addr]Place {
	delta := map[netip.Addr]Place{}
	look := func(a netip.Addr) {
		p := k.goal.place(a)
		if p.Announce && !k.placed[a].Announce && k.broken[featureMarks] != nil && k.goal.mapped(a) {
			p.Announce = false
			k.held[a] = true
		} else {
			delete(k.held, a)
		}
		if p == k.placed[a] {
			return
		}
		delta[a] = p
		if k.placed[a] = p; p == (Place{}) {
			delete(k.placed, a)
		}
	}
	for a := range k.goal.touched {
		look(a)
	}
	for a := range k.held {
		look(a)
	}
	clear(k.goal.touched)
	return delta
}

// gone says whether every address that should not be on a device is off it.
func (k *Keeper) gone() bool {
	if !k.synced {
		return false
	}
	for a := range k.trouble {
		if !k.placed[a].Announce {
			return false
		}
	}
	return true
}
