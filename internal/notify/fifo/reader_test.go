package fifo

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// programs is a Start that notes what happens; each runs until it is ended or let
// go.
type programs struct {
	mu     sync.Mutex
	notes  []string
	letGo  chan error
	linger time.Duration // after the end was asked for
	from   time.Time
}

func newPrograms() *programs { return &programs{letGo: make(chan error), from: time.Now()} }

func (p *programs) note(what string, s *config.Script) {
	p.mu.Lock()
	defer p.mu.Unlock()
	argv := slices.Clone(s.Argv)
	argv[len(argv)-1] = filepath.Base(argv[len(argv)-1])
	p.notes = append(p.notes, strings.TrimSpace(what+" "+strings.Join(argv, " ")+" "+s.User+" "+s.Group)+" "+time.Since(p.from).String())
}

func (p *programs) run(ctx context.Context, s *config.Script) error {
	p.note("start", s)
	select {
	case err := <-p.letGo:
		p.note("end", s)
		return err
	case <-ctx.Done():
		p.note("term", s)
		if p.linger > 0 {
			<-time.After(p.linger)
			p.note("end", s)
		}
		return ctx.Err()
	}
}

// expect compares the notes since the last call.
func (p *programs) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.notes, want) {
		t.Errorf("happened:\n%s\nwant:\n%s", strings.Join(p.notes, "\n"), strings.Join(want, "\n"))
	}
	p.notes = nil
}

func TestScriptLivesWithItsFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		p := newPrograms()
		w := start(t, Options{Start: p.run})
		script := func(argv ...string) *config.Script { return &config.Script{Argv: argv} }
		set := func(s *config.Script, user, group string) {
			w.Configure(Config{FIFOs: []config.FIFO{{Path: filepath.Join(dir, "f"), Script: s}}, ScriptUser: user, ScriptGroup: group})
		}
		set(script("/x", "one"), "", "")
		p.expect(t, "start /x one f 0s")
		set(script("/x", "one"), "", "") // nothing changed
		p.expect(t)
		// Another argument: the FIFO stays, and two never read at once.
		p.linger = 3 * time.Second
		was := stat(t, filepath.Join(dir, "f")).Ino
		set(script("/x", "two"), "", "")
		p.expect(t, "term /x one f 0s")
		<-time.After(3 * time.Second)
		p.expect(t, "end /x one f 3s", "start /x two f 3s")
		if stat(t, filepath.Join(dir, "f")).Ino != was {
			t.Error("the FIFO was made anew")
		}
		p.linger = 0
		// Another user to run as.
		set(script("/x", "two"), "daemon", "mail")
		p.expect(t, "term /x two f 3s", "start /x two f daemon mail 3s")
		own := script("/x", "two")
		own.User = "daemon"
		set(own, "nobody", "mail")
		p.expect(t, "term /x two f daemon mail 3s", "start /x two f daemon 3s")
		set(own, "bin", "")
		p.expect(t)
		// It ends by itself: it is not started again before a reload.
		p.letGo <- errors.New("exit status 3")
		p.expect(t, "end /x two f daemon 3s")
		w.logs("level=WARN", "Script of notify FIFO has ended", "exit status 3")
		<-time.After(time.Hour)
		p.expect(t)
		set(own, "bin", "")
		p.expect(t, "start /x two f daemon 1h0m3s")
		// The FIFO stays without it.
		set(nil, "", "")
		p.expect(t, "term /x two f daemon 1h0m3s")
		w.stop()
		p.expect(t)
	})
}

func TestScriptMayReadTheRestBeforeItIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		p := newPrograms()
		w := start(t, Options{Start: p.run})
		a := config.FIFO{Path: filepath.Join(dir, "a"), Script: &config.Script{Argv: []string{"/a"}}}
		b := config.FIFO{Path: filepath.Join(dir, "b"), Script: &config.Script{Argv: []string{"/b"}}}
		w.configure(a)
		w.configure(b)
		p.expect(t, "start /a a 0s", "start /b b 0s")
		<-time.After(readRest)
		p.expect(t, "term /a a 1s")
		w.stop()
		p.expect(t, "term /b b 2s")
		if strings.Contains(w.log.String(), "has ended") {
			t.Errorf("warned of an end that was asked for:\n%s", w.log)
		}
	})
}

func TestScriptThatSeesTheEndIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrograms()
		w := start(t, Options{Start: p.run})
		w.configure(config.FIFO{Path: filepath.Join(t.TempDir(), "a"), Script: &config.Script{Argv: []string{"/a"}}})
		go func() { p.letGo <- nil }()
		from := time.Now()
		w.stop()
		if took := time.Since(from); took != 0 {
			t.Errorf("the stop took %v", took)
		}
	})
}

func TestScriptThatDoesNotEndIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrograms()
		p.linger = time.Hour
		w := start(t, Options{Start: p.run})
		w.configure(config.FIFO{Path: filepath.Join(t.TempDir(), "a"), Script: &config.Script{Argv: []string{"/a"}}})
		from := time.Now()
		w.stop()
		if took := time.Since(from); took != StopLimit {
			t.Errorf("the stop took %v", took)
		}
		w.logs("left behind")
		<-time.After(time.Hour)
	})
}

func TestNoScriptWithoutItsFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrograms()
		w := start(t, Options{Start: p.run})
		w.configure(config.FIFO{Path: filepath.Join(t.TempDir(), "no", "f"), Script: &config.Script{Argv: []string{"/x"}}})
		p.expect(t)
	})
}

// A real program, which must have read all when the stop is over.
func TestProgramReadsEverything(t *testing.T) {
	dir := t.TempDir()
	path, out := filepath.Join(dir, "f"), filepath.Join(dir, "out")
	w := New(Options{Start: func(ctx context.Context, s *config.Script) error {
		return exec.CommandContext(ctx, s.Argv[0], s.Argv[1:]...).Run()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- w.Run(ctx) }()
	w.Configure(Config{FIFOs: []config.FIFO{{Path: path, Script: &config.Script{Argv: []string{"/bin/sh", "-c", `exec cat "$1" > "$0"`, out}}}}})
	w.RealServer(rs, vs, false)
	testkit.Eventually(t, 30*time.Second, func() string {
		if b, _ := os.ReadFile(out); len(b) == 0 {
			return "the program has read nothing"
		}
		return ""
	})
	var want strings.Builder
	want.WriteString("RS " + rs + " " + vs + " DOWN\n\x00")
	for range 500 {
		w.VirtualServer(vs, true)
		want.WriteString("VS " + vs + " UP\n\x00")
	}
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != want.String() {
		t.Errorf("it read %d bytes of %d, %v", len(b), len(want.String()), err)
	}
}

func TestTheConfigurationIsNotWrittenTo(t *testing.T) {
	argv := append(make([]string, 0, 8), "/x") // with room that an append would use
	s := &config.Script{Argv: argv}
	a := withPath(config.FIFO{Path: "/a", Script: s}, &Config{ScriptUser: "daemon"})
	b := withPath(config.FIFO{Path: "/b", Script: s}, &Config{})
	if a.Argv[1] != "/a" || b.Argv[1] != "/b" || len(s.Argv) != 1 || s.User != "" {
		t.Errorf("%v, %v from %v", a, b, s)
	}
}
