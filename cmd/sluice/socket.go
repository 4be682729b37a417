package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-lb/sluice/internal/control"
)

const defaultSocket = control.DefaultSocket

// timeout bounds a whole verb that asks the daemon.
const timeout = 15 * time.Second

// flagSet makes a verb's flags; usage is printed above them.
func flagSet(name, usage string, stderr io.Writer) *pflag.FlagSet {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage+"\nOptions:\n"+flags.FlagUsages()) }
	return flags
}

// parse returns an exit status and true when the verb is over before it began.
func parse(flags *pflag.FlagSet, args []string, operands int, stderr io.Writer) (int, bool) {
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return exitOK, true
	case err != nil:
		fmt.Fprintf(stderr, "sluice %s: %v\n  try: sluice %s --help\n", flags.Name(), err, flags.Name())
		return exitUsage, true
	case operands >= 0 && flags.NArg() > operands:
		fmt.Fprintf(stderr, "sluice %s: unexpected argument %q\n  try: sluice %s --help\n", flags.Name(), flags.Arg(operands), flags.Name())
		return exitUsage, true
	}
	return 0, false
}

func socketFlag(flags *pflag.FlagSet) *string {
	at := defaultSocket
	if env := os.Getenv("SLUICE_SOCKET"); env != "" {
		at = env
	}
	return flags.String("socket", at, "the daemon's control socket `PATH`")
}
