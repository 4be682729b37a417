package script

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// patience is what a test waits for what must happen soon; it is only ever used
// up by a failing test.
const patience = 20 * time.Second

// short is a timeout that a script which waits for ever runs into.
const short = 200 * time.Millisecond

// noChildren wants that no child of the test is left, alive or dead.
func noChildren(t *testing.T) {
	t.Helper()
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("a child is left: pid %d, %v", pid, err)
	}
}

// gone waits until no process has the number that a file holds.
func gone(r *testkit.Room, file string) {
	r.Helper()
	pid := strings.TrimSpace(read(r, file))
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		// An orphan that nobody reaps, as in a container, is gone as well.
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
	}
	r.Errorf("process %s still runs", pid)
}

// read waits until a file has a whole line.
func read(r *testkit.Room, name string) string {
	r.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if b, err := os.ReadFile(r.Path(name)); err == nil && bytes.HasSuffix(b, []byte("\n")) {
			return string(b)
		}
	}
	r.Fatalf("nothing in %s", name)
	return ""
}

const forever = "while :; do read x < $gate; done 2>/dev/null" // blocks at a FIFO that nobody writes to

// TestC05OneOutcome: whatever a script does at its timeout, Run returns one result
// in time, and nothing is left of it.
func TestC05OneOutcome(t *testing.T) {
	type flags struct{ timedOut, forced bool }
	for name, tt := range map[string]struct {
		body   string
		want   flags
		signal syscall.Signal
		code   int
		output string
		left   bool // a child lives on, and is ended by the test
	}{
		"ends":                     {body: "echo done", output: "done"},
		"fails":                    {body: "exit 255", code: 255},
		"kills itself":             {body: "kill -SEGV $$", code: -1, signal: syscall.SIGSEGV},
		"obeys SIGTERM":            {body: forever, want: flags{timedOut: true}, code: -1, signal: syscall.SIGTERM},
		"answers SIGTERM":          {body: "trap 'exit 0' TERM; : > up; " + forever, want: flags{timedOut: true}},
		"ignores SIGTERM":          {body: "trap '' TERM; : > up; " + forever, want: flags{true, true}, code: -1, signal: syscall.SIGKILL},
		"is stopped":               {body: ": > up; kill -STOP $$; " + forever, want: flags{true, true}, code: -1, signal: syscall.SIGKILL},
		"child ignores SIGTERM":    {body: "(trap '' TERM; " + forever + ") & echo $! > child; " + forever, want: flags{timedOut: true}, code: -1, signal: syscall.SIGTERM},
		"child of a child":         {body: "((trap '' TERM; " + forever + ") & echo $! > child; " + forever + ") & " + forever, want: flags{timedOut: true}, code: -1, signal: syscall.SIGTERM},
		"child holds the output":   {body: "(" + forever + ") & echo $! > child; echo said", output: "said", left: true},
		"left the group, holds it": {body: "setsid sh -c 'echo $$ > child; " + forever + "' & read x < ready; echo said", output: "said", left: true},
		"timeout, left the group":  {body: "setsid sh -c 'echo $$ > child; " + forever + "' & " + forever, want: flags{timedOut: true}, code: -1, signal: syscall.SIGTERM, left: true},
		"floods":                   {body: "exec cat /dev/zero", want: flags{timedOut: true}, code: -1, signal: syscall.SIGTERM},
		"closes its output":        {body: "exec >&- 2>&-; " + forever, want: flags{timedOut: true}, code: -1, signal: syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			r := testkit.NewRoom(t)
			body := tt.body
			if name == "left the group, holds it" {
				r.FIFO("ready")
				body = strings.Replace(body, "child;", "child; echo > ready;", 1)
			}
			s := command(r.Script("s", "cd "+r.Dir+"\nexport gate="+r.FIFO("gate")+"\n"+body))
			c := Command{Script: s, Timeout: patience, KillAfter: patience}
			if tt.want.timedOut {
				c.Timeout = short
			}
			if tt.want.forced {
				c.KillAfter = short
			}
			child := strings.Contains(body, "child")
			prepared := "" // the file that shows that the script has come so far
			switch {
			case child && tt.want.timedOut:
				prepared = r.Path("child")
			case strings.Contains(body, "> up"):
				prepared = r.Path("up")
			}
			if prepared != "" {
				c.Timeout = 5 * short
			}
			began := time.Now()
			res := Run(t.Context(), c)
			if prepared != "" && !exists(prepared) {
				t.Skip("this machine is too slow to prepare the script within its timeout")
			}
			if res.Err != nil || (flags{res.TimedOut, res.Forced}) != tt.want || res.Stopped || res.Signal != tt.signal || res.Code != tt.code {
				t.Errorf("%+v, want %+v", res, tt)
			}
			if res.Took <= 0 || res.Took > time.Since(began) || tt.want.timedOut && res.Took < short {
				t.Errorf("took %v", res.Took)
			}
			if name == "floods" {
				if !strings.Contains(res.Output, "bytes more") || len(res.Output) > 2*maxOutput {
					t.Errorf("output of %d bytes, %q", len(res.Output), res.Output[max(0, len(res.Output)-40):])
				}
			} else if res.Output != tt.output {
				t.Errorf("output %q, want %q", res.Output, tt.output)
			}
			noChildren(t)
			switch {
			case tt.left:
				pid, err := strconv.Atoi(strings.TrimSpace(read(r, "child")))
				r.Must(err)
				r.Must(syscall.Kill(pid, syscall.SIGKILL)) // fails if it is gone
				gone(r, "child")
			case child:
				gone(r, "child")
			}
		})
	}
}

