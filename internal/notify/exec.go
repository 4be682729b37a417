package notify

import (
	"fmt"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/script"
)

// runScript runs one script to its end and logs what came of it.
func (r *Runner) runScript(l life, n Notice) {
	log := r.log.With("notice", n.Kind.String(), "vs", n.VS)
	if n.RS != "" {
		log = log.With("rs", n.RS)
	}
	log = log.With("script", n.Script.Argv[0])
	p, err := script.Start(script.Command{
		Script: n.Script, Identity: r.identity(), Env: told(n),
		Timeout: r.timeout, KillAfter: r.killAfter, Left: &r.left,
	})
	if err != nil {
		r.bad.Add(1)
		log.Error("Script is not run", event.Key, event.ScriptFailed, "err", err)
		return
	}
	stopped := attend(l, p)
	res := p.Result()
	for _, w := range res.Warnings {
		if r.firstTime(w) {
			log.Warn("Script wants mending", event.Key, event.ScriptUnsafe, "reason", w)
		}
	}
	log = log.With("took", res.Took.Round(time.Millisecond))
	if res.Output != "" {
		log = log.With("output", res.Output)
	}
	if res.TimedOut || res.Stopped || res.Code != 0 || res.Signal != 0 {
		r.bad.Add(1)
	} else {
		r.ok.Add(1)
	}
	switch {
	case res.TimedOut:
		log.Error("Script was ended", event.Key, event.ScriptFailed, "reason", r.outOfTime(res))
	case res.Stopped:
		log.Error("Script was ended", event.Key, event.ScriptFailed, "reason", stopped)
	case res.Code != 0 || res.Signal != 0:
		log.Error("Script failed", event.Key, event.ScriptFailed, "reason", res.Ended())
	default:
		log.Debug("Script ended")
	}
}

// attend waits for the end of a script, and kills it when the daemon stops and
// waits no longer; it then says why. keepalived spares SIGTERM here too (facts
// 11.1).
func attend(l life, p *script.Process) (why string) {
	var last <-chan time.Time
	for {
		select {
		case <-p.Done():
			return why
		case <-l.stop:
			l.stop = nil
			timer := time.NewTimer(stopScript)
			defer timer.Stop()
			last = timer.C
		case <-last:
			last, l.hard, why = nil, nil, fmt.Sprintf("still running %v after the daemon began to stop", stopScript)
			p.Kill()
		case <-l.hard:
			last, l.hard, why = nil, nil, "still running when the daemon stopped"
			p.Kill()
		}
	}
}

func (r *Runner) outOfTime(res script.Result) string {
	why := fmt.Sprintf("still running after %v", r.timeout)
	if res.Forced {
		after := r.killAfter
		if after == 0 {
			after = script.DefaultKillAfter
		}
		why += fmt.Sprintf(", and SIGTERM did not end it within %v", after)
	}
	return why
}
