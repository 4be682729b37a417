package daemon

import (
	"fmt"
	"log/slog"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/event"
)

// usable decides whether a configuration may run at all.
func usable(found diag.List, strict bool) error {
	for _, f := range found {
		if f.Severity == diag.Fatal {
			return fmt.Errorf("%s", f)
		}
	}
	if n := found.Count(diag.Error); strict && n > 0 {
		return fmt.Errorf("%d errors and --strict, the first: %s", n, first(found))
	}
	return nil
}

func first(found diag.List) diag.Diagnostic {
	for _, f := range found {
		if f.Severity >= diag.Error {
			return f
		}
	}
	return diag.Diagnostic{}
}

// known are the errors of a configuration, whatever line they stand on.
func known(found diag.List) map[string]bool {
	keys := map[string]bool{}
	for _, f := range found {
		if f.Severity >= diag.Error {
			keys[f.Key()] = true
		}
	}
	return keys
}

// acceptable decides whether a usable configuration may replace the running one:
// an error that the running one has too is the operator's choice, a new one is a
// slip that must not change a table that works.
func (d *daemon) acceptable(cfg *config.Config, found diag.List) error {
	return acceptable(d.config, cfg, d.errors, found)
}

func acceptable(running, cfg *config.Config, errors map[string]bool, found diag.List) error {
	for _, f := range found {
		if f.Severity >= diag.Error && !errors[f.Key()] {
			return fmt.Errorf("an error that the running configuration does not have: %s", f)
		}
	}
	g, was := cfg.Global, running.Global
	if g.NetNamespace != was.NetNamespace || g.NetNamespaceIPVS != was.NetNamespaceIPVS || g.NetNamespaceIPVSSet != was.NetNamespaceIPVSSet {
		return fmt.Errorf("net_namespace or net_namespace_ipvs changed, which needs a restart")
	}
	return nil
}

// logFindings logs each finding at the level of its severity.
func logFindings(log *slog.Logger, found diag.List) {
	for _, f := range found {
		at := log.Info
		switch f.Severity {
		case diag.Warning:
			at = log.Warn
		case diag.Error, diag.Fatal:
			at = log.Error
		}
		args := []any{event.Key, event.Finding, "code", f.Code}
		if f.Hint != "" {
			args = append(args, "hint", f.Hint)
		}
		at(f.String(), args...)
	}
}
