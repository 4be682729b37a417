package notify

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/script"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// patience is what a test waits for what must happen soon; it is only ever used
// up by a failing test.
const patience = 20 * time.Second

func command(argv ...string) *config.Script { return &config.Script{Argv: argv} }

// bench runs real scripts, which report to the test through a FIFO.
type bench struct {
	*testkit.Room
	r      *Runner
	log    book
	report *os.File
	lines  *bufio.Reader
	cancel context.CancelFunc
	over   chan struct{}
}

func newBench(t *testing.T, o Options) *bench {
	b := &bench{Room: testkit.NewRoom(t), over: make(chan struct{}), cancel: func() {}}
	o.Log = b.log.logger()
	b.r = New(o)
	var err error
	// Open for both, so that there is no end of file between two scripts.
	b.report, err = os.OpenFile(b.FIFO("report"), os.O_RDWR|syscall.O_NONBLOCK, 0)
	b.Must(err)
	b.lines = bufio.NewReader(b.report)
	t.Cleanup(func() {
		b.stop()
		b.report.Close()
	})
	return b
}

// start begins to run; all scripts must have been written by now, since a file
// that a fork holds open for writing cannot be executed.
func (b *bench) start() {
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	go func() {
		defer close(b.over)
		if err := b.r.Run(ctx); err != nil {
			b.Errorf("Run: %v", err)
		}
	}()
}

// stop waits for Run to return. No child may be left then, alive or dead.
func (b *bench) stop() {
	b.Helper()
	b.cancel()
	select {
	case <-b.over:
	case <-time.After(patience):
		b.Fatal("Run does not return")
	}
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		b.Errorf("a child is left: pid %d, %v", pid, err)
	}
}

// told returns the next line that a script reported.
func (b *bench) told() string {
	b.Helper()
	b.Must(b.report.SetReadDeadline(time.Now().Add(patience)))
	s, err := b.lines.ReadString('\n')
	if err != nil {
		b.Fatalf("no report: %v; log:\n%s", err, &b.log)
	}
	return strings.TrimSuffix(s, "\n")
}

func (b *bench) wantTold(want ...string) {
	b.Helper()
	for _, w := range want {
		if got := b.told(); got != w {
			b.Errorf("told %q, want %q", got, w)
		}
	}
}

// release lets a script go on that reads from the FIFO; it waits until one does.
func (b *bench) release(fifo string) {
	b.Helper()
	opened := make(chan *os.File, 1)
	go func() {
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err != nil {
			b.Error(err)
		}
		opened <- f
	}()
	select {
	case f := <-opened:
		f.WriteString("go\n")
		f.Close()
	case <-time.After(patience):
		b.Fatalf("no script reads %s; log:\n%s", fifo, &b.log)
	}
}

// logged waits until the log has all parts in one line.
func (b *bench) logged(parts ...string) string {
	b.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		for line := range strings.Lines(b.log.String()) {
			if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
				return line
			}
		}
	}
	b.Fatalf("no line with %q in the log:\n%s", parts, &b.log)
	return ""
}

func (b *bench) notify(event string, s *config.Script) {
	n := note(event)
	n.Script = s
	b.r.Notify(n)
}

// gone waits until no process has this number.
func (b *bench) gone(pid string) {
	b.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		b.Fatalf("%q is not a process number", pid)
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		// An orphan that nobody reaps, as in a container, is gone as well.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
	}
	b.Errorf("process %d still runs", n)
}

// TestQ08FlapWithASlowUpScript: the up script blocks, the down script does not. Run
// at once, as keepalived does, down would end before the first up.
func TestQ08FlapWithASlowUpScript(t *testing.T) {
	for _, who := range []string{"", "nobody"} {
		t.Run("user "+who, func(t *testing.T) {
			if who != "" {
				testkit.Nobody(t)
			}
			b := newBench(t, Options{})
			gate := b.FIFO("gate")
			up := &config.Script{User: who, Argv: []string{b.Script("up", "echo begin $SLUICE_EVENT > "+b.Path("report")+"\nread x < "+gate+"\necho end $SLUICE_EVENT > "+b.Path("report"))}}
			down := &config.Script{User: who, Argv: []string{b.Script("down", "echo $SLUICE_EVENT $SLUICE_RS > "+b.Path("report"))}}
			b.start()
			b.notify("vs/rs up", up)
			b.wantTold("begin rs_up")
			for range 3 {
				b.notify("vs/rs down", down)
				b.notify("vs/rs up", up)
			}
			b.notify("vs/rs down", down)
			b.notify("other/rs down", down)
			b.wantTold("rs_down rs") // another service is not held up
			b.release(gate)
			b.wantTold("end rs_up", "rs_down rs")
			b.logged("Script ended", "notice=rs_down", "vs=vs", "rs=rs", "took=")
			b.stop()
			if n := strings.Count(b.log.String(), "Script ended"); n != 3 {
				t.Errorf("%d scripts ran, want 3:\n%s", n, &b.log)
			}
		})
	}
}

