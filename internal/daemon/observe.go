package daemon

import (
	"context"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/engine"
)

// measured is what a scrape tells of.
func (d *daemon) measured() (*engine.Snapshot, config.MetricsDetail) {
	return d.engine.Snapshot(), config.MetricsDetail(d.detail.Load())
}

// answers asks whether the loop turns, for /healthz.
func (d *daemon) answers(ctx context.Context) error { return d.engine.Ping(ctx) }
