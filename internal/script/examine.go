package script

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-lb/sluice/internal/config"
)

// defaultPath is searched if the daemon has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// program is a script that was found and may run.
type program struct {
	path     string // with symlinks resolved
	run      string // by which it is executed: path, or as it was written
	as       account
	warnings []string
}

// Check says what is wrong with a script before it runs: no such user, no such
// file, not executable for the user, refused by script security. It runs nothing
// and is nil for a nil script. It goes by mode bits, so that it may call a script
// not executable that an access control list lets run.
func Check(s *config.Script, id Identity) error {
	if s == nil || len(s.Argv) == 0 {
		return nil
	}
	p, err := examine(s, id)
	if err != nil {
		return err
	}
	return denied(p.path, p.as)
}

// examine finds a script's file and applies the rules of script security (facts
// 11.3).
func examine(s *config.Script, id Identity) (program, error) {
	name := s.Argv[0]
	if strings.HasPrefix(name, "<") || strings.HasPrefix(name, ">") {
		return program{}, fmt.Errorf("%s is the test of a file, which only MISC_CHECK can use", name)
	}
	as, err := lookup(s, id)
	if err != nil {
		return program{}, err
	}
	if !strings.Contains(name, "/") {
		if name, err = search(name, as); err != nil {
			return program{}, err
		}
	}
	written, err := absolute(name)
	if err != nil {
		return program{}, err
	}
	path, err := filepath.EvalSymlinks(written)
	if err != nil {
		return program{}, missing(written, err)
	}
	fi, err := os.Stat(path)
	if err != nil {
		return program{}, missing(written, err)
	}
	if !fi.Mode().IsRegular() {
		return program{}, fmt.Errorf("%s is not a regular file", describe(path, fi))
	}
	p := program{path: path, run: path, as: as}
	if id.Symlinks {
		p.run = written
	}
	why := privilege(as, fi)
	if why == "" {
		return p, nil
	}
	names := []string{written}
	if path != written {
		names = append(names, path)
	}
	for _, n := range names {
		insecure, err := safe(n)
		switch {
		case err != nil:
			return program{}, fmt.Errorf("refused, since %s: %w", why, err)
		case insecure != "" && id.Security:
			return program{}, fmt.Errorf("refused by enable_script_security, since %s: %s", why, insecure)
		case insecure != "" && !slices.Contains(p.warnings, insecure):
			p.warnings = append(p.warnings, insecure)
		}
	}
	return p, nil
}

// absolute does not clean the name: with symlinks in it "a/../b" need not be "b".
func absolute(name string) (string, error) {
	if strings.HasPrefix(name, "/") {
		return name, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find %s, a relative name: %w", name, err)
	}
	return dir + "/" + name, nil
}

// search looks a name without slash up in PATH, as the user would.
func search(name string, as account) (string, error) {
	dirs := os.Getenv("PATH")
	if dirs == "" {
		dirs = defaultPath
	}
	var why error
	for _, dir := range filepath.SplitList(dirs) {
		if !strings.HasPrefix(dir, "/") {
			continue // what lies in the working directory is not meant
		}
		found := filepath.Join(dir, name)
		fi, err := os.Stat(found)
		if err != nil || !fi.Mode().IsRegular() {
			continue
		}
		path, err := filepath.EvalSymlinks(found)
		if err == nil {
			err = denied(path, as)
		}
		if err == nil {
			return found, nil
		}
		if why == nil {
			why = err
		}
	}
	if why != nil {
		return "", why
	}
	return "", fmt.Errorf("%q is in no directory of PATH (%s)", name, dirs)
}

