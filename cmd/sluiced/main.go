// Command sluiced is the daemon: it checks real servers and keeps the kernel's
// IPVS table in step with the verdicts.
//
// Its command line is keepalived's where that makes sense for checkers alone, with
// a line for each option that has nothing to act on, so that a unit file needs no
// change but the program's name. An option that asks for something else than
// checkers is refused: to start as if it had been done would be worse.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/build"
	"github.com/sluice-lb/sluice/internal/daemon"
)

const usage = `Usage: sluiced [options]

Checks the real servers of the LVS half of a keepalived.conf and keeps the
kernel's IPVS table in step with the verdicts. Runs in the foreground.

Signals:
  HUP   read the configuration again; a refused one changes nothing
  USR1  write the present state to the log, and to state_dump_file if that is set
  TERM, INT  stop, leaving the table as on_stop says (default: remove); once more:
             end the wait of on_stop drain

Exit statuses:
  0  stopped as told, or (-t) nothing to report
  1  could not start (so does a wrong option), or stopped after a failure
  2  the configuration lacks a required parameter
  4  a configuration file is missing or cannot be read
  5  the configuration has errors
  6  script security, or an include check was violated
  75 made way for the next process (sluice handover), the table as it is
`

const exitUsage = 1

func init() {
	// Nobody reads the heap's profile, whose table alone is 1.4 MB.
	runtime.MemProfileRate = 0
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && (args[0] == "-T" || args[0] == "--genhash") {
		return genhash(args[1:], stdout, stderr)
	}
	o, flags, groups, err := parse(args)
	told, refusals := notes(flags)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "sluiced: %v\ntry: sluiced --help\n", err)
		return exitUsage
	case given(flags, "help"):
		fmt.Fprint(stdout, help(groups))
		return 0
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "sluiced: unexpected argument %q\n  a configuration is named with -f: sluiced -f %s\n", flags.Arg(0), flags.Arg(0))
		return exitUsage
	case given(flags, "genhash"):
		fmt.Fprintln(stderr, "sluiced: --genhash must be the first option")
		return exitUsage
	case o.version:
		fmt.Fprintf(stdout, "sluiced %s\n", build.String())
		return 0
	case given(flags, "signum"):
		fmt.Fprintln(stdout, int(o.signum))
		return 0
	case len(refusals) > 0:
		fmt.Fprintf(stderr, "sluiced: %s\n", strings.Join(refusals, "\nsluiced: "))
		return exitUsage
	case o.test.given:
		return test(stderr, o)
	}
	return start(stderr, o, told)
}

func parse(args []string) (o options, flags *pflag.FlagSet, groups []group, err error) {
	flags = newSet()
	flags.SetOutput(io.Discard)
	groups = define(&o)
	for _, g := range groups {
		flags.AddFlagSet(g.flags)
	}
	if args, err = normalize(flags, args); err == nil {
		err = flags.Parse(args)
	}
	o.daemon.Umask = o.mask.value
	for _, path := range []string{o.pid, o.checkersPID} {
		if path != "" {
			o.daemon.PIDFiles = append(o.daemon.PIDFiles, path)
		}
	}
	return o, flags, groups, err
}

func given(flags *pflag.FlagSet, name string) bool { return flags.Lookup(name).Changed }

func help(groups []group) string {
	var b strings.Builder
	b.WriteString(usage)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n%s:\n", g.title)
		g.flags.VisitAll(func(f *pflag.Flag) { b.WriteString(helpLine(f)) })
	}
	return b.String()
}

// helpLine is not pflag's, which says of each switch that it takes true or false.
func helpLine(f *pflag.Flag) string {
	value, text := pflag.UnquoteUsage(f)
	name := "    --" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", --" + f.Name
	}
	switch {
	case f.NoOptDefVal == standardError:
		name += "[=" + value + "]"
	case f.NoOptDefVal == "":
		name += "=" + value
	}
	if f.DefValue != "" && f.Value.Type() == "string" {
		text += " (default " + f.DefValue + ")"
	}
	if len(name) > 30 {
		return fmt.Sprintf("  %s\n%34s%s\n", name, "", text)
	}
	return fmt.Sprintf("  %-30s  %s\n", name, text)
}

// test is -t.
func test(stderr io.Writer, o options) int {
	w := stderr
	if o.test.file != "" {
		f, err := appendTo(o.test.file)
		if err != nil {
			fmt.Fprintf(stderr, "sluiced: --config-test: %v\n", err)
			return exitUsage
		}
		defer f.Close()
		w = f
	}
	return daemon.Check(w, o.file, daemon.CheckOptions{ConfigID: o.id, AllConfig: o.daemon.AllConfig, Strict: o.strict, JSON: o.json})
}

// start runs the daemon.
func start(stderr io.Writer, o options, told []string) int {
	var at slog.Level
	if err := at.UnmarshalText([]byte(o.level)); err != nil {
		fmt.Fprintf(stderr, "sluiced: --log-level %q: want debug, info, warn or error\n", o.level)
		return exitUsage
	}
	if o.detail > 0 {
		at = slog.LevelDebug
	}
	w := stderr
	switch {
	case o.logFile.file != "":
		f, err := appendTo(o.logFile.file)
		if err != nil {
			fmt.Fprintf(stderr, "sluiced: --log-file: %v\n", err)
			return exitUsage
		}
		defer f.Close()
		w = f
	case o.logFile.given:
		told = append(told, "--log-file: no file is named, the log goes to standard error: --log-file=FILE")
	}
	log, err := daemon.NewLogger(w, o.format, at)
	if err != nil {
		fmt.Fprintf(stderr, "sluiced: %v\n", err)
		return exitUsage
	}
	o.daemon.Notes = told
	if o.dump {
		o.daemon.Dump = w
	}
	return daemon.Run(context.Background(), daemon.Options{
		File: o.file, ConfigID: o.id, Strict: o.strict, Observe: o.observe, Socket: o.socket, StateDir: o.stateDir, Log: log, CommandLine: o.daemon,
	})
}

// appendTo opens a log. A link that somebody else put in its place is not
// followed.
func appendTo(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o640)
}
