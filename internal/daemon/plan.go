package daemon

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/keyword"
	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
)

// ReadPlan reads a file as sluiced would, for a daemon to plan. Every finding is
// written to w. The request is nil if nothing can be run from the file.
func ReadPlan(w io.Writer, file, configID string, color bool) (*control.PlanRequest, error) {
	cfg, found := load(Options{File: file, ConfigID: configID})
	if err := found.WriteText(w, diag.TextOptions{Color: color}); err != nil {
		return nil, err
	}
	if err := usable(found, false); err != nil || cfg == nil {
		return nil, err
	}
	var text strings.Builder
	if err := config.Print(&text, cfg); err != nil {
		return nil, err
	}
	return &control.PlanRequest{File: file, Text: text.String(), Findings: found.Errors().Findings()}, nil
}

// plan works out what a reload would do: to the file as it is now or, if req is not
// nil, to what a client has read. One at a time, and beside everything else.
func (d *daemon) plan(ctx context.Context, req *control.PlanRequest) (*engine.Plan, error) {
	d.planning.Lock()
	defer d.planning.Unlock()
	d.memory.load()
	defer d.memory.settle()
	d.reloading.Lock()
	running, errors := d.config, d.errors
	d.reloading.Unlock()
	file := d.opts.File
	var cfg *config.Config
	var found diag.List
	if req == nil {
		cfg, found = load(d.opts)
	} else {
		file = req.File
		var err error
		if cfg, err = parsePlan(d.opts, req); err != nil {
			return nil, err
		}
		for _, f := range req.Findings {
			found = append(found, f.Diagnostic())
		}
	}
	refusal := usable(found, d.opts.Strict)
	if refusal == nil {
		refusal = acceptable(running, cfg, errors, found)
	}
	if refusal == nil {
		_, refusal = config.Assign(cfg, engine.MarksOf(running))
	}
	if refusal != nil {
		return &engine.Plan{At: time.Now(), ConfigFile: file, Generation: d.engine.Overview().Generation, Observe: d.opts.Observe, Refused: refusal.Error(), Findings: served(found)}, nil
	}
	p, err := d.engine.Plan(ctx, cfg, d.files.look(running.TrackFiles, req == nil))
	if err != nil {
		return nil, err
	}
	p.ConfigFile = file
	if req == nil {
		p.Findings = served(found)
	} else if names := unread(running.TrackFiles, cfg.TrackFiles); names != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("the daemon does not read files that a client names: %s taken for 0", strings.Join(names, ", ")))
	}
	p.Restart = append(p.Restart, d.atStart(running, cfg)...)
	p.Changes = p.Changes || len(p.Restart) > 0
	return p, nil
}

// parsePlan reads a configuration that a client sent. Without a resolver it names no
// file, and without an environment no variable.
func parsePlan(opts Options, req *control.PlanRequest) (*config.Config, error) {
	lang := language(opts.ConfigID)
	lang.Resolver, lang.Env = nil, nil
	cfg, found := keyword.LoadString(req.File, req.Text, keyword.Options{Options: lang})
	if cfg == nil || len(found.Errors()) > 0 {
		why := "nothing can be run from it"
		if e := found.Errors(); len(e) > 0 {
			why = e[0].String()
		}
		return nil, &engine.CommandError{Code: engine.CodeInvalid, Message: "the configuration that was sent cannot be read, sluice and sluiced may be of different versions: " + why}
	}
	opts.overrule(cfg)
	return cfg, nil
}

// unread are the track files whose values are not known without opening them.
func unread(running, next []*config.TrackFile) (names []string) {
	for _, tf := range next {
		if !slices.ContainsFunc(running, func(r *config.TrackFile) bool { return r.Name == tf.Name && r.Path == tf.Path }) {
			names = append(names, "track_file "+tf.Name)
		}
	}
	return names
}

// atStart are the settings that differ and that only a start takes up.
func (d *daemon) atStart(running, next *config.Config) (names []string) {
	was, is := running.Global, next.Global
	if max(is.CheckerThreads, config.DefaultCheckerThreads) != d.threads {
		names = append(names, "checker_threads")
	}
	if was.LVSFlush != is.LVSFlush {
		names = append(names, "lvs_flush")
	}
	if !config.SameScript(was.StartupScript, is.StartupScript) {
		names = append(names, "startup_script")
	}
	return names
}

// served are findings as they are told to others than who may read the file: a line
// that may hold a secret, or a script's arguments, is left out.
func served(found diag.List) []diag.Finding {
	var out []diag.Finding
	for _, f := range found.Findings() {
		if f.Severity == diag.Notice.String() {
			continue
		}
		if private(f.Source) {
			f.Source = ""
		}
		out = append(out, f)
	}
	return out
}

// private reports whether a line may hold what is not for everybody.
func private(line string) bool {
	line = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#sluice ")))
	for _, part := range []string{"pass", "script", "notify", "misc_path", "quorum_up", "quorum_down", "auth", "secret"} {
		if strings.Contains(line, part) {
			return true
		}
	}
	return strings.HasPrefix(line, "$")
}
