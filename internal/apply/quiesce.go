package apply

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Quiesce takes every destination of ours to weight 0, whatever it is wanted for,
// before a stop. What was not accepted is tried again by the next call.
func (a *Applier) Quiesce(ctx context.Context, now time.Time) error {
	if a.conn == nil {
		return ErrNoTable
	}
	var ops []ipvs.Op
	for _, m := range a.mirror {
		for d := range m.all() {
			if d.Weight > 0 {
				d.Weight = 0
				ops = append(ops, ipvs.Op{Kind: ipvs.OpSetDest, Service: m.service, Destination: d})
			}
		}
	}
	var errs []error
	stale := staleSet{}
	for i, err := range a.batch(ctx, ops) {
		if err != nil && isStale(err) {
			stale.add(ops[i].Service.ServiceKey, err)
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, a.resync(ctx, stale, now, modeRepair))...)
}

// Connections counts those in our services that are worth waiting for: UDP and SCTP
// have none (see datagram).
func (a *Applier) Connections(ctx context.Context) (active, inactive uint64, err error) {
	if a.conn == nil {
		return 0, 0, ErrNoTable
	}
	var infos []ipvs.DestinationInfo
	for k := range a.mirror {
		if a.datagram(k) {
			continue
		}
		if infos, err = a.destinations(ctx, infos, k); err != nil {
			return 0, 0, err
		}
		for _, d := range infos {
			if a.mirror[k].has(d.DestinationKey) {
				active += uint64(d.Counters.Active)
				inactive += uint64(d.Counters.Inactive)
			}
		}
	}
	return active, inactive, nil
}
