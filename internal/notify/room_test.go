package notify

import (
	"os"
	"os/user"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
)

// needRoot skips what only root can set up.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make files of other owners and run scripts as other users")
	}
}

// nobody is the other user of these tests.
func nobody(t *testing.T) *user.User {
	t.Helper()
	needRoot(t)
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// room is a directory that everybody may search, with files of a test.
type room struct {
	*testing.T
	dir string
}

func newRoom(t *testing.T) *room {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &room{t, dir}
}

func (r *room) path(name string) string { return filepath.Join(r.dir, name) }

func (r *room) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// file writes a file with its folder and exactly these mode bits.
func (r *room) file(name, content string, mode os.FileMode) string {
	r.Helper()
	p := r.path(name)
	r.must(os.MkdirAll(filepath.Dir(p), 0o755))
	r.must(os.WriteFile(p, []byte(content), 0o600))
	r.must(os.Chmod(p, mode))
	return p
}

func (r *room) script(name, body string) string {
	r.Helper()
	return r.file(name, "#!/bin/sh\n"+body+"\n", 0o755)
}

// fifo makes a FIFO that every user may use.
func (r *room) fifo(name string) string {
	r.Helper()
	p := r.path(name)
	r.must(unix.Mkfifo(p, 0o666))
	r.must(os.Chmod(p, 0o666))
	return p
}

func command(argv ...string) *config.Script { return &config.Script{Argv: argv} }
