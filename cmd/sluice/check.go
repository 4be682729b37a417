package main

import (
	"fmt"
	"io"

	"github.com/sluice-lb/sluice/internal/build"
	"github.com/sluice-lb/sluice/internal/daemon"
)

const checkUsage = `Usage: sluice check [options] FILE...

Reads configuration files as sluiced does, prints every finding, and changes nothing.

Exit statuses (with several files the last that is not 0; as keepalived -t):
  0  nothing that keepalived -t would report
  2  a required parameter is missing
  4  a file is missing or cannot be read
  5  errors
  6  script security, or an include check was violated
`

func runCheck(args []string, stdout, stderr io.Writer) int {
	flags := flagSet("check", checkUsage, stderr)
	id := flags.StringP("config-id", "i", "", "`ID` for conditional lines (@ID)")
	asJSON := flags.Bool("json", false, "print the findings as JSON")
	strict := flags.Bool("strict", false, "an error that keepalived would live with fails the file")
	effective := flags.Bool("effective", false, "print the configuration with every default and inherited value")
	if status, over := parse(flags, args, -1, stderr); over {
		return status
	}
	if flags.NArg() == 0 {
		fmt.Fprintln(stderr, "sluice check: which file?\n  try: sluice check /etc/keepalived/keepalived.conf")
		return exitUsage
	}
	status := exitOK
	for _, file := range flags.Args() {
		opts := daemon.CheckOptions{ConfigID: *id, Strict: *strict, JSON: *asJSON, Summary: !*effective, Color: colour(stdout)}
		if *effective {
			opts.Effective = stdout
		}
		findings := stdout
		if *effective {
			findings = stderr
		}
		if s := daemon.Check(findings, file, opts); s != 0 {
			status = s
		}
	}
	return status
}

func runVersion(_ []string, stdout, _ io.Writer) int {
	fmt.Fprintf(stdout, "sluice %s\n", build.String())
	return exitOK
}
