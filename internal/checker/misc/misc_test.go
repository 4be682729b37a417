package misc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/checkertest"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/internal/script"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// patience is what a test waits for what must happen soon; it is only ever used
// up by a failing test.
const patience = 20 * time.Second

// write makes an executable script.
func write(t testing.TB, body string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "check")
	if err := os.WriteFile(p, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

// check is a MISC_CHECK of the script.
func check(argv ...string) *config.Checker {
	return &config.Checker{Kind: config.MiscCheck, Misc: &config.Misc{Script: &config.Script{Argv: argv}, Timeout: patience}}
}

func probeOf(t testing.TB, c *config.Checker, o Options) *probe {
	t.Helper()
	p, err := New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*probe)
}

var frame = regexp.MustCompile(`^script [^ ]*: |, expected 0( or 2\.\.255)?|,? after [0-9.]+[µm]?s`)

// bare is an outcome without what it says of the script's path, what was expected
// and the time.
func bare(o checker.Outcome) checker.Outcome {
	if o.Result == checker.Failed {
		o.Reason = frame.ReplaceAllString(o.Reason, "")
	}
	o.Took, o.Fault = 0, nil
	return o
}

// faulty holds an outcome to its fault.
func faulty(t *testing.T, o checker.Outcome, path string) {
	t.Helper()
	if why := checkertest.Unfounded(o); why != "" {
		t.Errorf("%+v: %s", o, why)
	}
	if f := o.Fault; f != nil && (f.Stage != checker.StageScript || f.Target != path || f.Want == "" || !strings.HasPrefix(f.Got, "exit status ")) {
		t.Errorf("%+v: fault %+v", o, f)
	}
}

func noChildren(t *testing.T) {
	t.Helper()
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("a child is left: pid %d, %v", pid, err)
	}
}

func TestExitStatus(t *testing.T) {
	path := write(t, `exit $1`)
	for _, tt := range []struct {
		code           int
		plain, dynamic checker.Outcome
	}{
		{0, checker.Outcome{}, checker.Outcome{}},
		{1, checker.Outcome{Result: checker.Failed}, checker.Outcome{Result: checker.Failed}},
		{2, checker.Outcome{Result: checker.Failed}, checker.Outcome{Weighted: true}},
		{12, checker.Outcome{Result: checker.Failed}, checker.Outcome{Weighted: true, Weight: 10}},
		{126, checker.Outcome{Result: checker.Failed}, checker.Outcome{Weighted: true, Weight: 124}},
		{127, checker.Outcome{Result: checker.Failed}, checker.Outcome{Weighted: true, Weight: 125}},
		{255, checker.Outcome{Result: checker.Failed}, checker.Outcome{Weighted: true, Weight: 253}},
	} {
		for _, dynamic := range []bool{false, true} {
			c := check(path, fmt.Sprint(tt.code))
			c.Misc.Dynamic = dynamic
			want := tt.plain
			if dynamic {
				want = tt.dynamic
			}
			want.Reason = fmt.Sprintf("exit status %d", tt.code)
			if want.Weighted {
				want.Reason += fmt.Sprintf(", weight %d", want.Weight)
			}
			got := probeOf(t, c, Options{}).Run(t.Context())
			if got.Took <= 0 {
				t.Errorf("status %d took %v", tt.code, got.Took)
			}
			faulty(t, got, path)
			if got = bare(got); got != want {
				t.Errorf("status %d, dynamic %t: %+v, want %+v", tt.code, dynamic, got, want)
			}
		}
	}
}

