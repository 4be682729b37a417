package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fakeProc is a /proc in which process 4711 runs a program.
func fakeProc(t *testing.T, program string) string {
	dir := t.TempDir()
	if program == "" {
		program = "/usr/bin/true"
	}
	if err := os.Mkdir(filepath.Join(dir, "4711"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(dir, "4711", "exe")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPIDFile(t *testing.T) {
	dir := t.TempDir()
	ours := strconv.Itoa(os.Getpid()) + "\n"
	for _, c := range []struct {
		name, content, program string // content "-" is no file
		refused                string
	}{
		{"none", "-", "", ""},
		{"empty", "", "", ""},
		{"no number", "keepalived\n", "", ""},
		{"of a process that has ended", "4712\n", "", ""},
		{"of a process that is something else", "4711\n", "/usr/bin/vim", ""},
		{"of a keepalived", "4711\n", "/usr/sbin/keepalived", "names process 4711, a keepalived that is running: stop that one first"},
		{"of a keepalived that was replaced", " 4711", "/usr/sbin/keepalived (deleted)", "names process 4711, a keepalived"},
		{"of a sluiced", "4711\n", "/usr/bin/sluiced", "names process 4711, a sluiced"},
		{"longer than a number", strings.Repeat("4711 ", 100), "/usr/bin/sluiced", ""},
		{"of a negative process", "-4711\n", "/usr/bin/sluiced", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, "pid")
			os.Remove(path)
			if c.content != "-" {
				if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p, err := claimPIDFile(path, fakeProc(t, c.program))
			if c.refused != "" {
				if err == nil || !strings.HasPrefix(err.Error(), "pid file "+path+": "+c.refused) || !strings.Contains(err.Error(), "-p or -c") {
					t.Errorf("%v, want a refusal: %s", err, c.refused)
				}
				if got := read(t, path); got != c.content {
					t.Errorf("the file of another holds %q now", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := read(t, path); got != ours {
				t.Errorf("holds %q, want %q", got, ours)
			}
			if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o644 {
				t.Errorf("mode %v, %v", fi.Mode(), err)
			}
			if _, err := claimPIDFile(path, "/proc"); err == nil || !strings.Contains(err.Error(), "is held by process "+strings.TrimSpace(ours)+", which is running") {
				t.Errorf("claimed twice: %v", err)
			}
			if err := p.release(); err != nil {
				t.Error(err)
			}
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

// TestPIDFileOfOthers: what took our file's place stays.
func TestPIDFileOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	p, err := claimPIDFile(path, "/proc")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if err := p.release(); err != nil || read(t, path) != "1\n" {
		t.Errorf("%v, and the other's file is %q", err, read(t, path))
	}
	os.Remove(path)
	if p, err = claimPIDFile(path, "/proc"); err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	if err := p.release(); err != nil {
		t.Errorf("a file that somebody removed: %v", err)
	}
}

func TestPIDFileRefuses(t *testing.T) {
	dir := t.TempDir()
	target, link, fifo := dir+"/target", dir+"/link", dir+"/fifo"
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, fifo, dir, dir + "/no/pid"} {
		if p, err := claimPIDFile(path, "/proc"); err == nil || !strings.HasPrefix(err.Error(), "pid file "+path+": ") {
			t.Errorf("%s: %v, %v", path, p, err)
		}
	}
	if got := read(t, target); got != "precious" {
		t.Errorf("the link's target holds %q", got)
	}
}

// TestPIDFileRace: of many that start at once one succeeds.
func TestPIDFileRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	for round := range 50 {
		var wg sync.WaitGroup
		got := make([]*pidFile, 8)
		for i := range got {
			wg.Go(func() { got[i], _ = claimPIDFile(path, "/proc") })
		}
		wg.Wait()
		var winners []*pidFile
		for _, p := range got {
			if p != nil {
				winners = append(winners, p)
			}
		}
		if len(winners) != 1 {
			t.Fatalf("round %d: %d winners", round, len(winners))
		}
		for _, p := range winners {
			if err := p.release(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestPIDFiles: all or none, each once, and a process that was killed leaves one
// that the next takes.
func TestPIDFiles(t *testing.T) {
	dir := t.TempDir()
	one, two := dir+"/one", dir+"/two"
	release, err := claimPIDFiles([]string{one, two, dir + "/./one"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claimPIDFiles([]string{dir + "/three", two}); err == nil {
		t.Error("claimed twice")
	}
	if _, err := os.Stat(dir + "/three"); err == nil {
		t.Error("one of two is left after a refusal")
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	cmd := exec.Command("flock", one, "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Skipf("needs flock, of util-linux: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if err := os.WriteFile(two, fmt.Appendf(nil, "%d\n", cmd.Process.Pid), 0o644); err != nil {
		t.Fatal(err)
	}
	if release, err = claimPIDFiles([]string{two}); err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	if release, err := claimPIDFiles(nil); err != nil || release() != nil {
		t.Errorf("no files: %v", err)
	}
}
