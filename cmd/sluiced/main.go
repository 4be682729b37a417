// Command sluiced is the daemon: it checks real servers and keeps the kernel's
// IPVS table in step with the verdicts.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"github.com/sluice-lb/sluice/internal/build"
	"github.com/sluice-lb/sluice/internal/daemon"
)

const usage = `Usage: sluiced [options]

Checks the real servers of the LVS half of a keepalived.conf and keeps the
kernel's IPVS table in step with the verdicts. Runs in the foreground.

Signals:
  HUP   read the configuration again; a refused one changes nothing
  USR1  write the present state to the log
  TERM, INT  stop, leaving the table as on_stop says (default: remove)

Exit statuses:
  0  stopped as told, or (-t) nothing to report
  1  could not start, or stopped after a failure
  2  the configuration lacks a required parameter
  4  a configuration file is missing or cannot be read
  5  the configuration has errors
  6  script security, or an include check was violated

Options:
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("sluiced", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(stderr)
	var (
		file     = flags.StringP("use-file", "f", "/etc/keepalived/keepalived.conf", "configuration `FILE`")
		test     = flags.BoolP("config-test", "t", false, "check the configuration, change nothing, and exit")
		strict   = flags.Bool("strict", false, "refuse a configuration with errors that keepalived would live with")
		observe  = flags.Bool("observe", false, "check, decide and report, but write nothing to the kernel")
		id       = flags.StringP("config-id", "i", "", "`ID` for conditional lines (@ID); default: the host name up to the first dot")
		socket   = flags.String("socket", daemon.DefaultSocket, "control socket `PATH`; empty for none")
		format   = flags.String("log-format", "text", "text or json")
		level    = flags.String("log-level", "info", "debug, info, warn or error")
		version  = flags.BoolP("version", "v", false, "print the version and exit")
		_        = flags.BoolP("dont-fork", "n", false, "accepted for keepalived's sake: sluiced never forks")
		_        = flags.BoolP("log-console", "l", false, "accepted for keepalived's sake: sluiced logs to standard error")
		detail   = flags.BoolP("log-detail", "D", false, "the same as --log-level debug")
		jsonTest = flags.Bool("json", false, "with -t: findings as JSON")
	)
	flags.Usage = func() { fmt.Fprint(stderr, usage+flags.FlagUsages()) }
	switch err := flags.Parse(args); {
	case err == pflag.ErrHelp:
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "sluiced: %v\ntry: sluiced --help\n", err)
		return 1
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "sluiced: unexpected argument %q\n  a configuration is named with -f: sluiced -f %s\n", flags.Arg(0), flags.Arg(0))
		return 1
	}
	if *version {
		fmt.Fprintf(stdout, "sluiced %s\n", build.String())
		return 0
	}
	if *test {
		return daemon.Check(stderr, *file, daemon.CheckOptions{ConfigID: *id, Strict: *strict, JSON: *jsonTest})
	}
	var at slog.Level
	if err := at.UnmarshalText([]byte(*level)); err != nil {
		fmt.Fprintf(stderr, "sluiced: --log-level %q: want debug, info, warn or error\n", *level)
		return 1
	}
	if *detail {
		at = slog.LevelDebug
	}
	log, err := daemon.NewLogger(stderr, *format, at)
	if err != nil {
		fmt.Fprintf(stderr, "sluiced: %v\n", err)
		return 1
	}
	return daemon.Run(context.Background(), daemon.Options{
		File: *file, ConfigID: *id, Strict: *strict, Observe: *observe, Socket: *socket, Log: log,
	})
}
