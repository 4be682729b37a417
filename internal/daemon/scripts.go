package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/script"
)

// identityOf is what a configuration says of all scripts.
func identityOf(cfg *config.Config) script.Identity {
	g := &cfg.Global
	return script.Identity{
		User: g.ScriptUser, Group: g.ScriptGroup, Security: g.EnableScriptSecurity,
		Supplementary: g.SupplementaryGroups, Symlinks: g.UseSymlinkPaths,
	}
}

// use is a script with what it is for.
type use struct {
	script *config.Script
	what   string
	// misc: it is a check.
	misc bool
}

// scriptsOf lists every script of a configuration.
func scriptsOf(cfg *config.Config) []use {
	var all []use
	add := func(s *config.Script, misc bool, format string, args ...any) {
		if s != nil && len(s.Argv) > 0 {
			all = append(all, use{s, fmt.Sprintf(format, args...), misc})
		}
	}
	add(cfg.Global.StartupScript, false, "startup_script")
	add(cfg.Global.ShutdownScript, false, "shutdown_script")
	for _, f := range cfg.Global.FIFOs {
		add(f.Script, false, "the script of FIFO %s", f.Path)
	}
	for _, vs := range cfg.VirtualServers {
		add(vs.QuorumUp, false, "quorum_up")
		add(vs.QuorumDown, false, "quorum_down")
		for _, rs := range vs.RealServers {
			add(rs.NotifyUp, false, "notify_up of real_server %s", rs.Key)
			add(rs.NotifyDown, false, "notify_down of real_server %s", rs.Key)
			for _, c := range rs.Checkers {
				if c.Misc != nil {
					add(c.Misc.Script, true, "misc_path of real_server %s", rs.Key)
				}
			}
		}
	}
	return all
}

// scriptFindings says which scripts could not run now. It is no error: a file may
// appear, and each script is examined again before each run. keepalived drops such
// a script, and with a check's the check, for good.
func scriptFindings(cfg *config.Config) diag.List {
	if cfg == nil {
		return nil
	}
	var found diag.List
	id := identityOf(cfg)
	if id.User != "" {
		if _, err := script.RunsAs(&config.Script{Argv: []string{"script_user"}}, id); err != nil {
			found = append(found, diag.Diagnostic{
				Severity: diag.Warning, Class: diag.ClassConfig, Code: "W193", Pos: cfg.Global.ScriptUserPos, Width: 1,
				Message: fmt.Sprintf("script_user cannot be used: %v", err), Hint: "scripts that name no user of their own are not run as long as this holds",
			})
		}
	}
	seen := map[program]error{}
	for _, u := range scriptsOf(cfg) {
		check, hint := script.Check, "it is not run as long as this holds"
		if u.misc {
			hint = "as long as this holds the check cannot run, its last verdict stays, and the log says so; keepalived would drop the check"
		}
		if script.IsFileTest(u.script) {
			check = script.CheckFileTest
		}
		of := programOf(u.script)
		err, known := seen[of]
		if !known {
			err = check(u.script, id)
			seen[of] = err
		}
		if err != nil {
			found = append(found, diag.Diagnostic{
				Severity: diag.Warning, Class: diag.ClassNone, Code: "W191", Pos: u.script.Pos, Width: 1,
				Message: fmt.Sprintf("%s cannot run: %v", u.what, err), Hint: hint,
			})
		}
	}
	return found
}

// program is what of a script decides whether it can run: a configuration may name
// the same one for thousands of servers.
type program struct{ path, user, group string }

func programOf(s *config.Script) program {
	p := program{s.Argv[0], s.User, s.Group}
	if script.IsFileTest(s) {
		p.path = strings.Join(s.Argv, "\x00")
	}
	return p
}

// withoutScripts takes the class off the advice on script security if none of the
// scripts exists: then keepalived -t says nothing of it, and the status of a file that
// was written elsewhere is that of its other mistakes (facts 11.3).
func withoutScripts(found diag.List, cfg *config.Config) diag.List {
	missing := map[string]bool{}
	if cfg == nil || slices.ContainsFunc(scriptsOf(cfg), func(u use) bool {
		path := u.script.Argv[0]
		if !missing[path] {
			missing[path] = !exists(u.script)
		}
		return !missing[path]
	}) {
		return found
	}
	for i := range found {
		if found[i].Code == "W215" {
			found[i].Class = diag.ClassNone
		}
	}
	return found
}

// exists reports whether there is a program of a script's name.
func exists(s *config.Script) bool {
	if script.IsFileTest(s) {
		return false
	}
	if strings.Contains(s.Argv[0], "/") {
		_, err := os.Stat(s.Argv[0])
		return err == nil
	}
	_, err := exec.LookPath(s.Argv[0])
	return err == nil
}

// scriptSummary says as whom the scripts of a configuration run.
func scriptSummary(cfg *config.Config) string {
	id := identityOf(cfg)
	count := map[string]int{}
	var order []string
	for _, u := range scriptsOf(cfg) {
		as, err := script.RunsAs(u.script, id)
		if err != nil {
			as = "nobody: " + err.Error()
		}
		if count[as] == 0 {
			order = append(order, as)
		}
		count[as]++
	}
	var b strings.Builder
	for _, as := range order {
		verb := "run"
		if count[as] == 1 {
			verb = "runs"
		}
		fmt.Fprintf(&b, "  %s %s as %s\n", plural(count[as], "script"), verb, as)
	}
	return b.String()
}

// runScript runs startup_script or shutdown_script and waits for it. What comes of
// it is logged and changes nothing, as with keepalived.
func (d *daemon) runScript(ctx context.Context, what string, s *config.Script, timeout time.Duration) {
	if s == nil || len(s.Argv) == 0 || d.opts.Observe {
		return
	}
	log := d.log.With("script", s.Argv[0], "what", what)
	log.Info("Running script", event.Key, event.ScriptBegun)
	run := script.Run
	if script.IsFileTest(s) {
		run = script.TestFile
	}
	r := run(ctx, script.Command{Script: s, Identity: d.outward.identity(), Timeout: timeout})
	for _, w := range r.Warnings {
		log.Warn("Script is not safe", event.Key, event.ScriptUnsafe, "reason", w)
	}
	switch {
	case r.Err != nil:
		log.Error("Script not run", event.Key, event.ScriptFailed, "err", r.Err)
	case r.TimedOut:
		log.Error("Script did not end in time and was killed", event.Key, event.ScriptFailed, "timeout", timeout, "output", r.Output)
	case r.Code != 0 || r.Signal != 0:
		log.Error("Script failed", event.Key, event.ScriptFailed, "reason", r.Ended(), "output", r.Output)
	default:
		log.Info("Script ended", event.Key, event.ScriptEnded, "took", r.Took.Round(time.Millisecond))
	}
}
