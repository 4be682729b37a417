package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-lb/sluice/internal/daemon"
)

// exitOtherDigest is genhash's: --check names another digest.
const exitOtherDigest = 2

func newGenhash(a *app) *cobra.Command {
	var g daemon.Genhash
	cmd := &cobra.Command{
		Use:   "genhash [URL] [options]",
		Short: "the digest of a page, for a url's digest",
		Long: `Asks a web server for a page just as HTTP_GET does, or SSL_GET for https and -S, and
prints the MD5 of the body, which is what the digest of a url block is compared with.
Any status of the answer counts. The daemon is not asked.

URL is http://HOST:PORT/PATH or https://. If HOST is a name, its first address is
asked, with that name as virtual host.

Options and output are those of keepalived's genhash, but that a failure has an exit
status.

Exit statuses:
  0  the digest is printed
  1  there is none: why is on standard error
  2  --check: the page has another digest`,
		Args: a.operands(1),
		RunE: func(cmd *cobra.Command, args []string) error { return ended(a.genhash(cmd, &g, args)) },
	}
	g.Define(cmd.Flags())
	return cmd
}

func (a *app) genhash(cmd *cobra.Command, g *daemon.Genhash, args []string) int {
	target := ""
	if len(args) > 0 {
		target = args[0]
	}
	if err := g.Take(target); err != nil {
		return a.misused(cmd, err.Error())
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := g.Run(ctx, a.stdout, a.stderr)
	switch {
	case errors.Is(err, daemon.ErrOtherDigest):
		return a.failed(cmd, err, exitOtherDigest)
	case err != nil:
		return a.failed(cmd, err, 1)
	}
	return exitOK
}
