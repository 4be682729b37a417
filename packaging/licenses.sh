#!/bin/sh
# Prints the licences of what is linked into the programs: Go's, and each module's.
set -eu

go=${GO:-go}
echo "The programs of this package are linked statically. Besides sluice's own they
contain the work of others, under the terms below."
license() {
	printf '\n\n==== %s\n\n' "$1"
	cat "$2"/LICENSE*
	if [ -e "$2/NOTICE" ]; then
		echo
		cat "$2/NOTICE"
	fi
}
license "Go's standard library and runtime" "$($go env GOROOT)"
$go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}	{{.Dir}}{{end}}{{end}}' ./cmd/... | sort -u |
	while IFS='	' read -r module dir; do license "$module" "$dir"; done
