package script

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestIsFileTest(t *testing.T) {
	for word, want := range map[string]bool{"</a": true, "<": true, "<x": true, "/a": false, ">/a": false, "/<": false} {
		if IsFileTest(command(word)) != want {
			t.Errorf("%q: want %t", word, want)
		}
	}
	if IsFileTest(nil) || IsFileTest(&config.Script{}) {
		t.Error("nothing is the test of a file")
	}
}

// TestFileOpens: the same answers for the daemon's own user and for another.
func TestFileOpens(t *testing.T) {
	r := testkit.NewRoom(t)
	all := r.File("all", "x", 0o644)
	dangling := r.Path("dangling")
	r.Must(os.Symlink("nowhere", dangling))
	locked := r.File("locked/f", "x", 0o644)
	r.Must(os.Chmod(r.Path("locked"), 0o700))
	for name, tt := range map[string]struct {
		argv       []string
		own, other string // "" for readable, else what is said
	}{
		"a file":     {argv: []string{"<" + all}},
		"two words":  {argv: []string{"<", all}},
		"directory":  {argv: []string{"<" + r.Dir}},
		"a FIFO":     {argv: []string{"<" + r.FIFO("fifo")}},
		"not there":  {[]string{"<" + r.Path("none")}, "no such file or directory", "/none does not exist"},
		"dangling":   {[]string{"<" + dangling}, "no such file or directory", "/dangling does not exist"},
		"root's own": {[]string{"<" + r.File("secret", "x", 0o600)}, "", "user nobody (uid 65534), group nogroup (gid 65534) cannot read"},
		"behind":     {[]string{"<" + locked}, "", "cannot read"},
	} {
		t.Run(name, func(t *testing.T) {
			for user, want := range map[string]string{"": tt.own, "nobody": tt.other} {
				if user != "" && os.Geteuid() != 0 {
					continue
				}
				s := &config.Script{Argv: tt.argv, User: user}
				res := TestFile(t.Context(), Command{Script: s, Timeout: patience})
				wantError(t, CheckFileTest(s, Identity{}))
				if res.Err != nil || (res.Code == 0) != (want == "") || res.Took <= 0 {
					t.Errorf("user %q: %+v, want %q", user, res, want)
				}
				if want != "" {
					wantError(t, errorString(res.Output), want)
				}
			}
		})
	}
	noChildren(t)
}

type errorString string

func (e errorString) Error() string { return string(e) }

func TestFileRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		s    *config.Script
		want string
	}{
		"no path":   {command("<"), "< and an absolute path"},
		"relative":  {command("<etc/passwd"), "< and an absolute path"},
		"a program": {command("</etc/passwd", "cat"), "one path, and runs no program"},
		"user":      {&config.Script{Argv: []string{"</etc/passwd"}, User: "no-such-user"}, "no-such-user"},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, TestFile(t.Context(), Command{Script: tt.s}).Err, tt.want)
			wantError(t, CheckFileTest(tt.s, Identity{}), tt.want)
		})
	}
	for _, errno := range []syscall.Errno{unix.EMFILE} {
		var lim unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			t.Fatal(err)
		}
		low := lim
		low.Cur = 3
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
			t.Fatal(err)
		}
		res := TestFile(t.Context(), Command{Script: command("</etc/passwd")})
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			t.Fatal(err)
		}
		wantError(t, res.Err, errno.Error())
	}
}