func TestEnvironmentAndArguments(t *testing.T) {
	b := newBench(t, Options{})
	out := b.Path("report")
	s := b.Script("s", `{ echo "$# $1 $2"; echo "$SLUICE_EVENT $SLUICE_VS ${SLUICE_RS-none}"
echo "${IFS_SEEN-}${LD_PRELOAD-}${LD_LIBRARY_PATH-}${NOTIFY_SOCKET-}${WATCHDOG_USEC-} $KEPT"; pwd; readlink /proc/self/fd/0; } > `+out)
	for _, v := range []string{"LD_LIBRARY_PATH", "NOTIFY_SOCKET", "WATCHDOG_USEC", "KEPT"} {
		t.Setenv(v, "value of "+v)
	}
	t.Setenv("SLUICE_RS", "stale")
	b.start()
	b.notify("vs up", command(s, "a b", ";$(reboot)"))
	b.wantTold("2 a b ;$(reboot)", "quorum_up vs none", " value of KEPT", "/", "/dev/null")
	b.notify("vs/rs down", command(s))
	b.wantTold("0  ", "rs_down vs rs", " value of KEPT", "/", "/dev/null")
}

// TestP23NoShell: what only a shell understands reaches the program as it stands.
func TestP23NoShell(t *testing.T) {
	b := newBench(t, Options{})
	s := b.Script("ip", `for a; do echo "$a" > `+b.Path("report")+"; done")
	b.start()
	b.notify("vs up", command(s, "addr", "add", "192.0.2.10/32;", s, ">", b.Path("created")))
	b.wantTold("addr", "add", "192.0.2.10/32;", s, ">", b.Path("created"))
	b.stop()
	if _, err := os.Stat(b.Path("created")); err == nil {
		t.Error("a redirection was performed")
	}
}

func TestUserAndGroups(t *testing.T) {
	testkit.Nobody(t)
	for name, tt := range map[string]struct {
		user, group string
		id          script.Identity
		want        string // id -u, id -g, id -G
	}{
		"own":               {want: "0 0 0"},
		"user":              {user: "nobody", want: "65534 65534 65534"},
		"user and group":    {user: "nobody", group: "adm", want: "65534 4 4"},
		"numbers":           {user: "54321", group: "54322", want: "54321 54322 54322"},
		"supplementary":     {user: "nobody", group: ":adm", want: "65534 4 4 65534"},
		"script_user":       {id: script.Identity{User: "daemon", Group: "bin"}, want: "1 2 2"},
		"root's group only": {user: "nobody", group: "root", want: "65534 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{Identity: tt.id})
			s := &config.Script{User: tt.user, Group: tt.group, Argv: []string{b.Script("s", "echo `id -u` `id -g` `id -G` > "+b.Path("report"))}}
			b.start()
			b.notify("vs up", s)
			b.wantTold(tt.want)
		})
	}
}

// TestConfigure: a reload's identity counts for what starts from then on.
func TestConfigure(t *testing.T) {
	testkit.Nobody(t)
	b := newBench(t, Options{Identity: script.Identity{User: "nobody"}})
	gate := b.FIFO("gate")
	s := command(b.Script("s", "id -u > "+b.Path("report")+"; read x < "+gate))
	b.start()
	b.notify("vs up", s)
	b.wantTold("65534")
	b.notify("vs down", s)
	b.r.Configure(script.Identity{User: "daemon"})
	b.release(gate)
	b.wantTold("1")
	b.notify("vs up", s)
	b.r.Configure(script.Identity{User: "root", Security: true})
	b.Must(os.Chmod(b.Dir, 0o777))
	b.release(gate)
	b.logged("level=ERROR", "Script is not run", "refused by enable_script_security", b.Dir+" (directory, owner root, group root, mode 0777)")
}

// TestX02ExaminedBeforeEachRun: a mode that changes later counts, and a warning
// comes once until a reload.
func TestX02ExaminedBeforeEachRun(t *testing.T) {
	testkit.NeedRoot(t)
	b := newBench(t, Options{})
	s := &config.Script{User: "root", Argv: []string{b.Script("s", "echo ran > "+b.Path("report"))}}
	b.start()
	run := func() {
		b.notify("vs up", s)
		b.wantTold("ran")
	}
	run()
	b.Must(os.Chmod(s.Argv[0], 0o757))
	run()
	b.logged("level=WARN", "others can change it", "/s (file, owner root, group root, mode 0757) is writable by everybody", "vs=vs")
	run()
	b.r.Configure(script.Identity{})
	run() // warned of again
	b.Must(os.Chmod(s.Argv[0], 0o644))
	b.notify("vs up", s)
	b.logged("level=ERROR", "Script is not run", "/s (file, owner root, group root, mode 0644): no execute permission")
	b.Must(os.Remove(s.Argv[0]))
	b.notify("vs up", s)
	b.logged("level=ERROR", "Script is not run", "/s does not exist")
	b.stop()
	if n := strings.Count(b.log.String(), "others can change it"); n != 2 {
		t.Errorf("%d warnings, want 2, one for each configuration:\n%s", n, &b.log)
	}
}

