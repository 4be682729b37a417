package testkit

import (
	"os"
	"os/user"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// NeedRoot skips what only root can set up.
func NeedRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make files of other owners and run scripts as other users")
	}
}

// Nobody is another user than root. It needs root.
func Nobody(t *testing.T) *user.User {
	t.Helper()
	NeedRoot(t)
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// Room is a directory that everybody may search, with files of a test.
type Room struct {
	*testing.T
	Dir string
}

// NewRoom makes a directory that ends with the test.
func NewRoom(t *testing.T) *Room {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &Room{t, dir}
}

// Path is that of a file.
func (r *Room) Path(name string) string { return filepath.Join(r.Dir, name) }

// Must ends the test at an error.
func (r *Room) Must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// File writes a file with its folder and exactly these mode bits.
func (r *Room) File(name, content string, mode os.FileMode) string {
	r.Helper()
	p := r.Path(name)
	r.Must(os.MkdirAll(filepath.Dir(p), 0o755))
	r.Must(os.WriteFile(p, []byte(content), 0o600))
	r.Must(os.Chmod(p, mode))
	return p
}

// Script writes a script for /bin/sh that everybody may run.
func (r *Room) Script(name, body string) string {
	r.Helper()
	return r.File(name, "#!/bin/sh\n"+body+"\n", 0o755)
}

// FIFO makes a FIFO that everybody may use.
func (r *Room) FIFO(name string) string {
	r.Helper()
	p := r.Path(name)
	r.Must(unix.Mkfifo(p, 0o666))
	r.Must(os.Chmod(p, 0o666))
	return p
}
