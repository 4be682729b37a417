package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
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

// reading is what the table holds of one service.
type reading struct {
	exists  bool
	service ipvs.Service
	// infos are valid until the next service is read.
	infos []ipvs.DestinationInfo
}

// held makes what was read a mirror; nil for a service that does not exist.
func (r reading) held() *actual {
	if !r.exists {
		return nil
	}
	m := newActual(r.service, len(r.infos))
	for i := range r.infos {
		m.put(r.infos[i].Destination)
	}
	return m
}

// ours are the services that are claimed or leaving.
func (a *Applier) ours() []ipvs.ServiceKey {
	keys := make([]ipvs.ServiceKey, 0, len(a.mirror)+len(a.owners))
	for _, c := range a.vss {
		for _, s := range c.vs.Services {
			if cs := a.owners[s.ServiceKey]; len(cs) > 0 && cs[0] == c || len(cs) == 0 && a.away[s.ServiceKey] == c {
				keys = append(keys, s.ServiceKey)
			}
		}
	}
	claimed := len(keys)
	for k := range a.mirror {
		if len(a.owners[k]) == 0 && a.away[k] == nil {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys[claimed:], compareServices)
	return keys
}

func compareServices(x, y ipvs.ServiceKey) int {
	return cmp.Or(x.Addr.Compare(y.Addr), cmp.Compare(x.Port, y.Port), cmp.Compare(x.Protocol, y.Protocol),
		cmp.Compare(x.FWMark, y.FWMark), cmp.Compare(x.Family, y.Family))
}

// read reads services whole, one after the other, and hands each to f, or the error
// for which it could not be. An empty list of destinations does not tell a service
// that has none from one that does not exist, so the services are read first; if that
// fails f is not called.
func (a *Applier) read(ctx context.Context, keys []ipvs.ServiceKey, f func(ipvs.ServiceKey, reading, error)) error {
	all, err := a.conn.Services(ctx)
	if err != nil {
		return fmt.Errorf("read the IPVS table: %w", err)
	}
	there := make(map[ipvs.ServiceKey]int, len(all))
	for i := range all {
		there[all[i].ServiceKey] = i
	}
	var infos []ipvs.DestinationInfo
	for _, k := range keys {
		i, ok := there[k]
		if !ok {
			f(k, reading{}, nil)
			continue
		}
		got, err := a.destinations(ctx, infos, k)
		if err == nil {
			infos = got
		}
		f(k, reading{true, all[i].Service, got}, err)
	}
	return nil
}

// intoBuffer is a table that can list destinations in a buffer of the caller's.
type intoBuffer interface {
	AppendDestinations(context.Context, []ipvs.DestinationInfo, ipvs.ServiceKey) ([]ipvs.DestinationInfo, error)
}

// destinations reads one service, into buf where the table can.
func (a *Applier) destinations(ctx context.Context, buf []ipvs.DestinationInfo, k ipvs.ServiceKey) (ds []ipvs.DestinationInfo, err error) {
	if t, ok := a.conn.(intoBuffer); ok {
		ds, err = t.AppendDestinations(ctx, buf[:0], k)
	} else {
		ds, err = a.conn.Destinations(ctx, k)
	}
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
	parked := a.parked.keys()
	seen := map[parkedKey]ipvs.DestinationInfo{}
	var errs []error
	err := a.read(ctx, a.ours(), func(k ipvs.ServiceKey, r reading, err error) {
		if err != nil {
			errs = append(errs, err)
			return
		}
		a.noteParked(seen, k, r.infos)
		a.compare(k, r, now, a.mode())
	})
	errs = append(errs, err)
	if a.Pending() {
		errs = append(errs, a.Flush(ctx, now))
	}
	// What was not at weight 0 when it was read may have been given a connection
	// since then.
	parked = slices.DeleteFunc(parked, func(k parkedKey) bool {
		d, ok := seen[k]
		return !ok || d.Weight != 0
	})
	return errors.Join(append(errs, a.endDrains(ctx, parked, seen, now))...)
}

// resync reads services again after the table proved to differ from the mirror. One
// that cannot be read is put aside and taken out of stale.
func (a *Applier) resync(ctx context.Context, stale staleSet, now time.Time, m mode) error {
	if len(stale) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(stale), compareServices)
	err := a.read(ctx, keys, func(k ipvs.ServiceKey, r reading, err error) {
		switch {
		case err != nil:
			a.due.hold(k, true, err)
			delete(stale, k)
		case stale[k]:
			a.compare(k, r, now, modeQuiet)
		default:
			a.compare(k, r, now, m)
		}
	})
	if err != nil {
		for _, k := range keys {
			a.due.hold(k, true, nil)
		}
	}
	return err
}

// compare takes in what the table holds of a service of ours.
func (a *Applier) compare(k ipvs.ServiceKey, r reading, now time.Time, m mode) {
	mirror := a.mirror[k]
	switch {
	case mirror == nil && !r.exists:
		return
	case mirror != nil && r.same(mirror):
		// The common case of a table that nobody touched, without a copy of it.
		a.tell(k, nil, now, m)
		return
	}
	held := r.held()
	want, ready := a.target(k, nil, true)
	switch {
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

// same reports whether what was read needs no operation to be a mirror's content.
func (r reading) same(m *actual) bool {
	if !r.exists || !sameService(m.service, r.service) || m.len() != len(r.infos) {
		return false
	}
	for i := range r.infos {
		at := m.at(r.infos[i].DestinationKey)
		if at < 0 || !sameDestination(m.slots[at].dest(), r.infos[i].Destination) {
			return false
		}
	}
	return true
}

// dropGone takes destinations off the drain list that are not in the table any
// more: there is nothing to put back, whoever removed them.
func (a *Applier) dropGone(k ipvs.ServiceKey, held *actual) {
	if a.parked.in(k) == 0 {
		return
	}
	for _, pk := range a.parked.keys() {
		if pk.service != k || held != nil && held.has(pk.dest) {
			continue
		}
		a.log.Warn("Somebody else removed a draining destination", event.Key, event.DrainLost, "service", k.String(), "destination", pk.dest.String(), "why", a.parked.get(pk).why)
		a.mirror[k].drop(pk.dest)
		a.forgetDest(pk)
	}
}

// take makes the mirror of one service what the table holds.
func (a *Applier) take(k ipvs.ServiceKey, held *actual) {
	a.due.bulk.whole(k)
	if held == nil {
		a.forget(k)
		return
	}
	was := a.mirror[k]
	if was != nil {
		held.timeout, held.atOnce = was.timeout, was.atOnce
	}
	for i := range held.slots {
		s := &held.slots[i]
		s.why = whyUnknown
		if was != nil {
			if at := was.find(s.key); at >= 0 {
				s.why = was.slots[at].why
			}
		}
		if s.weight == 0 || a.parked.in(k) == 0 {
			continue
		}
		if d := a.parked.get(parkedKey{k, s.key.unpack()}); d != nil {
			d.read = false // it may have been given connections
		}
	}
	if was == nil {
		a.move(k)
	}
	a.mirror[k] = held
}
