package syntax

import (
	"io"
	"io/fs"
	"path"
	"strings"
)

// Memory resolves files from memory: names to contents. Its working directory
// is "/", its files are readable and not executable. It is for tests and for
// configurations that never were files.
type Memory map[string]string

// Open returns a file's content.
func (m Memory) Open(name string) (io.ReadCloser, error) {
	text, ok := m[m.find(name)]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

// find returns the key of a name.
func (m Memory) find(name string) string {
	abs := rooted(name)
	for _, key := range []string{name, abs, abs[1:]} {
		if _, ok := m[key]; ok {
			return key
		}
	}
	return name
}

func rooted(name string) string { return path.Clean("/" + name) }

// Stat describes a file, or a directory that has files in it.
func (m Memory) Stat(name string) (FileInfo, error) {
	abs := rooted(name)
	if _, ok := m[m.find(name)]; ok {
		return FileInfo{Mode: 0o644, ID: abs}, nil
	}
	if names, _ := m.ReadDir(name); len(names) > 0 {
		return FileInfo{Mode: fs.ModeDir | 0o755, ID: abs}, nil
	}
	return FileInfo{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
}

// ReadDir returns the names below a directory.
func (m Memory) ReadDir(dir string) ([]string, error) {
	prefix := strings.TrimSuffix(rooted(dir), "/") + "/"
	seen := map[string]bool{}
	var names []string
	for key := range m {
		rest, ok := strings.CutPrefix(rooted(key), prefix)
		if !ok || rest == "" {
			continue
		}
		if rest, _, _ = strings.Cut(rest, "/"); !seen[rest] {
			seen[rest] = true
			names = append(names, rest)
		}
	}
	if names == nil {
		return nil, &fs.PathError{Op: "readdir", Path: dir, Err: fs.ErrNotExist}
	}
	return names, nil
}

// Abs returns the absolute form of a name.
func (Memory) Abs(name string) (string, error) { return rooted(name), nil }