// TestOutcome is the table of all that can come of a script.
func TestOutcome(t *testing.T) {
	refused := errors.New("/s does not exist")
	for name, tt := range map[string]struct {
		r    script.Result
		want checker.Result
		why  string
	}{
		"output":            {script.Result{Code: 1, Output: "\n\n  refused by \x1b[1mdb\tone\nmore\n"}, checker.Failed, "exit status 1: refused by ?[1mdb one"},
		"much output":       {script.Result{Output: strings.Repeat("é", 200)}, checker.OK, "exit status 0: " + strings.Repeat("é", maxLine-3) + "..."},
		"signal":            {script.Result{Code: -1, Signal: syscall.SIGSEGV, Output: "x"}, checker.Failed, "ended by SIGSEGV (segmentation fault): x"},
		"timeout":           {script.Result{Code: -1, Signal: syscall.SIGTERM, TimedOut: true, Output: "waiting"}, checker.Failed, "timed out at its misc_timeout of 3s: waiting"},
		"answered timeout":  {script.Result{Code: 12, TimedOut: true}, checker.Failed, "timed out at its misc_timeout of 3s"},
		"forced":            {script.Result{Code: -1, Signal: syscall.SIGKILL, TimedOut: true, Forced: true}, checker.Failed, "timed out at its misc_timeout of 3s, and SIGTERM did not end it"},
		"cancelled":         {script.Result{Code: 0, Stopped: true}, checker.Unable, "cancelled"},
		"cancelled early":   {script.Result{Err: context.Canceled, Stopped: true}, checker.Unable, "cancelled"},
		"not started":       {script.Result{Err: refused}, checker.Unable, "script is not run: /s does not exist"},
		"dynamic, signal":   {script.Result{Code: -1, Signal: syscall.SIGKILL}, checker.Failed, "ended by SIGKILL (killed)"},
		"dynamic, timed 12": {script.Result{Code: 12, TimedOut: true, Signal: 0}, checker.Failed, "timed out at its misc_timeout of 3s"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &config.Misc{Timeout: 3 * time.Second, Dynamic: strings.HasPrefix(name, "dynamic")}
			o := outcome(m, tt.r, time.Second)
			if (o.Fault == nil) != (o.Result == checker.OK) {
				t.Errorf("%+v: fault %+v", o, o.Fault)
			}
			if o := bare(o); o.Result != tt.want || o.Reason != tt.why || o.Weighted || o.Weight != 0 {
				t.Errorf("%+v, want %v %q", o, tt.want, tt.why)
			}
		})
	}
}

// TestX02RefusedIsUnable: the server of a check that cannot run keeps its verdict,
// and the reason is told each time. In keepalived such a check is a success or is
// gone.
func TestX02RefusedIsUnable(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	root := os.Geteuid() == 0
	for name, tt := range map[string]struct {
		s    config.Script
		id   script.Identity
		want string
		skip bool
	}{
		"missing":     {s: config.Script{Argv: []string{dir + "/none"}}, want: "/none does not exist"},
		"mode":        {s: config.Script{Argv: []string{put("mode", "", 0o644)}}, want: "no execute permission"},
		"interpreter": {s: config.Script{Argv: []string{put("interpreter", "#!/no/such/shell\n", 0o755)}}, want: "#!/no/such/shell"},
		"user":        {s: config.Script{Argv: []string{"/usr/bin/true"}, User: "no-such-user"}, want: "no-such-user"},
		"security": {s: config.Script{Argv: []string{put("security", "#!/bin/sh\n", 0o757)}, User: "root"}, id: script.Identity{Security: true},
			want: "refused by enable_script_security", skip: !root},
		"file test": {s: config.Script{Argv: []string{"<relative"}}, want: "< and an absolute path"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.skip {
				t.Skip("needs root")
			}
			c := check()
			c.Misc.Script, c.Misc.Dynamic = &tt.s, true
			o := probeOf(t, c, Options{Identity: func() script.Identity { return tt.id }}).Run(t.Context())
			if o.Result != checker.Unable || !strings.HasPrefix(o.Reason, "script is not run: ") || !strings.Contains(o.Reason, tt.want) || o.Weighted {
				t.Errorf("%+v, want %q", o, tt.want)
			}
		})
	}
	noChildren(t)
}

// TestX02IdentityIsAskedBeforeEachRun: a reload counts at once.
func TestX02IdentityIsAskedBeforeEachRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	id := script.Identity{User: "nobody"}
	p := probeOf(t, check("/usr/bin/id", "-un"), Options{Identity: func() script.Identity { return id }})
	for _, user := range []string{"nobody", "daemon"} {
		id.User = user
		if o := p.Run(t.Context()); o.Reason != "exit status 0: "+user {
			t.Errorf("%+v, want user %s", o, user)
		}
	}
}