// TestC05EndedBeforeTheTimer: a script that had ended when its time was over ended
// by itself, though this was not yet noticed.
func TestC05EndedBeforeTheTimer(t *testing.T) {
	for name, stop := range map[string]bool{"timeout": false, "stop and kill": true} {
		t.Run(name, func(t *testing.T) {
			s := spawn{dir: "/", env: os.Environ(), files: []uintptr{0, 1, 2}}
			if err := s.start(t.Context(), "/bin/sh", []string{"sh", "-c", "exit 3"}); err != nil {
				t.Fatal(err)
			}
			awaitExit(s.pid, s.pidfd)
			pr, pw, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			pw.WriteString("said\n")
			pw.Close()
			p := &Process{
				pid: s.pid, timeout: time.Nanosecond, killAfter: time.Nanosecond, pipe: pr, read: make(chan error, 1),
				exited: make(chan struct{}), stop: make(chan struct{}), kill: make(chan struct{}), done: make(chan struct{}),
			}
			p.read <- os.ErrDeadlineExceeded // the reader was late too
			if stop {
				p.timeout = 0
				p.Stop()
				p.Kill()
			}
			time.AfterFunc(50*time.Millisecond, func() { close(p.exited) }) // long after the timer
			p.supervise(nil)
			if r := p.result; r.Code != 3 || r.TimedOut || r.Stopped || r.Forced || r.Signal != 0 || r.Output != "said" {
				t.Errorf("%+v", r)
			}
			noChildren(t)
		})
	}
}

