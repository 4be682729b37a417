package host

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is where facts are gathered.
type Machine struct {
	// Root is the folder that has proc, lib/modules and the like, "" for /.
	Root string
	// Network answers about devices and routes, nil for the kernel.
	Network Network
}

// needsRoot is what an unprivileged reader is told.
const needsRoot = "run as root"

// Facts gathers what a query asks for, in the network namespace of the calling
// thread. It fails in no part: what is not known is said where it is missing.
func (m Machine) Facts(q Query) *Facts {
	f := &Facts{Root: os.Geteuid() == 0, Paths: map[string]Path{}}
	f.Kernel = strings.TrimSpace(m.text("proc/sys/kernel/osrelease"))
	for _, mark := range containerMarks {
		if _, err := os.Stat(m.path(mark)); err == nil {
			f.Container = true
		}
	}
	f.Modules = m.modules(f.Kernel)
	f.Table = m.table()
	m.network(f, q)
	f.Settings = m.settings(q.Settings, f.Devices)
	f.Writers, f.WritersUnknown = m.writers(q.PID)
	f.Daemon = m.credentials(q.PID)
	for _, p := range q.Paths {
		f.Paths[p] = m.stat(p)
	}
	return f
}

func (m Machine) path(name string) string { return filepath.Join(cmp.Or(m.Root, "/"), name) }

func (m Machine) read(name string) ([]byte, error) { return os.ReadFile(m.path(name)) }

// text is a file's content, "" for none.
func (m Machine) text(name string) string {
	b, _ := m.read(name)
	return string(b)
}

// reason is why a reading failed, for people.
func reason(err error) string {
	text := err.Error()
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		text = e.Path + ": " + e.Err.Error()
	}
	if errors.Is(err, fs.ErrPermission) {
		text += "; " + needsRoot
	}
	return text
}

func (m Machine) modules(release string) Modules {
	var mod Modules
	if b, err := m.read("proc/modules"); err == nil {
		mod.Loaded = map[string]bool{}
		for line := range bytes.Lines(b) {
			name, _, _ := bytes.Cut(line, []byte(" "))
			mod.Loaded[string(name)] = true
		}
	} else {
		mod.LoadedUnknown = reason(err)
	}
	if release == "" {
		mod.DiskUnknown = "the running kernel's release is not known"
		return mod
	}
	tree := filepath.Join("lib/modules", release)
	dep, err := m.read(filepath.Join(tree, "modules.dep"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		mod.NoTree = true
	case err != nil:
		mod.DiskUnknown = reason(err)
	default:
		mod.OnDisk = moduleNames(dep)
	}
	builtin, err := m.read(filepath.Join(tree, "modules.builtin"))
	switch {
	case err == nil:
		mod.Builtin, mod.NoTree = moduleNames(builtin), false
	case !errors.Is(err, fs.ErrNotExist):
		mod.DiskUnknown = reason(err)
	}
	return mod
}

// moduleNames reads the names of modules.dep and modules.builtin (depmod(8)), as the
// kernel shows them: with underscores.
func moduleNames(b []byte) map[string]bool {
	names := map[string]bool{}
	for line := range bytes.Lines(b) {
		file, _, _ := bytes.Cut(line, []byte(":"))
		base := filepath.Base(strings.TrimSpace(string(file)))
		if name, _, ok := strings.Cut(base, ".ko"); ok {
			names[strings.ReplaceAll(name, "-", "_")] = true
		}
	}
	return names
}

// table reads /proc/net/ip_vs: the size of the hash table in its first line, and the
// connections of each destination in the last two columns.
func (m Machine) table() Table {
	var t Table
	b, err := m.read("proc/thread-self/net/ip_vs")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t
	case err != nil:
		t.Unknown = reason(err)
		// That there is something to be forbidden says that it is there.
		t.Present = errors.Is(err, fs.ErrPermission)
		return t
	}
	t.Present = true
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if _, size, ok := strings.Cut(s.Text(), "(size="); ok {
			t.Size, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(size), ")"))
			continue
		}
		cells := strings.Fields(s.Text())
		if len(cells) < 6 || cells[0] != "->" || cells[1] == "RemoteAddress:Port" {
			continue
		}
		for _, cell := range cells[len(cells)-2:] {
			n, _ := strconv.ParseUint(cell, 10, 64)
			t.Connections += n
		}
	}
	return t
}

