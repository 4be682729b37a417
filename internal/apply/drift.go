package apply

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Difference is one thing in a service of ours that somebody else changed.
type Difference struct {
	// Destination is the zero key where the service itself is meant.
	Destination ipvs.DestinationKey
	// What is one of the changes below; Found and Wanted say what differs.
	What, Found, Wanted string
	// Since is when it was found first.
	Since time.Time
}

// Changes that somebody else can make.
const (
	ServiceMissing     = "service missing"
	ServiceChanged     = "service changed"
	DestinationMissing = "destination missing"
	DestinationAdded   = "destination added"
	DestinationChanged = "destination changed"
)

const notThere = "not there"

// drift is what is different in one service.
type drift struct {
	found []Difference
	// repairing: Flush is about to put it back.
	repairing bool
}

// differences compares what is believed to be in the table with what it holds, nil
// for nothing. What is as wanted is no difference, whoever made it so.
func differences(mirror, held *actual, want *target) []Difference {
	wants := map[ipvs.DestinationKey]ipvs.Destination{}
	if want != nil {
		for _, d := range want.dests {
			if d.fate == wanted {
				wants[d.dest.DestinationKey] = d.dest
			}
		}
	}
	if held == nil {
		if want == nil {
			return nil
		}
		return []Difference{{What: ServiceMissing, Found: notThere, Wanted: fmt.Sprintf("%s with %d destinations", want.service.Scheduler, len(wants))}}
	}
	var ds []Difference
	if want != nil && !sameService(mirror.service, held.service) && !sameService(want.service, held.service) {
		found, wanted := serviceTexts(held.service, want.service)
		ds = append(ds, Difference{What: ServiceChanged, Found: found, Wanted: wanted})
	}
	for found := range held.all() {
		dk := found.DestinationKey
		believed, known := mirror.get(dk)
		ideal, ok := wants[dk]
		switch {
		case known && sameDestination(believed, found), ok && sameDestination(ideal, found):
			continue
		case !known && !ok:
			ds = append(ds, Difference{Destination: dk, What: DestinationAdded, Found: destinationText(found, nil), Wanted: notThere})
			continue
		case !ok:
			ideal = believed // it departs, and should be as we left it
		}
		ds = append(ds, Difference{Destination: dk, What: DestinationChanged, Found: destinationText(found, &ideal), Wanted: destinationText(ideal, &found)})
	}
	for d := range mirror.all() {
		if ideal, ok := wants[d.DestinationKey]; ok && !held.has(d.DestinationKey) {
			ds = append(ds, Difference{Destination: d.DestinationKey, What: DestinationMissing, Found: notThere, Wanted: destinationText(ideal, nil)})
		}
	}
	return ds
}

// same reports whether two contents need no operation between them.
func same(a, b *actual) bool {
	if a == nil || b == nil {
		return a == b
	}
	if !sameService(a.service, b.service) || a.len() != b.len() {
		return false
	}
	for d := range a.all() {
		if o, ok := b.get(d.DestinationKey); !ok || !sameDestination(d, o) {
			return false
		}
	}
	return true
}

// tell logs differences, once each in report mode, and keeps them for View.
func (a *Applier) tell(k ipvs.ServiceKey, ds []Difference, now time.Time, m mode) {
	was := a.drift[k]
	if len(ds) == 0 {
		if m == modeReport && was != nil && !was.repairing {
			delete(a.drift, k)
			a.log.Info("What somebody changed in the IPVS table is as wanted again", event.Key, event.DriftOver, "service", k.String())
		}
		return
	}
	for i := range ds {
		d := &ds[i]
		d.Since = now
		if m == modeReport && was != nil {
			if j := slices.IndexFunc(was.found, d.is); j >= 0 {
				d.Since = was.found[j].Since
				continue
			}
		}
		args := []any{"service", k.String(), "what", d.What, "found", d.Found, "wanted", d.Wanted}
		if d.Destination.Addr.IsValid() {
			args = slices.Insert(args, 2, any("destination"), any(d.Destination.String()))
		}
		if m == modeReport {
			a.log.Warn("Somebody changed the IPVS table, leaving it as it is (drift report)", append(args, event.Key, event.DriftFound)...)
		} else {
			a.log.Warn("Somebody changed the IPVS table, putting it back", append(args, event.Key, event.DriftRepaired)...)
		}
	}
	a.drift[k] = &drift{found: ds, repairing: m == modeRepair}
}

// Drifted reports whether anything is different that is known of.
func (a *Applier) Drifted() bool { return len(a.drift) > 0 }

func (d *Difference) is(o Difference) bool {
	o.Since = d.Since
	return *d == o
}

// settle is called when a service is as wanted.
func (a *Applier) settle(k ipvs.ServiceKey) {
	if d := a.drift[k]; d != nil && d.repairing {
		a.repaired += uint64(len(d.found))
		delete(a.drift, k)
	}
}

// serviceTexts says for each of two services in what it differs from the other.
func serviceTexts(x, y ipvs.Service) (string, string) {
	x, y = x.Canonical(), y.Canonical()
	var xs, ys []string
	add := func(differs bool, format string, a, b any) {
		if differs {
			xs, ys = append(xs, fmt.Sprintf(format, a)), append(ys, fmt.Sprintf(format, b))
		}
	}
	add(x.Scheduler != y.Scheduler, "scheduler %s", x.Scheduler, y.Scheduler)
	add(x.Timeout != y.Timeout, "persistence %d s", x.Timeout, y.Timeout)
	add(x.Netmask != y.Netmask, "persistence mask %#x", x.Netmask, y.Netmask)
	add(x.PersistenceEngine != y.PersistenceEngine, "persistence engine %q", x.PersistenceEngine, y.PersistenceEngine)
	add(x.Flags != y.Flags, "flags %#x", uint32(x.Flags), uint32(y.Flags))
	return strings.Join(xs, ", "), strings.Join(ys, ", ")
}

// destinationText says what a destination is, or only in what it differs from
// another.
func destinationText(d ipvs.Destination, other *ipvs.Destination) string {
	d = d.Canonical()
	o := ipvs.Destination{}
	if other != nil {
		o = other.Canonical()
	}
	var s []string
	add := func(differs bool, format string, a ...any) {
		if differs {
			s = append(s, fmt.Sprintf(format, a...))
		}
	}
	add(other == nil || d.Weight != o.Weight, "weight %d", d.Weight)
	add(other == nil || d.Forward != o.Forward, "%s", d.Forward)
	add(d.UpperThreshold != o.UpperThreshold, "uthreshold %d", d.UpperThreshold)
	add(d.LowerThreshold != o.LowerThreshold, "lthreshold %d", d.LowerThreshold)
	add(d.TunnelType != o.TunnelType || d.TunnelPort != o.TunnelPort || d.TunnelFlags != o.TunnelFlags,
		"tunnel type %d, port %d, flags %#x", d.TunnelType, d.TunnelPort, uint16(d.TunnelFlags))
	return strings.Join(s, ", ")
}