// TestX02ExaminedBeforeEachRun: what changes after the start counts at the next run, which
// is not made then, and says which part of the path is wrong; mended, it is made again.
func TestX02ExaminedBeforeEachRun(t *testing.T) {
	testkit.NeedRoot(t)
	r := testkit.NewRoom(t)
	path := r.Script("a/check", "exit 0")
	dir := filepath.Dir(path)
	s := config.Script{Argv: []string{path, "s3cret"}, User: "root"}
	c := check()
	c.Misc.Script = &s
	p := probeOf(t, c, Options{Identity: func() script.Identity { return script.Identity{Security: true} }})
	good := func() {
		t.Helper()
		if o := p.Run(t.Context()); o.Result != checker.OK {
			t.Errorf("%+v", o)
		}
	}
	for _, tt := range []struct {
		spoil, mend func()
		want        string
	}{
		{func() { r.Must(os.Chmod(dir, 0o777)) }, func() { r.Must(os.Chmod(dir, 0o755)) }, dir + " (directory, owner root, group root, mode 0777) is writable by everybody"},
		{func() { r.Must(os.Chmod(path, 0o757)) }, func() { r.Must(os.Chmod(path, 0o755)) }, path + " (file, owner root, group root, mode 0757) is writable by everybody"},
		{func() { r.Must(os.Chown(path, 65534, 0)) }, func() { r.Must(os.Chown(path, 0, 0)) }, path + " (file, owner nobody, group root, mode 0755) is not owned by root"},
		{func() {
			r.Must(os.Rename(path, path+"2"))
			r.Must(os.Symlink(path+"2", path))
			r.Must(os.Chown(path+"2", 65534, 0))
		},
			func() { r.Must(os.Remove(path)); r.Must(os.Rename(path+"2", path)); r.Must(os.Chown(path, 0, 0)) }, path + "2 (file, owner nobody"},
		{func() { r.Must(os.Chmod(path, 0o644)) }, func() { r.Must(os.Chmod(path, 0o755)) }, "mode 0644): no execute permission"},
	} {
		good()
		tt.spoil()
		if o := p.Run(t.Context()); o.Result != checker.Unable || !strings.Contains(o.Reason, tt.want) || strings.Contains(o.Reason, "s3cret") {
			t.Errorf("%+v\nwant %q", o, tt.want)
		}
		tt.mend()
	}
	good()
	noChildren(t)
}

// TestAMalformedFileTestTellsNoArguments: they may be secret.
func TestAMalformedFileTestTellsNoArguments(t *testing.T) {
	for _, argv := range [][]string{{"</x", "s3cret"}, {"<", "/x", "s3cret"}, {"<x", "s3cret"}} {
		c := check(argv...)
		o := probeOf(t, c, Options{}).Run(t.Context())
		if o.Result != checker.Unable || strings.Contains(o.Reason, "s3cret") || !strings.Contains(o.Reason, "x: the test of a file is < and ") {
			t.Errorf("%q: %+v", argv, o)
		}
	}
}

func TestFileTest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ready")
	c := check("<" + path)
	p := probeOf(t, c, Options{})
	if o := p.Run(t.Context()); o.Result != checker.Failed || !strings.Contains(bare(o).Reason, "exit status 1: open "+path+": no such file") {
		t.Errorf("not there: %+v", o)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := p.Run(t.Context()); o.Result != checker.OK {
		t.Errorf("there: %+v", o)
	}
}