// settings reads sysctls. A name with a star is read for each device, and for "all".
func (m Machine) settings(names []string, devices []Device) map[string]Setting {
	all := map[string]Setting{}
	for _, name := range names {
		before, after, star := strings.Cut(name, "*")
		if !star {
			all[name] = m.setting(strings.Split(name, "."))
			continue
		}
		parts := strings.Split(strings.TrimSuffix(before, "."), ".")
		for _, d := range append([]Device{{Name: "all"}}, devices...) {
			// A device's name may have dots: it is a part by itself.
			all[before+d.Name+after] = m.setting(append(slices.Clone(parts), d.Name, strings.TrimPrefix(after, ".")))
		}
	}
	return all
}

func (m Machine) setting(parts []string) Setting {
	b, err := m.read(filepath.Join(append([]string{"proc/sys"}, parts...)...))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Setting{Absent: true}
	case err != nil:
		return Setting{Unknown: reason(err)}
	}
	return Setting{Value: strings.Join(strings.Fields(string(b)), " ")}
}

// writerNames are programs that write IPVS tables by themselves.
var writerNames = []string{"keepalived", "ldirectord", "kube-proxy", "kube-router", "sluiced"}

// writers finds the processes of other programs, and other sluiced than the one of
// the query.
func (m Machine) writers(daemon int) ([]Writer, string) {
	entries, err := os.ReadDir(m.path("proc"))
	if err != nil {
		return nil, reason(err)
	}
	if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "1" }) {
		return nil, "the processes of other users are hidden (hidepid); " + needsRoot
	}
	ours, _ := os.Readlink(m.path("proc/thread-self/ns/net"))
	var list []Writer
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == daemon {
			continue
		}
		dir := filepath.Join("proc", e.Name())
		name := strings.TrimSpace(m.text(filepath.Join(dir, "comm")))
		var args []string
		if known(name) || name == "perl" {
			args = strings.Split(strings.TrimRight(m.text(filepath.Join(dir, "cmdline")), "\x00"), "\x00")
		}
		if name == "perl" && slices.ContainsFunc(args, func(a string) bool { return filepath.Base(a) == "ldirectord" }) {
			name = "ldirectord"
		}
		if !known(name) {
			continue
		}
		theirs, err := os.Readlink(m.path(filepath.Join(dir, "ns/net")))
		list = append(list, Writer{PID: pid, Name: name, Args: args, Elsewhere: err == nil && ours != "" && theirs != ours})
	}
	slices.SortFunc(list, func(a, b Writer) int { return cmp.Compare(a.PID, b.PID) })
	return list, ""
}

func known(name string) bool {
	return slices.ContainsFunc(writerNames, func(w string) bool { return strings.HasPrefix(name, w) })
}

// credentials reads proc_pid_status(5) and proc_pid_limits(5).
func (m Machine) credentials(pid int) Credentials {
	c := Credentials{PID: pid}
	dir := "proc/self"
	if pid != 0 {
		dir = filepath.Join("proc", strconv.Itoa(pid))
	}
	b, err := m.read(filepath.Join(dir, "status"))
	if err != nil {
		c.Unknown = reason(err)
		return c
	}
	var ok bool
	if c.Effective, ok = effectiveCapabilities(b); !ok {
		c.Unknown = "its status names no capabilities"
	}
	for line := range strings.Lines(string(b)) {
		key, rest, _ := strings.Cut(line, ":")
		ids := numbers(rest)
		switch {
		case key == "Groups":
			c.Groups = ids
		case key == "Uid" && len(ids) > 1:
			c.UID = ids[1]
		case key == "Gid" && len(ids) > 1:
			c.GID = ids[1]
		}
	}
	c.FilesUnknown = "its limits name no open files"
	b, err = m.read(filepath.Join(dir, "limits"))
	if err != nil {
		c.FilesUnknown = reason(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			c.Files, c.FilesHard, c.FilesUnknown = limits(rest)
		}
	}
	return c
}

func numbers(text string) (list []int) {
	for cell := range strings.FieldsSeq(text) {
		if n, err := strconv.Atoi(cell); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// limits reads "1024  524288  files".
func limits(text string) (soft, hard uint64, unknown string) {
	cells := strings.Fields(text)
	if len(cells) < 2 {
		return 0, 0, fmt.Sprintf("its limit of open files is %q", text)
	}
	value := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return ^uint64(0) // unlimited
		}
		return n
	}
	return value(cells[0]), value(cells[1]), ""
}

func (m Machine) stat(name string) Path {
	var st unix.Stat_t
	switch err := unix.Stat(m.path(name), &st); {
	case errors.Is(err, fs.ErrNotExist):
		return Path{Absent: true}
	case err != nil:
		return Path{Unknown: reason(&fs.PathError{Op: "stat", Path: name, Err: err})}
	}
	return Path{Mode: st.Mode, UID: int(st.Uid), GID: int(st.Gid)}
}
