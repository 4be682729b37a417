package daemon

import (
	"context"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/metrics"
	"github.com/sluice-lb/sluice/internal/web"
)

// newWeb is what serves over HTTP, but for what the engine has to tell.
func (d *daemon) newWeb() *web.Server {
	return &web.Server{Log: d.log, Metrics: metrics.Handler(d.measured), Healthy: d.answers, Operate: d.operate, Events: d.events, Pace: d.pace}
}

// measured is what a scrape tells of.
func (d *daemon) measured() metrics.Reading {
	if config.MetricsDetail(d.detail.Load()) == config.MetricsServer {
		return metrics.Reading{Snapshot: d.engine.Snapshot(), Detail: config.MetricsServer, Told: d.told(), Pace: d.pace}
	}
	return metrics.Reading{Snapshot: d.engine.Overview(), Detail: config.MetricsService, Told: d.told(), Pace: d.pace}
}

// told is what the world was told, the log and events included.
func (d *daemon) told() *metrics.Told {
	t := d.outward.told()
	if d.opts.events != nil {
		t.Events, t.LinesSuppressed = d.opts.events.Counts(), d.opts.limiter.Suppressed()
	}
	return t
}

// told is what scripts, mails and FIFOs have come to.
func (o *outward) told() *metrics.Told {
	s, m, f := o.scripts.Stats(), o.mailer.Stats(), o.fifos.Stats()
	return &metrics.Told{
		ScriptsQueued: s.Queued + s.Running, ScriptsOK: s.OK, ScriptsFailed: s.Failed, ScriptsDropped: s.Dropped,
		MailsQueued: m.Queued, MailsSent: m.Sent, MailsFailed: m.Failed, MailsDropped: m.Dropped,
		FIFOMessagesWritten: f.Written, FIFOMessagesLost: f.Lost,
	}
}

// answers asks whether the loop turns, for /healthz.
func (d *daemon) answers(ctx context.Context) error { return d.engine.Ping(ctx) }
