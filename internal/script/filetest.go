package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// reader is what tells whether another user can read a file.
const reader = "/usr/bin/test"

// IsFileTest says whether a script is no program but a file to be opened: its first
// word begins with < (facts 11.4).
func IsFileTest(s *config.Script) bool {
	return s != nil && len(s.Argv) > 0 && strings.HasPrefix(s.Argv[0], "<")
}

// TestFile is Run for the test of a file: exit status 0 if the script's user can
// open it for reading, else 1 with the reason as output. Nothing is read. keepalived
// has a shell do it.
//
// If that user is the daemon's own, the file is opened, without waiting for a
// writer if it is a FIFO. For others /usr/bin/test -r runs as they. Opening it here
// with their file system identity would cost no process, but takes the daemon its
// core dumps for good (prctl(2), PR_SET_DUMPABLE).
func TestFile(ctx context.Context, c Command) Result {
	began := time.Now()
	path, as, err := fileTest(c.Script, c.Identity)
	switch {
	case err != nil:
		return Result{Err: err}
	case ctx.Err() != nil:
		return Result{Err: fmt.Errorf("not started: %w", context.Cause(ctx)), Stopped: true}
	case as.credential() == nil:
		r := open(path)
		r.Took = time.Since(began)
		return r
	}
	c.Args = nil
	c.Script = &config.Script{Pos: c.Script.Pos, Argv: []string{reader, "-r", path}, User: c.Script.User, Group: c.Script.Group}
	r := Run(ctx, c)
	if r.Err == nil && r.Code == 1 && r.Output == "" {
		if r.Output = fmt.Sprintf("%s cannot read %s", as, path); !exists(path) {
			r.Output = path + " does not exist"
		}
	}
	return r
}

// CheckFileTest is Check for the test of a file. Whether the file can be opened is
// not its business.
func CheckFileTest(s *config.Script, id Identity) error {
	_, _, err := fileTest(s, id)
	return err
}

func fileTest(s *config.Script, id Identity) (path string, as account, err error) {
	words := append([]string{strings.TrimPrefix(s.Argv[0], "<")}, s.Argv[1:]...)
	if words[0] == "" { // "< /path"
		words = words[1:]
	}
	switch {
	case len(words) == 0:
		return "", as, errors.New("<: the test of a file is < and an absolute path")
	case !strings.HasPrefix(words[0], "/"):
		return "", as, fmt.Errorf("<%s: the test of a file is < and an absolute path", words[0])
	case len(words) > 1: // they may be secret, and are not told
		return "", as, fmt.Errorf("<%s: the test of a file is < and one path, and runs no program; behind the path stands something else", words[0])
	}
	as, err = lookup(s, id)
	return words[0], as, err
}

func open(path string) Result {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case err == nil:
		f.Close()
		return Result{}
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return Result{Err: err}
	}
	return Result{Code: 1, Output: err.Error()}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}
