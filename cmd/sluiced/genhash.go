package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/sluice-lb/sluice/internal/daemon"
)

const genhashUsage = `Usage: sluiced --genhash [options] [URL]

Prints the digest of a page, for a url's digest; the same as sluice genhash.

Options:
`

// genhash is -T, whose options are its own: what stands behind it is no option of the
// daemon.
func genhash(args []string, stdout, stderr io.Writer) int {
	var g daemon.Genhash
	flags := newSet()
	flags.SetOutput(io.Discard)
	g.Define(flags)
	flags.BoolP("help", "h", false, "print this and exit")
	err := flags.Parse(args)
	switch {
	case err != nil:
	case given(flags, "help"):
		fmt.Fprint(stdout, genhashUsage)
		flags.VisitAll(func(f *pflag.Flag) { fmt.Fprint(stdout, helpLine(f)) })
		return 0
	case flags.NArg() > 1:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(1))
	default:
		err = g.Take(flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "sluiced: --genhash: %v\ntry: sluiced --genhash --help\n", err)
		return exitUsage
	}
	if err := g.Run(context.Background(), stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "sluiced: --genhash: %v\n", err)
		return 1
	}
	return 0
}
