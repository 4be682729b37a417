// Package docs holds the documentation to what the programs do.
//
// Every fenced block of the language console in README.md and docs/*.md is run, in the
// order of its page and in one shell for each page, and what it prints is compared with
// what the page says, line by line:
//
//	```console
//	# sluice version
//	sluice 1.0.0
//	```
//
// A line that begins with "# " is a command, a backslash at its end continues it, and the
// lines up to the next command are its output, of both streams. A line of "..." stands for
// any number of lines.
//
// docs/quickstart.md runs to the letter on a real ip_vs (TestKernelQuickstart). The other
// pages run there too (TestKernelPages), each in a network namespace of its own that has
// the addresses of configs/quickstart.conf, two of its three web servers, and a sluiced with
// that file. Where there is no ip_vs it observes, and what does not need one is compared
// (TestPages). What nobody can run here (a package manager, systemd) is
// marked by a comment in front of the block, which says why; the number of those is bounded:
//
//	<!-- not run: needs systemd -->
//
// # Decisions
//
//   - What varies is made equal on both sides before they are compared, rather than
//     replaced by placeholders in the page: readers see times and versions as they look.
//     The list is short and stands in shape_test.go: times, durations, versions, process
//     numbers, the kernel's release, counts of operations and of repeated checks, and how
//     many blanks align a column.
//   - -update replaces the output of those commands alone whose output differs, so that a
//     page does not change because time went by.
//   - The shell gets no terminal, as in a pipe: no progress and no colour.
//
// To take the outputs anew:
//
//	make build
//	CGO_ENABLED=0 go test -c -o bin/docs.test ./test/docs
//	go run ./test/vm -e SLUICE_KERNEL=1 -- sh -c 'cd test/docs && ../../bin/docs.test -test.run TestKernel -update'
package docs
