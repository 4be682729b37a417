package apply

import (
	"context"
	"time"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Observer is told what the table is asked and how long that takes, on the applier's
// goroutine.
type Observer interface {
	// Wrote is one call of the table: what was asked, and an error for each, nil for
	// what was done.
	Wrote(ops []ipvs.Op, errs []error, took time.Duration)
	// Listed is one reading of all services, or of one service's destinations.
	Listed(destinations bool, err error, took time.Duration)
	// Urgent says that everything urgent was written, with how many operations; with
	// failed, some of it is still due.
	Urgent(operations int, failed bool)
}

// Observe has o told from the next Connect on.
func (a *Applier) Observe(o Observer) { a.observer = o }

// observed is a table whose calls are told of.
type observed struct {
	IPVS
	o Observer
}

// Batch implements IPVS.
func (t *observed) Batch(ctx context.Context, ops []ipvs.Op) []error {
	begun := time.Now()
	errs := t.IPVS.Batch(ctx, ops)
	t.o.Wrote(ops, errs, time.Since(begun))
	return errs
}

// Services implements IPVS.
func (t *observed) Services(ctx context.Context) ([]ipvs.ServiceInfo, error) {
	begun := time.Now()
	all, err := t.IPVS.Services(ctx)
	t.o.Listed(false, err, time.Since(begun))
	return all, err
}

// Destinations implements IPVS.
func (t *observed) Destinations(ctx context.Context, k ipvs.ServiceKey) ([]ipvs.DestinationInfo, error) {
	return t.AppendDestinations(ctx, nil, k)
}

// AppendDestinations implements intoBuffer, with a table that does not too.
func (t *observed) AppendDestinations(ctx context.Context, buf []ipvs.DestinationInfo, k ipvs.ServiceKey) (all []ipvs.DestinationInfo, err error) {
	begun := time.Now()
	if into, ok := t.IPVS.(intoBuffer); ok {
		all, err = into.AppendDestinations(ctx, buf, k)
	} else {
		all, err = t.IPVS.Destinations(ctx, k)
	}
	t.o.Listed(true, err, time.Since(begun))
	return all, err
}

// wrote tells of a single operation.
func (a *Applier) wrote(op ipvs.Op, err error, begun time.Time) {
	if a.observer != nil {
		a.observer.Wrote([]ipvs.Op{op}, []error{err}, time.Since(begun))
	}
}

// toldUrgent tells how the urgent part of a Flush ended.
func (a *Applier) toldUrgent(ws []*work, before uint64) {
	if a.observer == nil || len(ws) == 0 {
		return
	}
	failed := false
	for _, w := range ws {
		failed = failed || w.failed
	}
	a.observer.Urgent(int(a.operations-before), failed)
}