func TestWarningsComeOnce(t *testing.T) {
	p := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(p, []byte("exit 0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	var got []string
	pr := probeOf(t, check(p), Options{Warn: func(w string) { got = append(got, w) }})
	for range 3 {
		if o := pr.Run(t.Context()); o.Result != checker.OK {
			t.Errorf("%+v", o)
		}
	}
	got = slices.DeleteFunc(got, func(w string) bool { return strings.Contains(w, "others can change it") }) // of /tmp, for root
	if len(got) != 1 || !strings.Contains(got[0], "no #! line") {
		t.Errorf("warnings %q", got)
	}
}

func TestNothingToRun(t *testing.T) {
	for _, c := range []*config.Checker{{}, {Misc: &config.Misc{}}, check()} {
		if _, err := New(c, Options{}); err == nil || !strings.Contains(err.Error(), "misc_path") {
			t.Errorf("%+v: %v", c.Misc, err)
		}
	}
}

func TestCutShortIsUnable(t *testing.T) {
	p := probeOf(t, check("/usr/bin/sleep", "1000"), Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if o := p.Run(ctx); o.Result != checker.Unable || !strings.Contains(o.Reason, "too busy: the script had only ") || !strings.HasSuffix(o.Reason, "of its 20s") {
		t.Errorf("deadline: %+v", o)
	}
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if o := p.Run(ctx); o.Result != checker.Unable || o.Reason != "cancelled" {
		t.Errorf("cancelled: %+v", o)
	}
	noChildren(t)
}

// TestC06DynamicWeightDoesNotAddUp: exit 12, timeout, exit 12, timeout: each time
// the same, with nothing carried over.
func TestC06DynamicWeightDoesNotAddUp(t *testing.T) {
	c := check(write(t, "[ $1 = hang ] && exec sleep 1000\nexit $1"), "")
	c.Misc.Dynamic = true
	p := probeOf(t, c, Options{})
	for i := range 6 {
		c.Misc.Script.Argv[1], c.Misc.Timeout = "12", patience
		want := checker.Outcome{Result: checker.OK, Reason: "exit status 12, weight 10", Weight: 10, Weighted: true}
		if i%2 == 1 {
			c.Misc.Script.Argv[1], c.Misc.Timeout = "hang", 200*time.Millisecond
			want = checker.Outcome{Result: checker.Failed, Reason: "timed out at its misc_timeout of 200ms"}
		}
		o := p.Run(t.Context())
		if o = bare(o); o != want {
			t.Errorf("run %d: %+v, want %+v", i+1, o, want)
		}
	}
	noChildren(t)
}

// schedule runs tasks until the test has seen enough.
func schedule(t *testing.T, o checker.Options, tasks ...checker.Task) (*checker.Scheduler, func()) {
	t.Helper()
	s := checker.NewScheduler(o)
	for _, task := range tasks {
		s.Add(task)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	return s, func() {
		t.Helper()
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
}

// TestC17RetryCountsRunsOfTheScript: with retry 3 the script fails four times
// before the server is down, as for every check; a success begins anew.
func TestC17RetryCountsRunsOfTheScript(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	// Well, three failures, well again, and failures from then on.
	c := check(write(t, "echo x >> "+runs+"\ncase $(wc -l < "+runs+") in 1|5) exit 0;; esac; exit 1"))
	m, rules := framework.NewMachine(false), framework.Rules{Retry: 3}
	var verdicts []string
	down := make(chan struct{})
	_, stop := schedule(t, checker.Options{}, checker.Task{ID: 1, Probe: probeOf(t, c, Options{}), Timeout: patience, Judge: func(o checker.Outcome) time.Duration {
		if m.Step(rules, o.Result == checker.OK); m.Verdict() == framework.Down {
			close(down)
			return time.Hour
		}
		verdicts = append(verdicts, m.Verdict().String())
		return 0
	}})
	select {
	case <-down:
	case <-time.After(patience):
		t.Error("never down")
	}
	stop()
	if want := slices.Repeat([]string{"up"}, 8); !slices.Equal(verdicts, want) {
		t.Errorf("before it was down: %q, want eight runs up", verdicts)
	}
}

// TestC19AHungScriptHoldsNobody: one script is stopped and does not even take
// SIGTERM; others go on meanwhile, and it has its outcome in time.
func TestC19AHungScriptHoldsNobody(t *testing.T) {
	hung := check(write(t, "kill -STOP $$"))
	hung.Misc.Timeout = time.Second
	var (
		mu     sync.Mutex
		others int
		seen   = make(chan checker.Outcome, 1)
	)
	s, stop := schedule(t, checker.Options{},
		checker.Task{ID: 1, Probe: probeOf(t, hung, Options{}), Timeout: hung.Misc.Timeout + Overtime, Judge: func(o checker.Outcome) time.Duration {
			seen <- o
			return time.Hour
		}},
		checker.Task{ID: 2, Probe: probeOf(t, check("/usr/bin/true"), Options{}), Timeout: patience, Judge: func(o checker.Outcome) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			if others++; o.Result != checker.OK {
				t.Errorf("%+v", o)
			}
			return time.Millisecond
		}},
	)
	select {
	case o := <-seen:
		if o.Result != checker.Failed || bare(o).Reason != "timed out at its misc_timeout of 1s, and SIGTERM did not end it" {
			t.Errorf("%+v", o)
		}
	case <-time.After(patience):
		t.Error("no outcome")
	}
	if st := s.Stats(); st.Hangs != 0 {
		t.Errorf("%+v: its deadline must allow for the kill", st)
	}
	stop()
	if others < 3 {
		t.Errorf("the other check ran %d times in more than two seconds", others)
	}
	noChildren(t)
}

// TestStopWithADeafScript: the scheduler's stop is held up for no longer than the
// kill of the script takes.
func TestStopWithADeafScript(t *testing.T) {
	up := filepath.Join(t.TempDir(), "up")
	c := check(write(t, "trap '' TERM\ntouch "+up+"\nwhile :; do sleep 1000; done"))
	_, stop := schedule(t, checker.Options{Grace: patience}, checker.Task{ID: 1, Probe: probeOf(t, c, Options{}), Timeout: time.Hour, Judge: func(checker.Outcome) time.Duration {
		t.Error("judged after a stop")
		return time.Hour
	}})
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		if _, err := os.Stat(up); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the script does not start")
		}
	}
	stop()
	noChildren(t)
}

// FuzzFirstLine: whatever a script prints, one short line of it is shown.
func FuzzFirstLine(f *testing.F) {
	for _, s := range []string{"", "\n\n", "a\tb\nc", "\x1b]0;title\x07", "\xff\xfe", strings.Repeat("\u00e9", 500), "\u202e\u2028x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		line := firstLine(s)
		if n := utf8.RuneCountInString(line); n > maxLine || !utf8.ValidString(line) {
			t.Errorf("%q: %d characters", line, n)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is not fit for a terminal", line)
		}
		if line == "" && strings.TrimSpace(s) != "" {
			t.Errorf("nothing of %q", s)
		}
	})
}
