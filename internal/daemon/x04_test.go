package daemon

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/doctor"
	"github.com/sluice-lb/sluice/internal/engine"
)

// nobody is a plain user.
const nobody = 65534

// as runs part of TestX04Child in a process that may do less than this one.
func as(t *testing.T, attr *syscall.SysProcAttr, part string, args ...string) (*exec.Cmd, *lockedBuffer) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give rights up")
	}
	// The test's own file may be out of another user's reach.
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { exe.Close() })
	cmd := exec.Command("/proc/self/fd/3", "-test.run=^TestX04Child$")
	cmd.ExtraFiles, cmd.Dir = []*os.File{exe}, "/"
	cmd.Env = append(os.Environ(), "SLUICE_X04="+strings.Join(append([]string{part}, args...), "\n"))
	cmd.SysProcAttr = attr
	out := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		if strings.Contains(err.Error(), "not permitted") {
			t.Skipf("this root may not give rights up as needed: %v", err)
		}
		t.Fatal(err)
	}
	return cmd, out
}

// TestX04Child is not a test: it is what the others run.
func TestX04Child(t *testing.T) {
	args := strings.Split(os.Getenv("SLUICE_X04"), "\n")
	switch args[0] {
	case "daemon":
		log, err := NewLogger(os.Stdout, "text", slog.LevelInfo)
		if err != nil {
			t.Fatal(err)
		}
		os.Exit(Run(t.Context(), Options{File: args[1], Socket: args[2], StateDir: args[3], Log: log}))
	case "check":
		os.Exit(Check(os.Stdout, args[1], CheckOptions{Summary: true}))
	case "doctor":
		r, err := Doctor(t.Context(), DoctorOptions{File: args[1], Socket: args[2]})
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		for _, f := range r.Findings {
			fmt.Printf("%s %s %s\n", f.ID, f.Status, f.Found)
		}
		os.Exit(0)
	}
}

// open makes a folder that everybody may use.
func open(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for path, mode := range map[string]os.FileMode{dir: 0o777, filepath.Dir(dir): 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func conf(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "k.conf")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestX04WithoutCapabilities: the daemon runs as a plain user, checks, and says in log,
// status and doctor what it lacks and what for.
func TestX04WithoutCapabilities(t *testing.T) {
	ping := strings.ReplaceAll(confText(1), "TCP_CHECK {\n   connect_timeout 1\n   retry 0\n  }", "PING_CHECK {\n  }")
	for _, tt := range []struct {
		name, text string
		attr       *syscall.SysProcAttr
		lacks      []string // in the order of the table
		not        string
	}{
		{"a plain user", "", &syscall.SysProcAttr{}, []string{"CAP_NET_ADMIN: needed for the IPVS table"}, "CAP_NET_RAW"},
		{"no CAP_NET_ADMIN", "", &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_NET_RAW}}, []string{"CAP_NET_ADMIN: needed for the IPVS table"}, "CAP_NET_RAW"},
		// A new namespace lets no group send pings without.
		{"no CAP_NET_RAW for PING_CHECK", ping, &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_NET_ADMIN}, Cloneflags: unix.CLONE_NEWNET},
			[]string{"CAP_NET_RAW: needed for PING_CHECK"}, "CAP_NET_ADMIN"},
		{"neither", ping, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}, []string{"CAP_NET_ADMIN: needed for the IPVS table", "CAP_NET_RAW: needed for PING_CHECK"}, "CAP_SETUID"},
		{"pings by CAP_NET_RAW", ping, &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_NET_RAW, unix.CAP_NET_ADMIN}, Cloneflags: unix.CLONE_NEWNET}, nil, "CAP_"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port, _ := backend(t)
			if tt.text == "" {
				tt.text = confText(port)
			}
			dir := open(t)
			tt.attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
			p := &process{T: t, file: conf(t, dir, tt.text), socket: filepath.Join(dir, "s.sock")}
			cmd, out := as(t, tt.attr, "daemon", p.file, p.socket, filepath.Join(dir, "state"))
			ended := false
			defer func() {
				if !ended {
					cmd.Process.Kill()
					cmd.Wait()
				}
			}()
			if tt.attr.Cloneflags == 0 {
				out.await(t, 0, fmt.Sprintf(`Check passed.*:%d`, port))
			}
			s := answered(p, out)
			text := out.await(t, 0, "")
			if len(s.MissingCapabilities) != len(tt.lacks) || strings.Contains(strings.Join(s.MissingCapabilities, " "), tt.not) {
				t.Errorf("status lacks %q, want %q", s.MissingCapabilities, tt.lacks)
			}
			r, err := Doctor(t.Context(), DoctorOptions{Socket: p.socket})
			if err != nil {
				t.Fatal(err)
			}
			if r.File != p.file {
				t.Errorf("judged %q", r.File)
			}
			found := finding(r, "capabilities")
			for i, l := range tt.lacks {
				name, feature, _ := strings.Cut(l, ": needed for ")
				if !strings.Contains(text, "capability="+name) || !strings.Contains(text, feature) {
					t.Errorf("the log does not name %s for %s:\n%s", name, feature, text)
				}
				if i < len(s.MissingCapabilities) && !strings.HasPrefix(s.MissingCapabilities[i], l) {
					t.Errorf("status says %q, want %q", s.MissingCapabilities[i], l)
				}
				if found.Status != doctor.Fail || !strings.Contains(found.Found, l) {
					t.Errorf("the doctor says %+v, want %q", found, l)
				}
			}
			if tt.lacks == nil && found.Status != doctor.OK {
				t.Errorf("the doctor says %+v", found)
			}
			if f := finding(r, "ping_group"); slices.ContainsFunc(tt.lacks, func(l string) bool { return strings.Contains(l, "PING") }) {
				want := fmt.Sprintf("nsenter --net=/proc/%d/ns/net sysctl -w net.ipv4.ping_group_range='%d %d'", cmd.Process.Pid, nobody, nobody)
				if f.Status != doctor.Fail || !slices.Contains(f.Mend, want) {
					t.Errorf("the doctor says %+v, want %s", f, want)
				}
			}
			if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			ended = true
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, out.await(t, 0, ""))
			}
		})
	}
}

