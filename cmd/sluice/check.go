package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-lb/sluice/internal/build"
	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/daemon"
)

func newCheck(a *app) *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check FILE... [options]",
		Short: "check configuration files; changes nothing",
		Long: `Reads configuration files as sluiced does, prints every finding, and changes nothing.

Exit statuses (with several files the last that is not 0; as keepalived -t):
  0  nothing that keepalived -t would report
  2  a required parameter is missing
  4  a file is missing or cannot be read
  5  errors
  6  script security, or an include check was violated`,
		RunE: func(cmd *cobra.Command, args []string) error { return ended(a.check(cmd, args, o)) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.id, "config-id", "i", "", "`ID` for conditional lines (@ID)")
	flags.BoolVar(&o.asJSON, "json", false, "print the findings as JSON")
	flags.BoolVar(&o.strict, "strict", false, "an error that keepalived would live with fails the file")
	flags.BoolVar(&o.effective, "effective", false, "print the configuration with every default and inherited value")
	return cmd
}

type checkOptions struct {
	id                        string
	asJSON, strict, effective bool
}

func (a *app) check(cmd *cobra.Command, files []string, o checkOptions) int {
	if len(files) == 0 {
		fmt.Fprintln(a.stderr, "sluice check: which file?\n  try: sluice check /etc/keepalived/keepalived.conf")
		return exitUsage
	}
	status := exitOK
	for _, file := range files {
		opts := daemon.CheckOptions{ConfigID: o.id, Strict: o.strict, JSON: o.asJSON, Summary: !o.effective, Color: colour(a.stdout)}
		findings := a.stdout
		if o.effective {
			opts.Effective, findings = a.stdout, a.stderr
		}
		if s := daemon.Check(findings, file, opts); s != 0 {
			status = s
		}
	}
	return status
}

func newVersion(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  a.operands(0),
		Run: func(*cobra.Command, []string) {
			if asJSON {
				a.encode(control.Version{Version: build.String(), Schema: control.Schema})
				return
			}
			fmt.Fprintf(a.stdout, "sluice %s\n", build.String())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print it as JSON, with the version of all that is JSON (docs/json.md)")
	return cmd
}
