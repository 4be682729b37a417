package script

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

func command(argv ...string) *config.Script { return &config.Script{Argv: argv} }

// wantError wants an error with all parts, or none for none.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if (err != nil) != (len(parts) > 0) {
		t.Errorf("error %v, want %q", err, parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

// TestX02PathElements: what is wrong is named with owner and mode, and refused when
// keepalived refuses it.
func TestX02PathElements(t *testing.T) {
	other := testkit.Nobody(t)
	for name, tt := range map[string]struct {
		make func(r *testkit.Room) (script string)
		// always is what is refused even without enable_script_security, insecure
		// what is refused with it.
		always, insecure []string
	}{
		"sound": {make: func(r *testkit.Room) string { return r.Script("a/s", "") }},
		"directory of a group": {make: func(r *testkit.Room) string {
			p := r.Script("a/s", "")
			r.Must(os.Chown(filepath.Dir(p), 0, 65534))
			r.Must(os.Chmod(filepath.Dir(p), 0o775))
			return p
		}, insecure: []string{"/a (directory, owner root, group nogroup, mode 0775) is writable by a group other than root", "it would run as user root"}},
		"directory of the group root": {make: func(r *testkit.Room) string {
			p := r.Script("a/s", "")
			r.Must(os.Chmod(filepath.Dir(p), 0o775))
			return p
		}},
		"directory of everybody": {make: func(r *testkit.Room) string {
			p := r.Script("a/s", "")
			r.Must(os.Chmod(filepath.Dir(p), 0o777))
			return p
		}, insecure: []string{"/a (directory, owner root, group root, mode 0777) is writable by everybody"}},
		"sticky directory of everybody": {make: func(r *testkit.Room) string {
			p := r.Script("a/s", "")
			r.Must(os.Chmod(filepath.Dir(p), 0o777|os.ModeSticky))
			return p
		}},
		"directory of a user": {make: func(r *testkit.Room) string {
			p := r.Script("a/b/s", "")
			r.Must(os.Chown(r.Path("a"), 65534, 0))
			return p
		}, insecure: []string{"/a (directory, owner nobody, group root, mode 0755) is not owned by root"}},
		"file of a user": {make: func(r *testkit.Room) string {
			p := r.Script("s", "")
			r.Must(os.Chown(p, 65534, 65534))
			return p
		}, insecure: []string{"/s (file, owner nobody, group nogroup, mode 0755) is not owned by root"}},
		"file of everybody": {make: func(r *testkit.Room) string { return r.File("s", "#!/bin/sh\n", 0o777) },
			insecure: []string{"/s (file, owner root, group root, mode 0777) is writable by everybody"}},
		"symlink to a sound file": {make: func(r *testkit.Room) string {
			r.Must(os.Symlink(r.Script("a/s", ""), r.Path("link")))
			return r.Path("link")
		}},
		"symlink to a file of a user": {make: func(r *testkit.Room) string {
			p := r.Script("a/s", "")
			r.Must(os.Chown(p, 65534, 65534))
			r.Must(os.Symlink(p, r.Path("link")))
			return r.Path("link")
		}, insecure: []string{"/a/s (file, owner nobody"}},
		"symlink of a user": {make: func(r *testkit.Room) string {
			r.Must(os.Symlink(r.Script("a/s", ""), r.Path("link")))
			r.Must(os.Lchown(r.Path("link"), 65534, 65534))
			return r.Path("link")
		}, insecure: []string{"/link (symlink, owner nobody"}},
		"symlinked directory": {make: func(r *testkit.Room) string {
			r.Script("a/s", "")
			r.Must(os.Symlink("a", r.Path("b")))
			return r.Path("b/s")
		}, always: []string{"/b (symlink, owner root, group root, mode 0777) is not a directory itself", "resolved path"}},
		"dots": {make: func(r *testkit.Room) string {
			r.Script("a/s", "")
			return r.Dir + "//a/../a/./s"
		}},
		"not there": {make: func(r *testkit.Room) string { return r.Path("none") }, always: []string{"/none does not exist"}},
		"directory not there": {make: func(r *testkit.Room) string { return r.Path("none/a/s") },
			always: []string{"/none/a/s does not exist: there is no ", "/none"}},
		"dangling symlink": {make: func(r *testkit.Room) string {
			r.Must(os.Symlink("nowhere", r.Path("link")))
			return r.Path("link")
		}, always: []string{"/link is a symlink to nowhere, which does not"}},
		"loop": {make: func(r *testkit.Room) string {
			r.Must(os.Symlink("link", r.Path("link")))
			return r.Path("link")
		}, always: []string{"/link"}},
		"a file as directory": {make: func(r *testkit.Room) string { return r.Script("s", "") + "/x" }, always: []string{"/s/x"}},
		"a directory":         {make: func(r *testkit.Room) string { return r.Dir }, always: []string{"is not a regular file", "directory"}},
		"a FIFO":              {make: func(r *testkit.Room) string { return r.FIFO("f") }, always: []string{"is not a regular file", "special file"}},
		"a file test":         {make: func(*testkit.Room) string { return "</etc/passwd" }, always: []string{"only MISC_CHECK"}},
		"not executable": {make: func(r *testkit.Room) string { return r.File("s", "", 0o644) },
			always: []string{"user root (uid 0), group root (gid 0) cannot execute", "mode 0644", "no execute permission"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := command(tt.make(testkit.NewRoom(t)))
			s.User = "root"
			wantError(t, Check(s, Identity{}), tt.always...)
			wantError(t, Check(s, Identity{Security: true}), slices.Concat(tt.always, tt.insecure)...)
			if tt.always == nil {
				p, err := examine(s, Identity{})
				if got := strings.Join(p.warnings, "; "); err != nil || (got != "") != (tt.insecure != nil) || tt.insecure != nil && !strings.Contains(got, tt.insecure[0]) {
					t.Errorf("warnings %q, error %v, want %q", got, err, tt.insecure)
				}
			}
			// Whoever has no rights of root's can do no harm with them.
			if tt.always == nil {
				s.User = other.Username
				wantError(t, Check(s, Identity{Security: true}))
			}
		})
	}
}

func TestCheckReasonsOfPrivilege(t *testing.T) {
	testkit.Nobody(t)
	for name, tt := range map[string]struct {
		user, group string
		mode        os.FileMode
		want        string
	}{
		"root":         {user: "root", group: "nogroup", want: "it would run as user root"},
		"root's group": {user: "nobody", group: "root", want: "it would run with group root"},
		"set-uid":      {user: "nobody", mode: os.ModeSetuid, want: "it is set-uid root"},
		"set-gid":      {user: "nobody", mode: os.ModeSetgid, want: "it is set-gid root"},
	} {
		t.Run(name, func(t *testing.T) {
			r := testkit.NewRoom(t)
			s := &config.Script{Argv: []string{r.File("s", "", 0o777|tt.mode)}, User: tt.user, Group: tt.group}
			wantError(t, Check(s, Identity{Security: true}), tt.want, "enable_script_security", "/s (file")
		})
	}
}

func TestCheckAsAnotherUser(t *testing.T) {
	u := testkit.Nobody(t)
	r := testkit.NewRoom(t)
	s := command(r.Script("a/s", ""))
	s.User = u.Username
	wantError(t, Check(s, Identity{}))
	r.Must(os.Chmod(r.Path("a"), 0o700))
	wantError(t, Check(s, Identity{}), "user nobody (uid 65534), group nogroup (gid 65534) cannot execute", "no search permission for "+r.Path("a")+" (directory, owner root, group root, mode 0700)")
	for _, tt := range []struct {
		mode     os.FileMode
		uid, gid int
		ok       bool
	}{
		{0o700, 65534, 0, true}, {0o077, 65534, 0, false},
		{0o710, 0, 65534, true}, {0o701, 0, 65534, false},
		{0o701, 0, 0, true}, {0o770, 0, 0, false},
	} {
		t.Run(fmt.Sprintf("%04o %d:%d", tt.mode, tt.uid, tt.gid), func(t *testing.T) {
			r.Must(os.Chmod(r.Path("a"), 0o755))
			r.Must(os.Chmod(r.Path("a/s"), tt.mode))
			r.Must(os.Chown(r.Path("a/s"), tt.uid, tt.gid))
			if err := Check(s, Identity{}); (err == nil) != tt.ok {
				t.Errorf("error %v, want none: %t", err, tt.ok)
			}
		})
	}
}

func TestSupplementaryGroupsMayExecute(t *testing.T) {
	testkit.NeedRoot(t)
	r := testkit.NewRoom(t)
	p := r.File("s", "", 0o710)
	r.Must(os.Chown(p, 0, 54321))
	as := account{user: "x", uid: 54322, gid: 54322}
	wantError(t, denied(p, as), "no execute permission")
	as.groups = []uint32{54321}
	wantError(t, denied(p, as))
}

func TestCheckOfNothing(t *testing.T) {
	wantError(t, Check(nil, Identity{}))
	wantError(t, Check(&config.Script{}, Identity{}))
}

func TestSearch(t *testing.T) {
	r := testkit.NewRoom(t)
	r.Script("second/tool", "")
	r.File("first/tool", "", 0o644)
	r.Must(os.Mkdir(r.Path("first/dir"), 0o755))
	t.Setenv("PATH", "relative:"+r.Path("first")+":"+r.Path("second"))
	s := command("tool")
	if p, err := examine(s, Identity{}); err != nil || p.path != r.Path("second/tool") {
		t.Errorf("found %q, %v; want the one that is executable", p.path, err)
	}
	wantError(t, Check(command("dir"), Identity{}), `"dir" is in no directory of PATH (relative:`)
	r.Must(os.Remove(r.Path("second/tool")))
	wantError(t, Check(s, Identity{}), "cannot execute "+r.Path("first/tool"), "mode 0644")
	t.Setenv("PATH", "")
	wantError(t, Check(command("true"), Identity{}))
}

func TestRelativeName(t *testing.T) {
	r := testkit.NewRoom(t)
	r.Script("a/s", "")
	t.Chdir(r.Dir)
	if p, err := examine(command("a/s"), Identity{}); err != nil || p.path != r.Path("a/s") {
		t.Errorf("found %q, %v", p.path, err)
	}
}

func TestElements(t *testing.T) {
	for path, want := range map[string]string{
		"/":          "/",
		"/a":         "/ /a",
		"/a/b/c":     "/ /a /a/b /a/b/c",
		"//a//b/./c": "/ //a //a//b //a//b/. //a//b/./c",
		"/a/../b":    "/ /a /a/.. /a/../b",
	} {
		if got := strings.Join(elements(path), " "); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
