package main

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-lb/sluice/packaging/man"
)

var update = flag.Bool("update", false, "rewrite sluice.1")

// TestManPage makes sluice(1) of the verbs.
func TestManPage(t *testing.T) {
	t.Setenv("SLUICE_SOCKET", "")
	root := newRoot(&app{stdout: io.Discard, stderr: io.Discard})
	p := man.Verbs(root, 1)
	p.Section("Exit status")
	p.Paragraph("Each verb tells its own above; these are common to all.")
	p.Item("**0**", "Done.")
	p.Item("**3**", "The daemon cannot be reached.")
	p.Item("**64**", "The command line makes no sense.")
	p.Section("Environment")
	p.Item("`SLUICE_SOCKET`", "The daemon's control socket, where `--socket` does not say.")
	p.Item("`NO_COLOR`", "Not empty: no colour, on a terminal either.")
	p.Section("Files")
	p.Item("`/run/sluice/sluiced.sock`", "The control socket.")
	p.Section("See also")
	p.Paragraph("`sluiced`(8), `sluice.conf`(5), `ipvsadm`(8)")
	if err := man.Current("../../packaging/man/sluice.1", p.Bytes(), *update); err != nil {
		t.Error(err)
	}
	if err := man.Lint(t.Context(), p.Bytes()); err != nil && !errors.Is(err, man.ErrNoGroff) {
		t.Error(err)
	}
	plain := man.Plain(p.Bytes())
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		// cobra's own help needs no telling.
		if c.Hidden || c.Name() == "help" {
			return
		}
		if !strings.Contains(plain, c.CommandPath()+" ") && !strings.Contains(plain, c.CommandPath()+`"`) {
			t.Errorf("without the verb %q", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(plain, "--"+f.Name) {
				t.Errorf("without --%s of %q", f.Name, c.CommandPath())
			}
		})
		for _, below := range c.Commands() {
			look(below)
		}
	}
	look(root)
}
