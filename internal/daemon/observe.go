package daemon

import (
	"context"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/metrics"
	"github.com/sluice-lb/sluice/internal/web"
)

// newWeb is what serves over HTTP, but for what the engine has to tell.
func (d *daemon) newWeb() *web.Server {
	return &web.Server{Log: d.log, Metrics: metrics.Handler(d.measured), Healthy: d.answers, Operate: d.operate, Events: d.events}
}

// measured is what a scrape tells of.
func (d *daemon) measured() (*engine.Snapshot, config.MetricsDetail) {
	if config.MetricsDetail(d.detail.Load()) == config.MetricsServer {
		return d.engine.Snapshot(), config.MetricsServer
	}
	return d.engine.Overview(), config.MetricsService
}

// answers asks whether the loop turns, for /healthz.
func (d *daemon) answers(ctx context.Context) error { return d.engine.Ping(ctx) }
