package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/sluice-lb/sluice/test/diff/guest"
	"github.com/sluice-lb/sluice/test/vm/machine"
)

// keepalived is one of the programs that sluice is compared with.
type keepalived struct {
	guest.Daemon
	version string
}

// findKeepaliveds turns the words of -keepalived into programs.
func findKeepaliveds(ctx context.Context, words string) ([]keepalived, error) {
	var all []keepalived
	for word := range strings.SplitSeq(words, ",") {
		argv, err := findKeepalived(ctx, word)
		if err != nil {
			return nil, fmt.Errorf("keepalived %s: %w", word, err)
		}
		version, err := versionOf(ctx, argv)
		if err != nil {
			return nil, fmt.Errorf("keepalived %s: %w", word, err)
		}
		all = append(all, keepalived{guest.Daemon{Name: "keepalived-" + version, Command: argv}, version})
	}
	return all, nil
}

func findKeepalived(ctx context.Context, word string) ([]string, error) {
	switch {
	case word == "system":
		if err := machine.Install(ctx, os.Stderr, machine.Tool{Program: "keepalived", Package: "keepalived"}); err != nil {
			return nil, err
		}
		return []string{"keepalived"}, nil
	case strings.Contains(word, "/"):
		path, err := filepath.Abs(word)
		return []string{path}, err
	}
	return unpackedKeepalived(ctx, word)
}

var versionLine = regexp.MustCompile(`Keepalived v([0-9.]+)`)

func versionOf(ctx context.Context, argv []string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], "-v")...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, err := cmd.CombinedOutput()
	if m := versionLine.FindSubmatch(out); m != nil {
		return string(m[1]), nil
	}
	return "", fmt.Errorf("%s -v does not tell the version: %w: %s", strings.Join(argv, " "), err, out)
}

func unpackedKeepalived(context.Context, string) ([]string, error) {
	return nil, fmt.Errorf("not there yet")
}
