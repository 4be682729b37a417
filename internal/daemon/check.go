package daemon

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
)

// CheckOptions says how Check reads a file and what it writes.
type CheckOptions struct {
	// ConfigID is for conditional lines (@ID); "" is the host name up to a dot.
	ConfigID string
	// AllConfig has every include check on from the start.
	AllConfig bool
	// Strict makes an error, which keepalived would live with, fail the file.
	Strict bool
	// JSON writes the findings as one array instead of text.
	JSON bool
	// Color marks severities in the text.
	Color bool
	// Summary adds to the text what was read and what was found; without it a
	// file without findings gives no output, as with keepalived -t.
	Summary bool
	// Effective, unless nil, takes the configuration with every default and
	// inherited value spelled out. Nothing is written there for a file from
	// which nothing can be run.
	Effective io.Writer
}

// strictStatus is the exit status of a file that only Strict refuses: that of a
// configuration error.
const strictStatus = 5

// Check reads and validates a configuration, changes nothing, writes every
// finding to w and returns the exit status, whose classes are keepalived -t's:
// see diag.List.ExitCode. That w or Effective cannot be written is status 1.
func Check(w io.Writer, file string, opts CheckOptions) int {
	cfg, found := load(Options{File: file, ConfigID: opts.ConfigID, Strict: opts.Strict, CommandLine: CommandLine{AllConfig: opts.AllConfig}})
	status := found.ExitCode()
	if status == 0 && (found.HasFatal() || opts.Strict && len(found.Errors()) > 0) {
		status = strictStatus
	}
	var err error
	if opts.JSON {
		err = found.WriteJSON(w)
	} else {
		err = found.WriteText(w, diag.TextOptions{Color: opts.Color})
		if err == nil && opts.Summary {
			_, err = io.WriteString(w, checkSummary(file, cfg, found))
		}
	}
	if err == nil && opts.Effective != nil && cfg != nil {
		err = config.Print(opts.Effective, cfg)
	}
	if err != nil {
		fmt.Fprintf(w, "%s: %v\n", file, err)
		return exitFailed
	}
	return status
}

// checkSummary says in a few lines what a file came to.
func checkSummary(file string, cfg *config.Config, found diag.List) string {
	var b strings.Builder
	var counts []string
	for _, sev := range []diag.Severity{diag.Fatal, diag.Error, diag.Warning, diag.Notice} {
		if n := found.Count(sev); n > 0 {
			name := sev.String()
			if sev == diag.Fatal {
				name = "fatal error"
			}
			counts = append(counts, plural(n, name))
		}
	}
	if counts == nil {
		counts = []string{"nothing to report"}
	}
	fmt.Fprintf(&b, "%s: %s\n", file, strings.Join(counts, ", "))
	if cfg == nil {
		b.WriteString("  nothing can be run from it\n")
		return b.String()
	}
	servers := 0
	for _, vs := range cfg.VirtualServers {
		servers += len(vs.RealServers)
	}
	fmt.Fprintf(&b, "  %s with %s in %s\n", plural(len(cfg.VirtualServers), "virtual server"),
		plural(servers, "real server"), plural(len(cfg.Files), "file"))
	b.WriteString(scriptSummary(cfg))
	if len(cfg.Files) > 1 {
		for _, f := range cfg.Files {
			fmt.Fprintf(&b, "    %s\n", f)
		}
	}
	return b.String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
