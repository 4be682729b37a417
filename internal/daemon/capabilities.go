package daemon

import (
	"context"

	"github.com/sluice-lb/sluice/internal/checker/ping"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/doctor"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/host"
)

// lacks finds the capabilities that a configuration needs and this process lacks, and
// logs those that were not among the last ones.
func (d *daemon) lacks(ctx context.Context, cfg *config.Config) {
	before := map[host.Missing]bool{}
	if old := d.missing.Load(); old != nil {
		for _, m := range *old {
			before[m] = true
		}
	}
	list := host.MissingCapabilities(doctor.Needs(cfg, ping.Usable(ctx) == nil)...)
	for _, m := range list {
		if !before[m] {
			d.log.Warn("Missing a capability", event.Key, event.SettingRefused, "capability", m.Name, "needed_for", m.Feature)
		}
	}
	d.missing.Store(&list)
}

// frank adds to a state what this process lacks.
func (d *daemon) frank(state func(context.Context) *engine.Snapshot) func(context.Context) *engine.Snapshot {
	return func(ctx context.Context) *engine.Snapshot {
		s, list := state(ctx), d.missing.Load()
		if s == nil || list == nil || len(*list) == 0 {
			return s
		}
		with := *s // what is published is everybody's
		for _, m := range *list {
			with.MissingCapabilities = append(with.MissingCapabilities, m.String())
		}
		return &with
	}
}
