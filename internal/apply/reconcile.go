package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// mode is what is done about differences between the mirror and the table.
type mode int

const (
	// modeRepair logs them and takes the table over, so that Flush puts it back.
	modeRepair mode = iota
	// modeReport logs them and leaves mirror and table as they are.
	modeReport
	// modeQuiet takes the table over in silence: they are our own doing.
	modeQuiet
)

func (a *Applier) mode() mode {
	if a.reportOnly {
		return modeReport
	}
	return modeRepair
}

// ReportOnly says whether Reconcile leaves what somebody else changed as it is.
func (a *Applier) ReportOnly(yes bool) { a.reportOnly = yes }

// Repaired returns how many differences were put back.
func (a *Applier) Repaired() uint64 { return a.repaired }

// staleSet holds the services whose mirror proved wrong, and whether that may be our
// own doing.
type staleSet map[ipvs.ServiceKey]bool

func (s staleSet) has(k ipvs.ServiceKey) bool {
	_, ok := s[k]
	return ok
}

// add takes up a service if a refusal says that its mirror is wrong.
func (s staleSet) add(k ipvs.ServiceKey, err error) {
	if isStale(err) {
		s[k] = s[k] || errors.Is(err, ipvs.ErrUnknownResult)
	}
}

// isStale reports whether a refusal means that the mirror is wrong: the thing exists
// already, or does not exist, or nobody knows whether it was done.
func isStale(err error) bool {
	return errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, ipvs.ErrUnknownResult)
}

// reading is what the table holds of one service: nil for one that does not exist.
type reading struct {
	held  *actual
	infos map[ipvs.DestinationKey]ipvs.DestinationInfo
}

// ours are the services that are claimed or leaving.
func (a *Applier) ours() []ipvs.ServiceKey {
	keys := make([]ipvs.ServiceKey, 0, len(a.mirror)+len(a.owners))
	for _, c := range a.vss {
		for _, s := range c.vs.Services {
			if a.owners[s.ServiceKey][0] == c {
				keys = append(keys, s.ServiceKey)
			}
		}
	}
	claimed := len(keys)
	for k := range a.mirror {
		if len(a.owners[k]) == 0 {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys[claimed:], compareServices)
	return keys
}

func compareServices(x, y ipvs.ServiceKey) int { return strings.Compare(x.String(), y.String()) }

// read reads services whole. Those that could not be read are not in the result;
// the error says why. An empty list of destinations does not tell a service that
// has none from one that does not exist, so the services are read as well.
func (a *Applier) read(ctx context.Context, keys []ipvs.ServiceKey) (map[ipvs.ServiceKey]reading, error) {
	all, err := a.conn.Services(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the IPVS table: %w", err)
	}
	there := make(map[ipvs.ServiceKey]ipvs.Service, len(all))
	for _, s := range all {
		there[s.ServiceKey] = s.Service
	}
	found := make(map[ipvs.ServiceKey]reading, len(keys))
	var errs []error
	for _, k := range keys {
		s, ok := there[k]
		if !ok {
			found[k] = reading{}
			continue
		}
		infos, err := a.destinations(ctx, k)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r := reading{held: newActual(s), infos: make(map[ipvs.DestinationKey]ipvs.DestinationInfo, len(infos))}
		for _, d := range infos {
			r.held.put(d.Destination)
			r.infos[d.DestinationKey] = d
		}
		found[k] = r
	}
	return found, errors.Join(errs...)
}

func (a *Applier) destinations(ctx context.Context, k ipvs.ServiceKey) ([]ipvs.DestinationInfo, error) {
	ds, err := a.conn.Destinations(ctx, k)
	if err != nil {
		return nil, fmt.Errorf("read the destinations of %s: %w", k, err)
	}
	return ds, nil
}

// Reconcile reads all services that are ours, logs what somebody else changed in
// them, writes what is due, the repair included, and then looks at the drain list by
// the same read, as Tick does. It writes nothing when nothing changed, and a service
// that cannot be read whole is left as it is believed to be.
func (a *Applier) Reconcile(ctx context.Context, now time.Time) error {
	if a.conn == nil {
		return ErrNoTable
	}
	parked, ours := a.drainList(), a.ours()
	found, err := a.read(ctx, ours)
	errs := []error{err}
	for _, k := range ours {
		if r, ok := found[k]; ok {
			a.compare(k, r.held, now, a.mode())
		}
	}
	if a.Pending() {
		errs = append(errs, a.Flush(ctx, now))
	}
	// What was not at weight 0 when it was read may have been given a connection
	// since then.
	seen := map[parkedKey]ipvs.DestinationInfo{}
	parked = slices.DeleteFunc(parked, func(k parkedKey) bool {
		d, ok := found[k.service].infos[k.dest]
		if ok && d.Weight == 0 {
			seen[k] = d
		}
		return !ok || d.Weight != 0
	})
	return errors.Join(append(errs, a.endDrains(ctx, parked, seen, now))...)
}

// resync reads services again after the table proved to differ from the mirror.
func (a *Applier) resync(ctx context.Context, stale staleSet, now time.Time, m mode) error {
	if len(stale) == 0 {
		return nil
	}
	keys := make([]ipvs.ServiceKey, 0, len(stale))
	for k := range stale {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareServices)
	found, err := a.read(ctx, keys)
	for _, k := range keys {
		r, ok := found[k]
		switch {
		case !ok:
			a.dirty.add(k)
		case stale[k]:
			a.compare(k, r.held, now, modeQuiet)
		default:
			a.compare(k, r.held, now, m)
		}
	}
	return err
}

// compare takes in what the table holds of a service of ours.
func (a *Applier) compare(k ipvs.ServiceKey, held *actual, now time.Time, m mode) {
	mirror := a.mirror[k]
	want, ready := a.target(k)
	switch {
	case mirror == nil && held == nil:
		return
	case mirror == nil:
		a.tellAdopted(k, held)
	case ready && m != modeQuiet:
		a.tell(k, differences(mirror, held, want), now, m)
	}
	a.dropGone(k, held)
	switch {
	case mirror == nil, m != modeReport:
		if !same(a.mirror[k], held) {
			a.take(k, held)
		}
	case held == nil && want == nil:
		a.forget(k)
	}
}

// dropGone takes destinations off the drain list that are not in the table any
// more: there is nothing to put back, whoever removed them.
func (a *Applier) dropGone(k ipvs.ServiceKey, held *actual) {
	for pk, d := range a.parked {
		if pk.service != k || held != nil && held.has(pk.dest) {
			continue
		}
		a.log.Info("Somebody else removed a draining destination", "service", k.String(), "destination", pk.dest.String(), "why", d.why)
		a.mirror[k].drop(pk.dest)
		delete(a.parked, pk)
		delete(a.why, pk)
		delete(a.limits, pk)
	}
}

// take makes the mirror of one service what the table holds.
func (a *Applier) take(k ipvs.ServiceKey, held *actual) {
	a.dirty.add(k)
	if held == nil {
		a.forget(k)
		return
	}
	was := a.mirror[k]
	if was != nil {
		held.timeout, held.atOnce = was.timeout, was.atOnce
	}
	for _, dk := range held.order {
		pk := parkedKey{k, dk}
		if was == nil || !was.has(dk) {
			a.why[pk] = whyUnknown
		}
		if d := a.parked[pk]; d != nil && held.dests[dk].Weight > 0 {
			d.read = false // it may have been given connections
		}
	}
	a.mirror[k] = held
}
