package machine

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// UnpackPackage fetches a package of a Debian suite, "" for the machine's own, with the
// libraries that it depends on, once, and returns the folder into which they are
// unpacked. Nothing is installed, and no daemon is enabled or started: what is in there
// runs with Loader.
func UnpackPackage(ctx context.Context, log io.Writer, suite, name string) (root string, err error) {
	if err := Install(ctx, log, Tool{"dpkg-deb", "dpkg"}); err != nil {
		return "", err
	}
	suite = foreign(suite)
	cache, err := suiteDir(suite)
	if err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	root = filepath.Join(cache, "package-"+name)
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	fmt.Fprintf(log, "fetching %s, once, into %s\n", name, cache)
	apt, err := newApt(ctx, suite, cache)
	if err != nil {
		return "", err
	}
	// What is installed here is of another release, and must not count.
	apt.options = append(apt.options, "-o", "Dir::State::status=/dev/null")
	packages, err := apt.withLibraries(ctx, name)
	if err != nil {
		return "", err
	}
	// Unpacked beside and renamed, so that a killed run leaves no half tree.
	tmp, err := os.MkdirTemp(cache, "unpack-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	for _, p := range packages {
		if err := apt.unpack(ctx, p, tmp); err != nil {
			return "", err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	return root, os.Rename(tmp, root)
}

// withLibraries lists a package and all libraries that it depends on, directly or
// not.
func (a apt) withLibraries(ctx context.Context, name string) ([]string, error) {
	if !a.exists(ctx, name) {
		if err := aptGet(ctx, append(a.options, "update", "-qq")...); err != nil {
			return nil, err
		}
	}
	args := append(slices.Clone(a.options), "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts",
		"--no-breaks", "--no-replaces", "--no-enhances", name)
	out, err := exec.CommandContext(ctx, "apt-cache", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("apt-cache depends %s: %w", name, err)
	}
	return append([]string{name}, libraries(string(out))...), nil
}

// library matches the package of a library; one that is only a name which others
// provide stands in angle brackets.
var library = regexp.MustCompile(`^lib[a-z0-9.+-]+$`)

// libraries picks them from what apt-cache depends --recurse prints: a package a
// line, and below it, indented, what it depends on.
func libraries(depends string) []string {
	var names []string
	for line := range strings.Lines(depends) {
		if name := strings.TrimRight(line, "\n"); library.MatchString(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Loader returns the words that run a program of an unpacked tree with the tree's
// own loader and libraries, whichever the machine has.
func Loader(root string) ([]string, error) {
	var dirs []string
	for _, d := range []string{"usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"} {
		if _, err := os.Stat(filepath.Join(root, d)); err == nil {
			dirs = append(dirs, filepath.Join(root, d))
		}
	}
	for _, l := range []string{"usr/lib64/ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"} {
		path := filepath.Join(root, l)
		if _, err := os.Stat(path); err == nil {
			return []string{path, "--library-path", strings.Join(dirs, ":")}, nil
		}
	}
	return nil, fmt.Errorf("%s holds no loader", root)
}