func TestFailuresAreLogged(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(b *bench) *config.Script
		want []string
	}{
		"exit status": {func(b *bench) *config.Script {
			return command(b.Script("s", "echo out; echo err >&2; exit 3"), "password")
		},
			[]string{"level=ERROR", "Script failed", `reason="exit status 3"`, `output="out\nerr"`, "/s took=", "notice=rs_down", "vs=vs", "rs=rs", "took="}},
		"signal": {func(b *bench) *config.Script { return command(b.Script("s", "kill -9 $$")) },
			[]string{"level=ERROR", "Script failed", `reason="signal: killed"`}},
		"much output": {func(b *bench) *config.Script {
			return command(b.Script("s", "head -c 300000 /dev/zero | tr '\\0' x; exit 1"))
		}, []string{"xxx ... (295904 bytes more)"}},
		"no interpreter": {func(b *bench) *config.Script { return command(b.File("s", "#!/no/such/shell -x\n", 0o755)) },
			[]string{"level=ERROR", "Script is not run", "its first line names", "#!/no/such/shell -x"}},
		"damaged program": {func(b *bench) *config.Script { return command(b.File("s", "\x7fELF\x00\x00", 0o755)) },
			[]string{"level=ERROR", "neither a program for this machine nor a script"}},
		"unknown user": {func(b *bench) *config.Script {
			return &config.Script{Argv: []string{b.Script("s", "")}, User: "no-such-user"}
		}, []string{"level=ERROR", "Script is not run", `there is no user`, "no-such-user"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{})
			s := tt.make(b)
			next := command(b.Script("next", "echo next > "+b.Path("report")))
			b.start()
			b.notify("vs/rs down", s)
			b.notify("vs down", next)
			b.logged(tt.want...)
			b.wantTold("next") // a failure stops nothing
			if log := b.log.String(); strings.Contains(log, "password") {
				t.Errorf("the log has a script's arguments:\n%s", log)
			}
		})
	}
}

func TestNotAllowedToBecomeTheUser(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may become anyone; see the test of the same name in internal/script")
	}
	b := newBench(t, Options{})
	s := &config.Script{Argv: []string{b.Script("s", "")}, User: "54321", Group: "54321"}
	b.start()
	b.notify("vs up", s)
	b.logged("CAP_SETUID", "user 54321")
}

func TestScriptWithoutInterpreterLine(t *testing.T) {
	b := newBench(t, Options{})
	s := command(b.File("s", "echo \"$0 $1\" > "+b.Path("report")+"\n", 0o755), "a;b")
	b.start()
	b.notify("vs up", s)
	b.wantTold(s.Argv[0] + " a;b")
	b.notify("vs down", s)
	b.wantTold(s.Argv[0] + " a;b")
	b.stop()
	if n := strings.Count(b.log.String(), "no #! line"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, &b.log)
	}
}

// TestTimeoutEndsTheGroup: the script ends at SIGTERM or not, and so does a child.
func TestTimeoutEndsTheGroup(t *testing.T) {
	const wait = "while :; do read x < $gate; done"
	for name, tt := range map[string]struct{ body, child, want string }{
		"both obey":           {wait, wait, "still running after 2s"},
		"the child ignores":   {wait, "trap '' TERM; " + wait, "still running after 2s"},
		"both ignore SIGTERM": {"trap '' TERM; " + wait, "trap '' TERM; " + wait, "SIGTERM did not end it"},
	} {
		t.Run(name, func(t *testing.T) {
			// Long enough for both to have begun on a busy machine.
			b := newBench(t, Options{Timeout: 2 * time.Second})
			b.r.killAfter = 200 * time.Millisecond
			vars := "gate=" + b.FIFO("gate") + "\n"
			child := b.Script("child", vars+"echo $$ > "+b.Path("report")+"\n"+tt.child)
			s := command(b.Script("s", vars+"echo $$ > "+b.Path("report")+"\n"+child+" &\n"+tt.body))
			next := command(b.Script("next", "echo next > "+b.Path("report")))
			b.start()
			b.notify("vs up", s)
			b.notify("vs/rs up", next)
			pids := []string{b.told(), b.told()}
			b.wantTold("next")
			for _, pid := range pids {
				b.gone(pid)
			}
			b.logged("level=ERROR", "Script was ended", tt.want, "notice=quorum_up")
		})
	}
}

