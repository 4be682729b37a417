package machine

import (
	"os"
	"path/filepath"
)

// WorkDir makes a folder in the checkout, which the guest sees; apart for each run, so
// that several may go on at once. remove takes it away.
func WorkDir(name string) (path string, remove func(), err error) {
	if err := os.MkdirAll("bin", 0o755); err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("bin", name+"-")
	if err != nil {
		return "", nil, err
	}
	if path, err = filepath.Abs(dir); err != nil {
		return "", nil, err
	}
	return path, func() { _ = os.RemoveAll(path) }, nil
}
