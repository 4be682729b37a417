// Command sluice is what an operator types: it asks a running sluiced how its pools
// are and why, changes what real servers get, and checks configuration files and
// machines.
//
// Each verb is a file. What a verb finds is on stdout, what went wrong and progress on
// stderr. Exit statuses are each verb's own, told by its --help, and never change their
// meaning; some are common to all: 0 done, 3 the daemon cannot be reached, 64 the
// command line makes no sense.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Exit statuses of every verb besides its own.
const (
	exitOK          = 0
	exitUsage       = 64
	exitUnreachable = 3
)

// exit ends a verb with a status, when all there was to say is said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// ended makes of a verb's status what a command returns.
func ended(status int) error {
	if status == exitOK {
		return nil
	}
	return exit(status)
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	root := newRoot(&app{stdout: stdout, stderr: stderr})
	if args == nil {
		args = []string{} // nil is this program's own arguments
	}
	root.SetArgs(args)
	err := root.Execute()
	if status, ok := errors.AsType[exit](err); ok {
		return int(status)
	}
	if err != nil {
		fmt.Fprintf(stderr, "sluice: %v\n", err)
		return exitUsage
	}
	return exitOK
}