// TestChildHoldsTheOutput: a script that leaves a child behind has ended all the
// same, and the child can go on printing.
func TestChildHoldsTheOutput(t *testing.T) {
	b := newBench(t, Options{})
	gate := b.FIFO("gate")
	child := b.Script("child", "read x < "+gate+"\necho still here && echo printed > "+b.Path("report"))
	s := command(b.Script("s", "echo from the script\n"+child+" &\necho left > "+b.Path("report")))
	next := command(b.Script("next", "echo next > "+b.Path("report")))
	b.start()
	b.notify("vs up", s)
	b.notify("vs/rs down", next)
	b.wantTold("left", "next")
	b.logged("Script ended", "notice=quorum_up", `output="from the script"`)
	b.release(gate)
	b.wantTold("printed")
}

// TestInheritedDescriptors: one without the mark is not passed on.
func TestInheritedDescriptors(t *testing.T) {
	b := newBench(t, Options{})
	fd, err := unix.Open(b.Script("other", ""), unix.O_RDONLY, 0)
	b.Must(err)
	defer unix.Close(fd)
	// No pipeline, and the list itself: the shell has such things open meanwhile.
	s := command(b.Script("s", "ls -l /proc/$$/fd > "+b.Path("list")+"\necho listed > "+b.Path("report")))
	b.start()
	b.notify("vs up", s)
	b.wantTold("listed")
	list, err := os.ReadFile(b.Path("list"))
	b.Must(err)
	for line := range strings.Lines(string(list)) {
		_, target, ok := strings.Cut(strings.TrimSpace(line), " -> ")
		if ok && target != "/dev/null" && target != s.Argv[0] && target != b.Path("list") && !strings.HasPrefix(target, "pipe:") {
			t.Errorf("open in the script: %s", line)
		}
	}
	if strings.Count(string(list), " -> ") < 3 {
		t.Errorf("not a list of descriptors:\n%s", list)
	}
}

func TestStopInMidScript(t *testing.T) {
	b := newBench(t, Options{})
	gate := b.FIFO("gate")
	hang := command(b.Script("hang", "trap '' TERM\necho $$ > "+b.Path("report")+"\nwhile :; do read x < "+gate+"; done"))
	s := command(b.Script("s", "echo $SLUICE_EVENT > "+b.Path("report")))
	b.start()
	b.notify("vs/rs down", hang)
	pid := b.told()
	b.notify("vs/rs2 down", s)
	b.notify("vs down", s)
	begin := time.Now()
	b.stop()
	b.wantTold("quorum_down", "rs_down")
	if took := time.Since(begin); took < stopScript || took > StopLimit {
		t.Errorf("the stop took %v", took)
	}
	b.gone(pid)
	b.logged("level=ERROR", "Script was ended", "still running 1s after the daemon began to stop", "rs=rs")
}

func TestScriptsDieWithTheDaemon(t *testing.T) {
	if s := os.Getenv("NOTIFY_TEST_SCRIPT"); s != "" {
		r := New(Options{})
		n := note("vs up")
		n.Script = command(s)
		r.Notify(n)
		r.Run(context.Background())
		return
	}
	b := newBench(t, Options{})
	gate := b.FIFO("gate")
	s := b.Script("s", "echo $$ > "+b.Path("report")+"\nread x < "+gate)
	self, err := os.Executable()
	b.Must(err)
	daemon := exec.Command(self, "-test.run=^TestScriptsDieWithTheDaemon$")
	daemon.Env = append(os.Environ(), "NOTIFY_TEST_SCRIPT="+s)
	b.Must(daemon.Start())
	pid := b.told()
	b.Must(daemon.Process.Kill())
	daemon.Wait()
	b.gone(pid)
	close(b.over) // nothing ran here
}

// TestManyRuns: hundreds of scripts leave no process and no heap of threads;
// TestMain looks for goroutines and descriptors.
func TestManyRuns(t *testing.T) {
	b := newBench(t, Options{})
	s := command(b.Script("s", "exit 1"))
	b.start()
	for i := range 300 {
		b.notify(fmt.Sprintf("vs%d up", i%20), s)
		b.notify(fmt.Sprintf("vs%d/rs%d up", i%20, i), s)
	}
	for i := range 20 {
		b.logged("Script failed", fmt.Sprintf("rs=rs%d ", 280+i))
	}
	b.stop()
	// Each server's once; a quorum's at least once.
	if ran := strings.Count(b.log.String(), "Script failed"); ran < 320 || ran > 600 {
		t.Errorf("%d scripts ran", ran)
	}
	if left, _ := filepath.Glob("/proc/self/task/*"); len(left) > 100 {
		t.Errorf("%d threads", len(left))
	}
}