// missing names the element of the path at which the search for a file ended.
func missing(path string, cause error) error {
	for _, e := range elements(path) {
		fi, err := os.Lstat(e)
		switch {
		case errors.Is(err, fs.ErrNotExist) && e != path:
			return fmt.Errorf("%s does not exist: there is no %s", path, e)
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s does not exist", path)
		case err != nil:
			return fmt.Errorf("find %s: %w", path, err)
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if _, err := os.Stat(e); errors.Is(err, fs.ErrNotExist) {
			target, _ := os.Readlink(e)
			return fmt.Errorf("%s does not exist: %s is a symlink to %s, which does not", path, e, target)
		}
	}
	return fmt.Errorf("find %s: %w", path, cause)
}

// privilege says why the path to a file matters: whoever can replace the file gets
// root's rights. "" means that it gives none.
func privilege(as account, fi fs.FileInfo) string {
	st := fi.Sys().(*syscall.Stat_t)
	switch {
	case as.uid == 0:
		return "it would run as user root"
	case as.gid == 0:
		return "it would run with group root"
	case fi.Mode()&fs.ModeSetuid != 0 && st.Uid == 0:
		return "it is set-uid root"
	case fi.Mode()&fs.ModeSetgid != 0 && st.Gid == 0:
		return "it is set-gid root"
	}
	return ""
}

// safe looks at each element of a path without following symlinks. An error is
// what keepalived refuses always, insecure what it refuses with
// enable_script_security.
func safe(path string) (insecure string, err error) {
	for _, e := range elements(path) {
		fi, err := os.Lstat(e)
		if err != nil {
			return "", fmt.Errorf("look at %s: %w", e, err)
		}
		link := fi.Mode()&fs.ModeSymlink != 0
		switch {
		case e != path && link:
			return "", fmt.Errorf("%s is not a directory itself; name the script by its resolved path", describe(e, fi))
		case e != path && !fi.IsDir():
			return "", fmt.Errorf("%s is not a directory", describe(e, fi))
		case e == path && !link && !fi.Mode().IsRegular():
			return "", fmt.Errorf("%s is neither a file nor a symlink", describe(e, fi))
		}
		if what := weakness(fi); what != "" && insecure == "" {
			insecure = describe(e, fi) + " " + what
		}
	}
	return insecure, nil
}

// weakness says how someone other than root can change a file or directory.
func weakness(fi fs.FileInfo) string {
	st := fi.Sys().(*syscall.Stat_t)
	guarded := fi.Mode()&fs.ModeSymlink != 0 || fi.IsDir() && fi.Mode()&fs.ModeSticky != 0
	switch {
	case st.Uid != 0:
		return "is not owned by root"
	case guarded:
		return ""
	case fi.Mode()&0o002 != 0:
		return "is writable by everybody"
	case fi.Mode()&0o020 != 0 && st.Gid != 0:
		return "is writable by a group other than root"
	}
	return ""
}

// denied says by the mode bits why a user cannot execute a file; nil if they allow
// it. The path must be resolved.
func denied(path string, as account) error {
	for _, e := range elements(path) {
		fi, err := os.Lstat(e)
		if err != nil {
			return fmt.Errorf("look at %s: %w", e, err)
		}
		switch {
		case as.mayExecute(fi):
		case fi.IsDir():
			return fmt.Errorf("%s cannot execute %s: no search permission for %s", as, path, describe(e, fi))
		default:
			return fmt.Errorf("%s cannot execute %s: no execute permission", as, describe(e, fi))
		}
	}
	return nil
}

func (a account) mayExecute(fi fs.FileInfo) bool {
	st := fi.Sys().(*syscall.Stat_t)
	mode := fi.Mode().Perm()
	switch {
	case a.uid == 0:
		return fi.IsDir() || mode&0o111 != 0
	case a.uid == st.Uid:
		return mode&0o100 != 0
	case a.gid == st.Gid, slices.Contains(a.groups, st.Gid), a.credential() == nil && ownGroup(st.Gid):
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}

func ownGroup(gid uint32) bool {
	own, err := os.Getgroups()
	return err == nil && slices.Contains(own, int(gid))
}

// elements lists a path and all above it, from the root down.
func elements(path string) []string {
	all := []string{"/"}
	for i := 1; i < len(path); i++ {
		if path[i] == '/' && path[i-1] != '/' {
			all = append(all, path[:i])
		}
	}
	if len(path) > 1 {
		all = append(all, path)
	}
	return all
}

// describe is "/etc (directory, owner root, group root, mode 0755)".
func describe(path string, fi fs.FileInfo) string {
	st := fi.Sys().(*syscall.Stat_t)
	kind := "file"
	switch {
	case fi.IsDir():
		kind = "directory"
	case fi.Mode()&fs.ModeSymlink != 0:
		kind = "symlink"
	case !fi.Mode().IsRegular():
		kind = "special file"
	}
	owner, group := strconv.FormatUint(uint64(st.Uid), 10), strconv.FormatUint(uint64(st.Gid), 10)
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	}
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	return fmt.Sprintf("%s (%s, owner %s, group %s, mode %04o)", path, kind, owner, group, st.Mode&0o7777)
}