// answered waits for a daemon's first answer.
func answered(p *process, out *lockedBuffer) *engine.Snapshot {
	p.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		s, err := control.NewClient(p.socket).Status(p.Context())
		if err == nil {
			return s
		}
		if time.Now().After(end) {
			p.Fatalf("%v\n%s", err, out.await(p.T, 0, ""))
		}
	}
}

func finding(r *doctor.Report, id string) doctor.Finding {
	for _, f := range r.Findings {
		if f.ID == id {
			return f
		}
	}
	return doctor.Finding{}
}

// TestX04PlainUserChecksAndAsks: checking a file and the doctor need no right at all,
// and the doctor says what it does not see.
func TestX04PlainUserChecksAndAsks(t *testing.T) {
	plain := func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	dir := open(t)
	file := conf(t, dir, soundConfig)
	cmd, out := as(t, plain(), "check", file)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.await(t, 0, ""))
	}
	out.await(t, 0, "nothing to report")
	cmd, out = as(t, plain(), "doctor", file, filepath.Join(dir, "none.sock"))
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.await(t, 0, ""))
	}
	out.await(t, 0, `(?s)daemon note .*virtual_address fail 192.0.2.10 is not on this machine`)

	// A daemon whose socket is not for this user.
	p := launch(t, soundConfig, nil)
	p.out.await(t, 0, "Ready")
	for _, d := range []string{filepath.Dir(p.socket), filepath.Dir(filepath.Dir(p.socket))} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd, out = as(t, plain(), "doctor", file, p.socket)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.await(t, 0, ""))
	}
	out.await(t, 0, `daemon unknown .*is for user root.*use sudo`)
	p.stop()
}

func TestFlagsOfARunningDaemon(t *testing.T) {
	dir := "/x"
	for _, tt := range []struct {
		args []string
		dir  *string
		id   string
	}{
		{[]string{"sluiced", "-f", "k"}, nil, ""},
		{[]string{"sluiced", "--state-dir", "/x", "-i", "lb"}, &dir, "lb"},
		{[]string{"sluiced", "--state-dir=/x", "--config-id=lb"}, &dir, "lb"},
		{[]string{"sluiced", "--state-dir="}, new(string), ""},
	} {
		f := flagsOf(tt.args)
		if f.id != tt.id || (f.stateDir == nil) != (tt.dir == nil) || f.stateDir != nil && *f.stateDir != *tt.dir {
			t.Errorf("%q: %+v", tt.args, f)
		}
	}
}