func TestRunIsCancelled(t *testing.T) {
	for name, tt := range map[string]struct {
		trap   string
		forced bool
	}{"obeys": {"", false}, "ignores SIGTERM": {"trap '' TERM; ", true}} {
		t.Run(name, func(t *testing.T) {
			r := testkit.NewRoom(t)
			s := command(r.Script("s", tt.trap+"gate="+r.FIFO("gate")+"\necho up > "+r.Path("up")+"\n"+forever))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan Result, 1)
			go func() { done <- Run(ctx, Command{Script: s, Timeout: time.Hour, KillAfter: time.Hour}) }()
			read(r, "up")
			cancel()
			select {
			case res := <-done:
				if !res.Stopped || res.TimedOut || res.Err != nil || tt.forced && !res.Forced {
					t.Errorf("%+v", res)
				}
			case <-time.After(patience):
				t.Fatal("Run does not return")
			}
			noChildren(t)
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the reason"))
	r := testkit.NewRoom(t)
	res := Run(ctx, Command{Script: command(r.Script("s", "echo > "+r.Path("ran")))})
	wantError(t, res.Err, "the reason")
	if !res.Stopped || exists(r.Path("ran")) {
		t.Errorf("%+v of a context that was over before", res)
	}
}

// TestRunWaitsForItsTurn, and not for longer than its context lasts: what could
// not be started by then is not started later.
func TestRunWaitsForItsTurn(t *testing.T) {
	r := testkit.NewRoom(t)
	s := command(r.Script("s", "echo ran > "+r.Path("ran")))
	busy, free := make(chan struct{}), make(chan struct{})
	forks.acquire() <- func() { close(busy); <-free } // a fork that hangs
	<-busy
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	res := Run(ctx, Command{Script: s})
	close(free)
	forks.release()
	wantError(t, res.Err, "too busy", "deadline exceeded")
	if !res.Stopped || exists(r.Path("ran")) {
		t.Errorf("%+v", res)
	}
	if res := Run(t.Context(), Command{Script: s}); res.Err != nil || !exists(r.Path("ran")) {
		t.Errorf("after that: %+v", res)
	}
	noChildren(t)
}

func TestStartStopKill(t *testing.T) {
	for name, tt := range map[string]struct {
		trap    string
		end     func(*Process)
		signal  syscall.Signal
		forced  bool
		timeout time.Duration
	}{
		"stop":           {"", (*Process).Stop, syscall.SIGTERM, false, 0},
		"stop, ignored":  {"trap '' TERM; ", (*Process).Stop, syscall.SIGKILL, true, 0},
		"kill":           {"", (*Process).Kill, syscall.SIGKILL, true, time.Hour},
		"stop, and kill": {"trap '' TERM; ", func(p *Process) { p.Stop(); p.Kill(); p.Stop() }, syscall.SIGKILL, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := testkit.NewRoom(t)
			s := command(r.Script("s", tt.trap+"gate="+r.FIFO("gate")+"\necho $$ \"$@\" > "+r.Path("up")+"\n"+forever), "own")
			c := Command{Script: s, Args: []string{"/the/fifo"}, Timeout: tt.timeout, KillAfter: short}
			if !tt.forced {
				c.KillAfter = patience
			}
			p, err := Start(c)
			r.Must(err)
			if got, want := read(r, "up"), fmt.Sprintf("%d own /the/fifo\n", p.PID()); got != want {
				t.Errorf("script saw %q, want %q", got, want)
			}
			select {
			case <-p.Done():
				t.Fatalf("ended by itself: %+v", p.Result())
			default:
			}
			tt.end(p)
			select {
			case <-p.Done():
			case <-time.After(patience):
				t.Fatal("does not end")
			}
			if res := p.Result(); !res.Stopped || res.TimedOut || res.Signal != tt.signal || res.Forced != tt.forced {
				t.Errorf("%+v", res)
			}
			tt.end(p) // to no effect
			noChildren(t)
		})
	}
	_, err := Start(Command{Script: command("/no/such/script")})
	wantError(t, err, "/no/such/script does not exist")
}

// TestX02NotStarted: what cannot be started is an error with a reason and never a
// status, and leaves nothing behind.
func TestX02NotStarted(t *testing.T) {
	r := testkit.NewRoom(t)
	for name, tt := range map[string]struct {
		c    Command
		want string
	}{
		"nothing":        {Command{}, "no script"},
		"missing":        {Command{Script: command(r.Path("none"))}, "/none does not exist"},
		"not executable": {Command{Script: command(r.File("a", "#!/bin/sh\n", 0o644))}, "no execute permission"},
		"interpreter":    {Command{Script: command(r.File("b", "#!/no/such/shell -x\n", 0o755))}, "#!/no/such/shell -x"},
		"damaged":        {Command{Script: command(r.File("c", "\x7fELF\x00\x00", 0o755))}, "neither a program for this machine nor a script"},
		"unknown user":   {Command{Script: &config.Script{Argv: []string{"/bin/true"}, User: "no-such-user"}}, "no-such-user"},
		"file test":      {Command{Script: command("</etc/passwd")}, "only MISC_CHECK"},
		"NUL":            {Command{Script: command(r.Script("d", ""), "a\x00b")}, "invalid argument"},
		"too long":       {Command{Script: command(r.Script("e", "")), Args: []string{strings.Repeat("x", 1<<20)}}, "argument list too long"},
	} {
		t.Run(name, func(t *testing.T) {
			res := Run(t.Context(), tt.c)
			wantError(t, res.Err, tt.want)
			if res.Stopped || res.TimedOut || res.Output != "" {
				t.Errorf("%+v", res)
			}
			noChildren(t)
		})
	}
}

// TestNoResources: a fork that the kernel refuses is an error like another.
func TestNoResources(t *testing.T) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	s := command(testkit.NewRoom(t).Script("s", ""))
	low := lim
	low.Cur = 3 // what is open stays open; the next descriptor is refused
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	res := Run(t.Context(), Command{Script: s})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	wantError(t, res.Err, "too many open files")
	if res = Run(t.Context(), Command{Script: s}); res.Err != nil || res.Code != 0 {
		t.Errorf("after that: %+v", res)
	}
	noChildren(t)
}

func TestWarnings(t *testing.T) {
	testkit.NeedRoot(t)
	r := testkit.NewRoom(t)
	s := &config.Script{Argv: []string{r.File("s", "exit 7\n", 0o757)}, User: "root"}
	res := Run(t.Context(), Command{Script: s})
	if res.Err != nil || res.Code != 7 || len(res.Warnings) != 2 || !strings.Contains(res.Warnings[0], "others can change it") || !strings.Contains(res.Warnings[1], "no #! line") {
		t.Errorf("%+v", res)
	}
	res = Run(t.Context(), Command{Script: s, Identity: Identity{Security: true}})
	wantError(t, res.Err, "refused by enable_script_security", "mode 0757")
}

