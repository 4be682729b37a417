package notify

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// book is a log that a test reads.
type book struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *book) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// want wants each part in the log.
func (b *book) want(t testing.TB, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(b.String(), p) {
			t.Errorf("no %q in the log:\n%s", p, b)
		}
	}
}

// stage runs a Runner whose scripts are the test's own: what starts appears in
// started, and ends when the test says so or the daemon kills it.
type stage struct {
	*testing.T
	r      *Runner
	log    book
	cancel context.CancelFunc
	over   chan struct{} // Run has returned

	mu      sync.Mutex
	started []string
	ends    map[string]chan struct{}
	deaf    bool // kill has no effect
}

func newStage(t *testing.T, o Options) *stage {
	s := &stage{T: t, ends: map[string]chan struct{}{}, over: make(chan struct{})}
	o.Log = s.log.logger()
	s.r = New(o)
	s.r.run = func(l life, n Notice) {
		end := make(chan struct{})
		s.mu.Lock()
		s.started = append(s.started, text(n))
		s.ends[text(n)] = end
		hard := l.hard
		if s.deaf {
			hard = nil
		}
		s.mu.Unlock()
		select {
		case <-end:
		case <-hard:
		}
	}
	return s
}

func (s *stage) run() {
	ctx, cancel := context.WithCancel(s.Context())
	s.cancel = cancel
	go func() {
		defer close(s.over)
		if err := s.r.Run(ctx); err != nil {
			s.Errorf("Run: %v", err)
		}
	}()
	synctest.Wait()
}

func (s *stage) notify(notes ...string) {
	for _, n := range notes {
		s.r.Notify(note(n))
	}
	synctest.Wait()
}

// end ends scripts.
func (s *stage) end(notes ...string) {
	s.Helper()
	for _, n := range notes {
		s.mu.Lock()
		end, ok := s.ends[n]
		delete(s.ends, n)
		s.mu.Unlock()
		if !ok {
			s.Fatalf("%s does not run", n)
		}
		close(end)
		synctest.Wait()
	}
}

// want wants exactly these to have started since the last call, in any order.
func (s *stage) want(notes ...string) {
	s.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.started)
	slices.Sort(notes)
	if !slices.Equal(s.started, notes) {
		s.Errorf("started %q, want %q", s.started, notes)
	}
	s.started = nil
}

func onStage(t *testing.T, o Options, test func(s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, o)
		s.run()
		test(s)
		s.cancel()
		<-s.over
	})
}

func TestOneScriptOfAServiceAtATime(t *testing.T) {
	onStage(t, Options{}, func(s *stage) {
		s.notify("a/1 down", "a/2 down", "a down", "b/1 up")
		s.want("a/1 down", "b/1 up")
		s.end("a/1 down")
		s.want("a/2 down")
		s.end("b/1 up", "a/2 down")
		s.want("a down")
		s.end("a down")
		s.want()
	})
}

// TestQ08FlapsCollapse: while one script runs, a flap leaves one event to tell.
func TestQ08FlapsCollapse(t *testing.T) {
	onStage(t, Options{}, func(s *stage) {
		s.notify("a up", "a down", "a up", "a down", "a up")
		s.want("a up")
		s.notify("a down")
		s.end("a up")
		s.want("a down")
		s.end("a down")
		s.want()
	})
}

func TestServicesRunSideBySideUpToALimit(t *testing.T) {
	onStage(t, Options{}, func(s *stage) {
		var all []string
		for i := range parallel + 2 {
			all = append(all, fmt.Sprintf("vs%d up", i))
		}
		s.notify(all...)
		s.want(slices.Clone(all[:parallel])...)
		s.end(all[3])
		s.want(all[parallel])
		s.end(all[0])
		s.want(all[parallel+1])
		s.end(slices.Concat(all[1:3], all[4:])...)
	})
}

func TestNoticesWithoutAScript(t *testing.T) {
	onStage(t, Options{}, func(s *stage) {
		s.notify("a/1 down", "a/2 down")
		// It neither runs nor takes the place of one that waits.
		s.r.Notify(Notice{Kind: RealServerUp, VS: "a", RS: "2"})
		s.r.Notify(Notice{Kind: QuorumUp, VS: "b", Script: &config.Script{}})
		s.end("a/1 down")
		s.want("a/1 down", "a/2 down")
		s.end("a/2 down")
	})
}

func TestNotifyBeforeAndAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{})
		s.notify("a up")
		s.want()
		s.run()
		s.want("a up")
		s.end("a up")
		s.cancel()
		<-s.over
		s.notify("a down")
		s.want()
	})
}

func TestFullQueueIsLogged(t *testing.T) {
	onStage(t, Options{MaxPending: 2}, func(s *stage) {
		s.notify("a/1 down")
		for i := 2; i < 1000; i++ {
			s.r.Notify(note(fmt.Sprintf("a/%d down", i)))
		}
		synctest.Wait()
		s.log.want(s, "queue is full", "notice=rs_down", "vs=a", "dropped=")
		s.end("a/1 down")
		s.end("a/2 down")
		s.end("a/3 down")
		s.want("a/1 down", "a/2 down", "a/3 down")
	})
}

func TestStopRunsWhatIsQueued(t *testing.T) {
	onStage(t, Options{}, func(s *stage) {
		s.notify("a/1 up")
		s.notify("a/1 down", "a/2 down", "a down")
		s.cancel()
		s.end("a/1 up")
		s.want("a/1 up", "a down") // the quorum goes first
		s.notify("b down")
		s.end("a down", "a/1 down", "a/2 down")
		s.want("b down", "a/1 down", "a/2 down")
		select {
		case <-s.over:
			t.Error("Run returned with a script running")
		default:
		}
		s.end("b down")
		<-s.over
		if got := s.log.String(); got != "" {
			t.Errorf("an orderly stop is silent, logged:\n%s", got)
		}
	})
}

func TestStopIsBounded(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("unkillable=%t", deaf), func(t *testing.T) {
			onStage(t, Options{}, func(s *stage) {
				s.deaf = deaf
				s.notify("a/1 up", "a/2 up", "b up")
				begin := time.Now()
				s.cancel()
				<-s.over
				want := StopLimit
				if s.log.want(t, "did not end in time", "not_run=1", "killed=2"); deaf {
					want += reapLimit
					s.log.want(t, "cannot be killed", "scripts=2")
				}
				if took := time.Since(begin); took != want {
					t.Errorf("took %v, want %v", took, want)
				}
				s.want("a/1 up", "b up")
				if deaf {
					s.end("a/1 up", "b up")
				}
			})
		})
	}
}

func TestKindStrings(t *testing.T) {
	for k, want := range map[Kind]string{RealServerUp: "rs_up", RealServerDown: "rs_down", QuorumUp: "quorum_up", QuorumDown: "quorum_down", 7: "kind_7"} {
		if k.String() != want {
			t.Errorf("%d is %q, want %q", k, k, want)
		}
	}
}
