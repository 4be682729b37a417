package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/sluice-lb/sluice/test/vm/machine"
)

// Keepalived is one of the programs that sluice is compared with.
type Keepalived struct {
	Daemon
	Version string
}

// FindKeepaliveds turns words with commas in between into programs: "system", a
// Debian release, or a path.
func FindKeepaliveds(ctx context.Context, words string) ([]Keepalived, error) {
	var all []Keepalived
	for word := range strings.SplitSeq(words, ",") {
		argv, err := findKeepalived(ctx, word)
		if err != nil {
			return nil, fmt.Errorf("keepalived %s: %w", word, err)
		}
		version, err := versionOf(ctx, argv)
		if err != nil {
			return nil, fmt.Errorf("keepalived %s: %w", word, err)
		}
		all = append(all, Keepalived{Daemon{Name: "keepalived-" + version, Command: argv}, version})
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

// unpackedKeepalived fetches the one of a Debian release. It runs with the libraries
// of that release, the loader included: they may want a newer libc than is here. It
// also wants a file of its package below /etc, which it finds in a mount namespace.
func unpackedKeepalived(ctx context.Context, suite string) ([]string, error) {
	root, err := machine.UnpackPackage(ctx, os.Stderr, suite, "keepalived")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll("/etc/keepalived", 0o755); err != nil {
		return nil, err
	}
	loader, err := machine.Loader(root)
	script := `mount --bind "$0" /etc/keepalived && exec "$@"`
	argv := []string{"unshare", "--mount", "/bin/sh", "-c", script, filepath.Join(root, "etc/keepalived")}
	return append(append(argv, loader...), filepath.Join(root, "usr/sbin/keepalived")), err
}

// BuildSluiced builds the daemon of this checkout into a folder, unless another is
// given, and returns its path.
func BuildSluiced(ctx context.Context, given, dir string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	path := filepath.Join(dir, "sluiced")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/sluiced")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build sluiced: %w\n%s", err, text)
	}
	return path, nil
}
