// Command sluice is what an operator types: it asks a running sluiced how its pools
// are, and checks configuration files.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// Exit statuses of every verb besides its own.
const (
	exitOK          = 0
	exitUsage       = 64
	exitUnreachable = 3
)

// verb is one thing that can be typed; each has a file.
type verb struct {
	name, args, about string
	run               func(args []string, stdout, stderr io.Writer) int
}

func verbs() []verb {
	return []verb{
		{"status", "[--json] [--wide] [--foreign] [--vs FILTER]", "how the pools are, and why", runStatus},
		{"check", "FILE...", "check configuration files; changes nothing", runCheck},
		{"reload", "", "have the daemon read its file again, and say how that ended", runReload},
		{"drain", "VS RS | --server ADDRESS", "take a real server out, keeping its connections", runDrain},
		{"undrain", "VS RS | --server ADDRESS", "put a drained real server back", runUndrain},
		{"weight", "VS RS N|default", "change a real server's weight", runWeight},
		{"drains", "[--json]", "what operators drained and weighed, and what is left on it", runDrains},
		{"handover", "[--wait SECONDS]", "have the daemon make way for a new one, the table as it is", runHandover},
		{"version", "", "print the version", runVersion},
	}
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		help(stderr)
		return exitUsage
	}
	switch args[0] {
	case "help", "-h", "--help":
		help(stdout)
		return exitOK
	case "-v", "--version":
		return runVersion(nil, stdout, stderr)
	}
	var names []string
	for _, v := range verbs() {
		if v.name == args[0] {
			return v.run(args[1:], stdout, stderr)
		}
		names = append(names, v.name)
	}
	fmt.Fprintf(stderr, "sluice: unknown verb %q\n", args[0])
	if s := diag.Suggest(args[0], names); s != "" {
		fmt.Fprintf(stderr, "  did you mean: sluice %s\n", s)
	} else {
		fmt.Fprintln(stderr, "  sluice help lists what there is")
	}
	return exitUsage
}

func help(w io.Writer) {
	fmt.Fprint(w, "Usage: sluice VERB [options]\n\n")
	for _, v := range verbs() {
		fmt.Fprintf(w, "  %-9s%-33s%s\n", v.name, v.args, v.about)
	}
	fmt.Fprint(w, "\nsluice VERB --help says more. The daemon is reached at --socket, else $SLUICE_SOCKET,\nelse "+defaultSocket+".\n")
}
