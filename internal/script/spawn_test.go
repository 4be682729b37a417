package script

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// TestThreadsComeAndGo: a script outlives the thread that asked for it, though the
// kernel ends it with the thread that forked.
func TestThreadsComeAndGo(t *testing.T) {
	r := testkit.NewRoom(t)
	s := command(r.Script("s", "echo up > "+r.Path("up")+"\nread x < "+r.FIFO("gate")+"\nexit 5"))
	var tid int
	started, done := make(chan *Process), make(chan struct{})
	defer close(done)
	ask := func() {
		runtime.LockOSThread() // and no unlock: the thread ends here
		if tid = unix.Gettid(); tid == os.Getpid() {
			// The main thread never ends. While it is held, the next gets another.
			started <- nil
			<-done
			runtime.UnlockOSThread()
			return
		}
		p, err := Start(Command{Script: s})
		if err != nil {
			t.Error(err)
		}
		started <- p
	}
	go ask()
	p := <-started
	if p == nil {
		go ask()
		p = <-started
	}
	read(r, "up")
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); exists("/proc/self/task/" + strconv.Itoa(tid)); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("the thread does not end")
		}
	}
	gate, err := os.OpenFile(r.Path("gate"), os.O_WRONLY, 0)
	r.Must(err)
	gate.WriteString("go\n")
	gate.Close()
	if res := p.Result(); res.Code != 5 {
		t.Errorf("%+v", res)
	}
}

// TestPlainPriority: what makes the daemon fast is not for scripts.
func TestPlainPriority(t *testing.T) {
	s := command(testkit.NewRoom(t).Script("s", "nice"))
	nice := func(n int) error {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, e := range tasks {
			tid, _ := strconv.Atoi(e.Name())
			if err := unix.Setpriority(unix.PRIO_PROCESS, tid, n); err != nil && err != unix.ESRCH {
				return err
			}
		}
		return nil
	}
	was, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	if was = 20 - was; was != 0 {
		t.Skipf("these tests run at nice %d", was)
	}
	if err := nice(-3); err != nil {
		t.Skipf("needs the right to be nice to itself: %v", err)
	}
	res := Run(t.Context(), Command{Script: s})
	if err := nice(0); err != nil {
		t.Fatal(err)
	}
	if res.Output != "0" {
		t.Errorf("a script runs at nice %q, want 0; %+v", res.Output, res)
	}
}

// TestNotAllowedToBecomeTheUser looks at the explanation alone, since root may
// become anyone.
func TestNotAllowedToBecomeTheUser(t *testing.T) {
	err := explain(syscall.EPERM, program{path: "/s", as: account{user: "x", uid: 54321, gid: 54321}})
	wantError(t, err, "CAP_SETUID", "user x (uid 54321)")
}

func TestExplain(t *testing.T) {
	r := testkit.NewRoom(t)
	own := account{user: "me", uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	for name, tt := range map[string]struct {
		err  syscall.Errno
		path string
		want []string
	}{
		"the mode says no": {syscall.EACCES, r.File("a", "", 0o644), []string{"no execute permission", "mode 0644"}},
		"something else":   {syscall.EACCES, r.Script("b", ""), []string{"permission denied", "noexec", "user me"}},
		"binary":           {syscall.ENOENT, r.File("c", "\x7fELF", 0o755), []string{"no such file", "/c"}},
		"interpreter":      {syscall.ENOENT, r.File("d", "#!/gone", 0o755), []string{"#!/gone"}},
		"vanished":         {syscall.ENOENT, r.Path("e"), []string{"no such file", "/e"}},
		"busy":             {syscall.ETXTBSY, r.Path("f"), []string{"text file busy", "/f"}},
		"own user":         {syscall.EPERM, r.Path("g"), []string{"operation not permitted"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := explain(tt.err, program{path: tt.path, as: own})
			wantError(t, err, tt.want...)
			if strings.Contains(err.Error(), "fork/exec") {
				t.Errorf("%q speaks of Go", err)
			}
		})
	}
}