// TestSymlinks: the name that a program is called by is its own business.
func TestSymlinks(t *testing.T) {
	r := testkit.NewRoom(t)
	r.Must(os.Symlink(r.Script("real", `echo "$0"`), r.Path("link")))
	for symlinks, want := range map[bool]string{false: "real", true: "link"} {
		res := Run(t.Context(), Command{Script: command(r.Path("link")), Identity: Identity{Symlinks: symlinks}})
		if res.Output != r.Path(want) {
			t.Errorf("use_symlink_paths %t: ran as %q, want %q; %+v", symlinks, res.Output, want, res)
		}
	}
	r.Must(os.Symlink(r.File("plain", `echo "$0"`, 0o755), r.Path("plainlink")))
	if res := Run(t.Context(), Command{Script: command(r.Path("plainlink")), Identity: Identity{Symlinks: true}}); res.Output != r.Path("plainlink") {
		t.Errorf("without #!: %+v", res)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "1")
	t.Setenv("KEPT", "kept")
	s := command(testkit.NewRoom(t).Script("s", `echo "${WATCHDOG_USEC-none} $KEPT $ADDED"`))
	if res := Run(t.Context(), Command{Script: s, Env: []string{"ADDED=added"}}); res.Output != "none kept added" {
		t.Errorf("%+v", res)
	}
}

// TestManyAtOnce: scripts that run together, most of them into their timeout, get
// each its own result.
func TestManyAtOnce(t *testing.T) {
	r := testkit.NewRoom(t)
	s := r.Script("s", "[ $1 = wait ] && exec sleep 1000\necho $1; exit $1")
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			arg, timeout := strconv.Itoa(i), patience
			if i%2 == 0 {
				arg, timeout = "wait", short
			}
			res := Run(t.Context(), Command{Script: command(s, arg), Timeout: timeout})
			switch {
			case arg == "wait" && (!res.TimedOut || res.Signal != syscall.SIGTERM):
				t.Errorf("%d: %+v", i, res)
			case arg != "wait" && (res.TimedOut || res.Code != i || res.Output != arg):
				t.Errorf("%d: %+v", i, res)
			}
		})
	}
	wg.Wait()
	noChildren(t)
	// One for each would be 200; how many the runtime starts on a busy machine is its own affair.
	if threads, _ := filepath.Glob("/proc/self/task/*"); len(threads) > 120 {
		t.Errorf("%d threads for 200 scripts", len(threads))
	}
}

// TestAwaitExitWithoutPidfd is what kernels before 5.3 take.
func TestAwaitExitWithoutPidfd(t *testing.T) {
	s := spawn{dir: "/", env: os.Environ(), files: []uintptr{0, 1, 2}}
	if err := s.start(t.Context(), "/bin/sh", []string{"sh", "-c", "exit 3"}); err != nil {
		t.Fatal(err)
	}
	if s.pidfd >= 0 {
		unix.Close(s.pidfd)
	}
	awaitExit(s.pid, -1)
	if !canReap(s.pid) {
		t.Error("returned before the end")
	}
	if status := reap(s.pid); status.ExitStatus() != 3 {
		t.Errorf("status %v", status)
	}
	forks.release()
	noChildren(t)
}

func TestEnded(t *testing.T) {
	for want, r := range map[string]Result{"exit status 3": {Code: 3}, "signal: killed": {Code: -1, Signal: syscall.SIGKILL}} {
		if got := r.Ended(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	for _, together := range []int{1, 64} {
		b.Run(fmt.Sprintf("together=%d", together), func(b *testing.B) {
			c := Command{Script: command("/usr/bin/true"), Timeout: time.Minute}
			b.ReportAllocs()
			b.SetParallelism(together)
			if together == 1 {
				for b.Loop() {
					if res := Run(b.Context(), c); res.Err != nil || res.Code != 0 {
						b.Fatal(res)
					}
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if res := Run(b.Context(), c); res.Err != nil || res.Code != 0 {
						b.Error(res)
					}
				}
			})
		})
	}
}

func BenchmarkExamine(b *testing.B) {
	s := &config.Script{Argv: []string{"/usr/bin/true"}, User: "nobody"}
	for b.Loop() {
		if _, err := examine(s, Identity{}); err != nil {
			b.Fatal(err)
		}
	}
}
