package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/host"
)

// CommandLine are the options that overrule the configuration or concern the
// process alone, named as keepalived's.
type CommandLine struct {
	// DontRelease leaves the table as it is at the stop, whatever on_stop says.
	DontRelease bool
	// NetNamespace, unless "", overrules net_namespace.
	NetNamespace string
	// Umask, unless nil, overrules umask.
	Umask *uint32
	// AllConfig has every include check on from the start.
	AllConfig bool
	// PIDFiles are written once the process is in its namespace.
	PIDFiles []string
	// Dump, unless nil, takes the effective configuration at the start.
	Dump io.Writer
	// LogAddresses logs each change of the machine's addresses.
	LogAddresses bool
	// Notes are what an operator should know of the options, logged once the
	// process is in its namespace and so no longer executes itself again.
	Notes []string
	// IgnoreInterrupt is for SIGINT.
	IgnoreInterrupt bool
}

// overrule changes a configuration as the command line says.
func (c CommandLine) overrule(cfg *config.Config) {
	if cfg == nil {
		return
	}
	g := &cfg.Global
	if c.DontRelease {
		g.OnStop, g.LVSFlushOnStop = config.OnStopKeep, ""
	}
	if c.NetNamespace != "" {
		g.NetNamespace = c.NetNamespace
	}
	if c.Umask != nil {
		g.Process.Umask, g.Process.UmaskSet = *c.Umask, true
	}
}

// note logs the notes.
func (c CommandLine) note(log *slog.Logger) {
	for _, n := range c.Notes {
		log.Warn("An option has no effect", event.Key, event.SettingIgnored, "option", n)
	}
}

// dump writes the effective configuration.
func (c CommandLine) dump(log *slog.Logger, cfg *config.Config) {
	if c.Dump == nil {
		return
	}
	if err := config.Print(c.Dump, cfg); err != nil {
		log.Warn("The configuration was not printed", event.Key, event.FileFailed, "err", err)
	}
}

// logAddresses logs changes of the machine's addresses until the context ends.
func (d *daemon) logAddresses(ctx context.Context) error {
	var had map[netip.Addr]bool
	return host.WatchAddresses(ctx, func(has map[netip.Addr]bool) {
		if had != nil {
			for _, line := range addressChanges(had, has) {
				d.log.Info(line, event.Key, event.AddressMoved)
			}
		}
		had = has
	})
}

func addressChanges(had, has map[netip.Addr]bool) (lines []string) {
	for _, c := range []struct {
		what     string
		from, to map[netip.Addr]bool
	}{{"gone", had, has}, {"added", has, had}} {
		for _, a := range slices.SortedFunc(maps.Keys(c.from), netip.Addr.Compare) {
			if !c.to[a] {
				lines = append(lines, fmt.Sprintf("Address %s %s", a, c.what))
			}
		}
	}
	return lines
}
