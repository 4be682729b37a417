package checker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config"
)

// recorder is a Runner that notes what it is told.
type recorder struct {
	name string
	log  *[]string
	has  map[ID]bool
	late time.Duration
	fail error
}

func (r *recorder) note(op string, id ID) {
	*r.log = append(*r.log, fmt.Sprint(r.name, " ", op, " ", id))
}

func (r *recorder) Add(t Task)             { r.note("add", t.ID); r.has[t.ID] = true }
func (r *recorder) Has(id ID) bool         { return r.has[id] }
func (r *recorder) Overdue() time.Duration { return r.late }
func (r *recorder) Stats() Stats {
	return Stats{Tasks: 1, Running: 2, Waiting: 3, Hung: 4, Limit: 5, Runs: 6, Panics: 7, Hangs: 8}
}

func (r *recorder) Remove(id ID) {
	if r.has[id] {
		r.note("remove", id)
		delete(r.has, id)
	}
}

func (r *recorder) Update(t Task) {
	if r.has[t.ID] {
		r.note("update", t.ID)
	}
}

func (r *recorder) RunNow(id ID) {
	if r.has[id] {
		r.note("run", id)
	}
}

func (r *recorder) Run(ctx context.Context) error {
	if r.fail == nil {
		<-ctx.Done()
	}
	return r.fail
}

// speaks is a probe that is a Conversation.
type speaks struct{ probeFunc }

func (speaks) Begin() *config.Connection           { return nil }
func (speaks) Connected() ([]byte, bool)           { return nil, false }
func (speaks) Received([]byte) bool                { return true }
func (speaks) Ended(Step, error)                   {}
func (speaks) Next() (*config.Connection, Outcome) { return nil, Outcome{} }

// front makes a Front of recorders: g for the goroutines, then the loops.
func front(loops int) (*Front, []*recorder, *[]string) {
	log := &[]string{}
	var all []*recorder
	var runners []Runner
	for i := range loops + 1 {
		r := &recorder{name: fmt.Sprint("loop", i-1), log: log, has: map[ID]bool{}}
		if i == 0 {
			r.name = "goroutines"
		}
		all, runners = append(all, r), append(runners, r)
	}
	return NewFront(runners[0], runners[1:]...), all, log
}

func TestFrontSendsConversationsToTheirLoop(t *testing.T) {
	f, _, log := front(2)
	conversation, other := Task{Probe: speaks{good}, Judge: every(0)}, Task{Probe: good, Judge: every(0)}
	with := func(t Task, id ID) Task { t.ID = id; return t }
	f.Add(with(conversation, 4))
	f.Add(with(conversation, 5))
	f.Add(with(other, 6))
	f.Update(with(conversation, 4))
	f.Update(with(other, 5)) // another kind of probe: another runner
	f.Update(with(conversation, 6))
	f.Update(with(other, 99))
	f.RunNow(5)
	f.Remove(4)
	f.Remove(4)
	want := []string{"loop0 add 4", "loop1 add 5", "goroutines add 6", "loop0 update 4",
		"loop1 remove 5", "goroutines add 5", "goroutines remove 6", "loop0 add 6", "goroutines run 5", "loop0 remove 4"}
	if d := cmp.Diff(want, *log); d != "" {
		t.Error(d)
	}
	if f.Has(4) || !f.Has(5) || !f.Has(6) {
		t.Error("has")
	}
	defer func() {
		if recover() == nil {
			t.Error("an ID in use, by a probe of another kind, was taken")
		}
	}()
	f.Add(with(conversation, 5))
}

func TestFrontWithoutLoopsRunsAllOnGoroutines(t *testing.T) {
	f, _, log := front(0)
	f.Add(Task{ID: 1, Probe: speaks{good}, Judge: every(0)})
	f.RunNow(1)
	f.Remove(1)
	if d := cmp.Diff([]string{"goroutines add 1", "goroutines run 1", "goroutines remove 1"}, *log); d != "" {
		t.Error(d)
	}
}

func TestFrontSpeaksForAll(t *testing.T) {
	f, all, _ := front(2)
	all[0].late, all[2].late = 3*time.Second, 5*time.Second
	if d := f.Overdue(); d != 5*time.Second {
		t.Errorf("overdue %v", d)
	}
	all[0].late = 7 * time.Second
	if d := f.Overdue(); d != 7*time.Second {
		t.Errorf("overdue %v", d)
	}
	if d := cmp.Diff(Stats{Tasks: 3, Running: 6, Waiting: 9, Hung: 12, Limit: 15, Runs: 18, Panics: 21, Hangs: 24}, f.Stats()); d != "" {
		t.Error(d)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := f.Run(ctx); err != nil {
		t.Error(err)
	}
	// One that fails ends all.
	all[1].fail = errors.New("no epoll")
	if err := f.Run(t.Context()); !errors.Is(err, all[1].fail) {
		t.Error(err)
	}
}

// Both sides together leave a quarter of the descriptors to the rest.
func TestLimitsShareTheDescriptors(t *testing.T) {
	for _, tt := range []struct {
		nofile           uint64
		loops            int
		goroutines, loop int
	}{
		{1024, 0, 768, 0},
		{1024, 1, 384, 384},
		{1024, 4, 384, 96},
		{65536, 1, 4096, 45056},
		{65536, 2, 4096, 22528},
		{10, 2, 16, 16},
	} {
		g, l := limitsFor(tt.nofile, tt.loops)
		if g != tt.goroutines || l != tt.loop {
			t.Errorf("%d descriptors, %d loops: %d and %d, want %d and %d", tt.nofile, tt.loops, g, l, tt.goroutines, tt.loop)
		}
		if tt.nofile >= 1024 && uint64(g+l*tt.loops) > tt.nofile*3/4 {
			t.Errorf("%d descriptors: %d are too many", tt.nofile, g+l*tt.loops)
		}
	}
	if g, l := Limits(1); g < minLimit || l < minLimit {
		t.Errorf("%d, %d", g, l)
	}
}
