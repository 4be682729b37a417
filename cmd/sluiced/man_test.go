package main

import (
	"errors"
	"flag"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sluice-lb/sluice/packaging/man"
)

var update = flag.Bool("update", false, "rewrite sluiced.8")

// TestManPage makes sluiced(8) of the help and the options.
func TestManPage(t *testing.T) {
	p := man.New("sluiced", 8, "health-checking IPVS daemon, compatible with keepalived")
	p.Section("Synopsis")
	p.Paragraph("`sluiced` [options]")
	p.Section("Description")
	_, text, _ := strings.Cut(usage, "\n\n") // the synopsis
	described, _, _ := strings.Cut(text, "\n\nSignals:")
	p.Prose(described)
	groups := define(new(options))
	for i, g := range groups {
		title := "Options: " + g.title
		if i == 0 {
			title = "Options as with keepalived"
		}
		p.Section(title)
		p.Flags(g.flags)
	}
	if front := p.Sections(strings.TrimSpace(text)); !strings.HasPrefix(front, described) {
		t.Errorf("the help has more in front of its sections than %q", described)
	}
	p.Section("Environment")
	p.Item("`NOTIFY_SOCKET`, `WATCHDOG_USEC`", "Set by systemd: where the daemon says that it is ready, that it reloads and that it lives.")
	p.Section("Files")
	p.Item("`/etc/keepalived/keepalived.conf`", "The configuration; see `sluice.conf`(5).")
	p.Item("`/run/sluice/sluiced.sock`", "The control socket, which `sluice`(1) asks.")
	p.Item("`/var/lib/sluice/state.json`", "What survives a restart: verdicts, drains, what operators set.")
	p.Section("See also")
	p.Paragraph("`sluice`(1), `sluice.conf`(5), `keepalived`(8), `ipvsadm`(8)")
	if err := man.Current("../../packaging/man/sluiced.8", p.Bytes(), *update); err != nil {
		t.Error(err)
	}
	if err := man.Lint(t.Context(), p.Bytes()); err != nil && !errors.Is(err, man.ErrNoGroff) {
		t.Error(err)
	}
	plain := man.Plain(p.Bytes())
	for _, g := range groups {
		g.flags.VisitAll(func(f *pflag.Flag) {
			tag := "--" + f.Name
			if f.Shorthand != "" {
				tag = "-" + f.Shorthand + ", " + tag
			}
			if !regexp.MustCompile(`(?m)^` + tag + `($|[=[])`).MatchString(plain) {
				t.Errorf("without %s", tag)
			}
		})
	}
	for _, want := range []string{"\nHUP\n", "\nTERM, INT\n", "\nUSR1\n", "\n75\nMade way"} {
		if !strings.Contains(plain, want) {
			t.Errorf("without %q", want)
		}
	}
}
