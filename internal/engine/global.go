package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/event"
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
	e.conn = conn
	w, ok := conn.(whole)
	if !ok {
		return nil
	}
	if e.config.Global.LVSFlush && !e.flushed {
		e.log.Warn("Emptying the whole IPVS table, other programs' services too", event.Key, event.KernelFlushed, "why", "lvs_flush")
		if err := w.Flush(ctx); err != nil {
			return fmt.Errorf("lvs_flush: %w", err)
		}
	}
	e.flushed = true
	return nil
}

// globalsRetry is the pause before a global setting that was refused is tried again:
// the interface of a sync daemon may come up later.
const globalsRetry = 30 * time.Second

// globals applies what global_defs says of the kernel. It is beside the services:
// what cannot be done is logged and tried again, and keeps nothing else waiting.
func (e *Engine) globals(ctx context.Context, now time.Time) {
	var err error
	if looking := !e.globalsAt.IsZero() && e.globalsErr == ""; !looking {
		err = e.timeouts(ctx)
	}
	if err = errors.Join(err, e.syncDaemons(ctx)); err == nil {
		e.globalsErr = ""
		e.globalsAt = e.syncs.next(now)
		e.globalsDue = !e.globalsAt.IsZero()
		return
	}
	e.globalsAt = now.Add(globalsRetry)
	if err.Error() != e.globalsErr {
		e.globalsErr = err.Error()
		e.log.Error("Global setting not applied, will retry", event.Key, event.KernelUnset, "err", err, "retry_in", globalsRetry)
	}
}

// timeouts sets lvs_timeouts. A value that is 0 or no longer configured is what it
// was before this process changed anything (facts 9.1), without the moment in
// which keepalived has the originals in force on each reload.
func (e *Engine) timeouts(ctx context.Context) error {
	table, ok := e.conn.(whole)
	if !ok {
		return nil
	}
	g := e.config.Global.LVSTimeouts
	want := ipvs.Timeouts{TCP: g.TCP, TCPFin: g.TCPFin, UDP: g.UDP}
	if want == (ipvs.Timeouts{}) && e.original == nil {
		return nil
	}
	now, err := table.Timeouts(ctx)
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
	if err := table.SetTimeouts(ctx, want); err != nil {
		return fmt.Errorf("lvs_timeouts: %w", err)
	}
	e.log.Info("Kernel connection timeouts set", event.Key, event.KernelSet, "tcp", want.TCP, "tcpfin", want.TCPFin, "udp", want.UDP,
		"were", fmt.Sprintf("%d %d %d", now.TCP, now.TCPFin, now.UDP))
	return nil
}

// end undoes begin when the services are removed at a stop.
func (e *Engine) end(ctx context.Context) error {
	var errs []error
	table, ok := e.conn.(whole)
	if ok && e.config.Global.LVSFlushOnStop == "all" {
		e.log.Warn("Emptying the whole IPVS table, other programs' services too", event.Key, event.KernelFlushed, "why", "lvs_flush_on_stop")
		errs = append(errs, table.Flush(ctx))
	} else {
		errs = append(errs, e.applier.Remove(ctx))
	}
	if e.original != nil {
		errs = append(errs, table.SetTimeouts(ctx, *e.original))
	}
	return errors.Join(append(errs, e.endSync(ctx))...)
}
