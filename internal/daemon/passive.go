package daemon

import (
	"context"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/event"
)

// passive is whether this director withholds its services, with the connections of the
// moment.
func (d *daemon) passive(ctx context.Context) control.Passive {
	d.reloading.Lock()
	delay := d.config.Global.VIPDelay
	d.reloading.Unlock()
	return control.PassiveOf(d.engine.Status(ctx), delay)
}

// setPassive carries out an operator's command. It is on the disk before it is
// acknowledged, as operate has it.
func (d *daemon) setPassive(ctx context.Context, on bool, who, reason string) error {
	if _, err := d.engine.SetPassive(ctx, on, who, reason); err != nil || d.store == nil {
		return err
	}
	if err := d.store.writer.Flush(); err != nil {
		d.log.Error("An operator's command is in force and could not be saved: a restart would forget it", event.Key, event.OperatorForgotten, "err", err)
	}
	return nil
}
