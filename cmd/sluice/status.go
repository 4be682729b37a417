package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/sluice-lb/sluice/internal/build"
	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/control/render"
)

const statusUsage = `Usage: sluice status [options]

Shows for each virtual server whether it has quorum, and for each real server its
state and why, the weight wanted and the one in the kernel, its connections, and
what a drain still waits for.

Exit statuses:
  0  every virtual server shown has quorum without being at its floor (min_alive),
     and the kernel's table can be written
  1  some has not, or is, or it cannot
  2  --vs matches nothing
  3  the daemon cannot be reached
`

func runStatus(args []string, stdout, stderr io.Writer) int {
	flags := flagSet("status", statusUsage, stderr)
	socket := socketFlag(flags)
	asJSON := flags.Bool("json", false, "print the state as JSON")
	wide := flags.Bool("wide", false, "a line for each checker, track file and kernel service")
	foreign := flags.Bool("foreign", false, "also the services in the kernel's table that are not ours")
	filter := flags.String("vs", "", "only virtual servers whose name, service or server contains `TEXT`")
	if status, over := parse(flags, args, 0, stderr); over {
		return status
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var parts []control.Part
	if *foreign {
		parts = append(parts, control.Foreign)
	}
	s, err := control.NewClient(*socket).Status(ctx, parts...)
	if err != nil {
		fmt.Fprintf(stderr, "sluice status: %v\n", err)
		return exitUnreachable
	}
	if *foreign && s.Foreign == nil {
		fmt.Fprintln(stderr, "sluice status: this sluiced cannot list foreign services, it is older than sluice")
	}
	var result render.Result
	if *asJSON {
		s.VirtualServers, s.Leaving, result = render.Select(s, *filter)
		s.Foreign = render.SelectForeign(s.Foreign, *filter)
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(s)
	} else {
		result, err = render.Status(stdout, s, render.Options{Wide: *wide, Filter: *filter, Color: colour(stdout), Version: build.String()})
	}
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "sluice status: %v\n", err)
		return 1
	case *filter != "" && result.Shown == 0:
		fmt.Fprintf(stderr, "sluice status: no virtual server matches %q\n", *filter)
		return 2
	case !result.Healthy:
		return 1
	}
	return exitOK
}

// colour reports whether w is a terminal whose user has not said no.
func colour(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal(w)
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}
