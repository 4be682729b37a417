package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// netnsDir is where iproute2 keeps named network namespaces (ip-netns(8)).
const netnsDir = "/run/netns"

// NamespacePath returns the path that names a network namespace, for net_namespace
// and net_namespace_ipvs. The error of a missing one lists those that exist.
func NamespacePath(name string) (string, error) { return namespacePath(netnsDir, name) }

func namespacePath(dir, name string) (string, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') {
		return "", fmt.Errorf("network namespace %q is not a name", name)
	}
	path := filepath.Join(dir, name)
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return "", fmt.Errorf("network namespace %s: %w", name, err)
		}
		return path, nil
	}
	entries, derr := os.ReadDir(dir)
	if derr != nil && !errors.Is(derr, fs.ErrNotExist) {
		return "", fmt.Errorf("network namespace %s: %w", name, derr)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	there := "there are none"
	if len(names) > 0 {
		there = "there are: " + strings.Join(names, ", ")
	}
	return "", fmt.Errorf("network namespace %s: %w; %s; create it with: ip netns add %s", name, err, there, name)
}
