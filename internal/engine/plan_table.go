package engine

import (
	"fmt"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// entry names a destination of the table, or with the zero key a service.
type entry struct {
	service ipvs.ServiceKey
	dest    ipvs.DestinationKey
}

// operations tells of what the rehearsal wrote, with what was there before each write.
func (r *rehearsal) operations(out *Plan) {
	services := make(map[ipvs.ServiceKey]ipvs.Service, len(r.stage.held))
	dests := map[entry]ipvs.Destination{}
	carries := map[entry]ipvs.Counters{}
	leaves := map[entry]bool{}
	for _, p := range r.engine.applier.Parked() {
		leaves[entry{p.Service, p.Destination}] = true
	}
	for k, f := range r.stage.held {
		services[k] = f.service
		for i := range f.dests {
			d := &f.dests[i]
			dests[entry{k, d.DestinationKey}], carries[entry{k, d.DestinationKey}] = d.Destination, d.Counters
		}
	}
	for _, a := range r.stage.Attempts() {
		if a.Err != nil {
			out.Notes = append(out.Notes, fmt.Sprintf("the kernel would refuse to %s: %v", a.Op, a.Err))
			continue
		}
		op, k := a.Op, a.Op.Service.ServiceKey
		out.ops = append(out.ops, op)
		p := PlanOperation{Service: k.String()}
		at := entry{k, op.Destination.DestinationKey}
		switch op.Kind {
		case ipvs.OpAddService, ipvs.OpSetService:
			p.Op, p.To = "add", serviceEntry(op.Service)
			if was, ok := services[k]; ok {
				p.Op, p.From = "change", serviceEntry(was)
			}
			services[k] = op.Service
		case ipvs.OpDelService:
			p.Op = "remove"
			if was, ok := services[k]; ok {
				p.From = serviceEntry(was)
			}
			delete(services, k)
		case ipvs.OpAddDest, ipvs.OpSetDest:
			p.Op, p.Destination, p.To = "add", at.dest.String(), destinationEntry(op.Destination)
			was, there := dests[at]
			if there {
				p.Op, p.From = "change", destinationEntry(was)
			}
			// One that leaves is told of by drains; one that is not at weight 0 in the
			// end is gone, or has its weight back.
			if there && was.Weight > 0 && op.Destination.Weight == 0 && !leaves[at] && r.engine.applier.Weight(k, at.dest) == 0 {
				c := carries[at]
				out.Drains = append(out.Drains, PlanDrain{
					PlanDestination: PlanDestination{p.Service, p.Destination, c.Active, c.Inactive}, Why: "stays at weight 0",
				})
			}
			dests[at] = op.Destination
		case ipvs.OpDelDest:
			p.Op, p.Destination = "remove", at.dest.String()
			if was, ok := dests[at]; ok {
				p.From = destinationEntry(was)
			}
			if c := carries[at]; c.Active > 0 || c.Inactive > 0 {
				out.Cut = append(out.Cut, PlanDestination{p.Service, p.Destination, c.Active, c.Inactive})
			}
			delete(dests, at)
		}
		if p.Destination != "" {
			p.Active, p.Inactive = carries[at].Active, carries[at].Inactive
		}
		out.Operations = append(out.Operations, p)
	}
}

// drains tells of what the rehearsal began to drain.
func (r *rehearsal) drains(out *Plan) {
	before := make(map[entry]time.Time, len(r.parked))
	for _, p := range r.parked {
		before[entry{p.Service, p.Destination}] = p.Since
	}
	for _, p := range r.engine.applier.Parked() {
		if since, ok := before[entry{p.Service, p.Destination}]; ok && since.Equal(p.Since) {
			continue
		}
		out.Drains = append(out.Drains, drainOf(p))
	}
}

func drainOf(p apply.Parked) PlanDrain {
	return PlanDrain{
		PlanDestination: PlanDestination{p.Service.String(), p.Destination.String(), p.Counters.Active, p.Counters.Inactive},
		Why:             p.Why, Limit: p.Limit,
	}
}

// serviceFlags are the names of a service's flags, as the file has them.
var serviceFlags = []struct {
	flag ipvs.Flags
	name string
}{{ipvs.OnePacket, "ops"}, {ipvs.Sched1, "flag-1"}, {ipvs.Sched2, "flag-2"}, {ipvs.Sched3, "flag-3"}}

func serviceEntry(s ipvs.Service) *PlanEntry {
	s = s.Canonical()
	e := &PlanEntry{Scheduler: s.Scheduler, Persistence: s.Timeout, Engine: s.PersistenceEngine}
	if s.Netmask != ipvs.FullMask(s.Family) && s.Timeout != 0 {
		e.Netmask = fmt.Sprintf("%#x", s.Netmask)
	}
	for _, f := range serviceFlags {
		if s.Flags&f.flag != 0 {
			e.Flags = append(e.Flags, f.name)
		}
	}
	return e
}

func destinationEntry(d ipvs.Destination) *PlanEntry {
	d = d.Canonical()
	e := &PlanEntry{Method: d.Forward.String(), Weight: d.Weight, Upper: d.UpperThreshold, Lower: d.LowerThreshold}
	switch d.TunnelType {
	case ipvs.GUE:
		e.Tunnel = fmt.Sprintf("gue port %d flags %d", d.TunnelPort, d.TunnelFlags)
	case ipvs.GRE:
		e.Tunnel = fmt.Sprintf("gre flags %d", d.TunnelFlags)
	}
	return e
}
