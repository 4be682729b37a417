package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// whole is what lvs_timeouts, lvs_flush and lvs_flush_on_stop need of a table
// besides writing services. Both the kernel client and the table in memory have it.
type whole interface {
	Timeouts(context.Context) (ipvs.Timeouts, error)
	SetTimeouts(context.Context, ipvs.Timeouts) error
	Flush(context.Context) error
}

// begin does what global_defs wants of a table that was just connected, before
// anything of it is adopted. lvs_flush is for the start of the process alone.
func (e *Engine) begin(ctx context.Context, conn apply.IPVS) error {
	w, ok := conn.(whole)
	if !ok {
		return nil
	}
	e.table = w
	if e.config.Global.LVSFlush && !e.flushed {
		e.log.Warn("Emptying the whole IPVS table, other programs' services too", "why", "lvs_flush")
		if err := w.Flush(ctx); err != nil {
			return fmt.Errorf("lvs_flush: %w", err)
		}
	}
	e.flushed = true
	return e.timeouts(ctx)
}

// timeouts sets lvs_timeouts. A value that is 0 or no longer configured is what it
// was before this process changed anything (facts 9.1), without the moment in
// which keepalived has the originals in force on each reload.
func (e *Engine) timeouts(ctx context.Context) error {
	if e.table == nil {
		return nil
	}
	g := e.config.Global.LVSTimeouts
	want := ipvs.Timeouts{TCP: g.TCP, TCPFin: g.TCPFin, UDP: g.UDP}
	if want == (ipvs.Timeouts{}) && e.original == nil {
		return nil
	}
	now, err := e.table.Timeouts(ctx)
	if err != nil {
		return fmt.Errorf("lvs_timeouts: %w", err)
	}
	if e.original == nil {
		e.original = &now
	}
	for _, v := range []struct{ want, original *uint32 }{
		{&want.TCP, &e.original.TCP}, {&want.TCPFin, &e.original.TCPFin}, {&want.UDP, &e.original.UDP},
	} {
		if *v.want == 0 {
			*v.want = *v.original
		}
	}
	if want == now {
		return nil
	}
	if err := e.table.SetTimeouts(ctx, want); err != nil {
		return fmt.Errorf("lvs_timeouts: %w", err)
	}
	e.log.Info("Kernel connection timeouts set", "tcp", want.TCP, "tcpfin", want.TCPFin, "udp", want.UDP,
		"were", fmt.Sprintf("%d %d %d", now.TCP, now.TCPFin, now.UDP))
	return nil
}

// end undoes begin when the services are removed at a stop.
func (e *Engine) end(ctx context.Context) error {
	var errs []error
	if e.table != nil && e.config.Global.LVSFlushOnStop == "all" {
		e.log.Warn("Emptying the whole IPVS table, other programs' services too", "why", "lvs_flush_on_stop")
		errs = append(errs, e.table.Flush(ctx))
	} else {
		errs = append(errs, e.applier.Remove(ctx))
	}
	if e.original != nil {
		errs = append(errs, e.table.SetTimeouts(ctx, *e.original))
	}
	return errors.Join(errs...)
}
