package notify

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
)

// note is "vs/rs up" or "vs down" as a notice with a script.
func note(s string) Notice {
	subj, event, _ := strings.Cut(s, " ")
	vs, rs, server := strings.Cut(subj, "/")
	n := Notice{VS: vs, RS: rs, Script: &config.Script{Argv: []string{"/script"}}}
	switch {
	case server && event == "down":
		n.Kind = RealServerDown
	case !server && event == "up":
		n.Kind = QuorumUp
	case !server:
		n.Kind = QuorumDown
	}
	return n
}

func text(n Notice) string {
	event := map[Kind]string{RealServerUp: "up", RealServerDown: "down", QuorumUp: "up", QuorumDown: "down"}[n.Kind]
	if n.RS != "" {
		return n.VS + "/" + n.RS + " " + event
	}
	return n.VS + " " + event
}

func TestQueueOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		put, want   []string
		quorumFirst bool
	}{
		"as they came":                    {put: []string{"a/1 up", "a/2 down", "a up"}, want: []string{"a/1 up", "a/2 down", "a up"}},
		"a flap is its newest state":      {put: []string{"a/1 down", "a/1 up", "a/1 down"}, want: []string{"a/1 down"}},
		"down and up do not cancel":       {put: []string{"a/1 down", "a/1 up"}, want: []string{"a/1 up"}},
		"the newer goes to the end":       {put: []string{"a/1 down", "a down", "a/1 up"}, want: []string{"a down", "a/1 up"}},
		"servers of two services differ":  {put: []string{"a/1 down", "b/1 up"}, want: []string{"a/1 down", "b/1 up"}},
		"a quorum is not its servers":     {put: []string{"a down", "a/1 up", "a up"}, want: []string{"a/1 up", "a up"}},
		"services take turns":             {put: []string{"a/1 up", "a/2 up", "b/1 up", "b/2 up"}, want: []string{"a/1 up", "b/1 up", "a/2 up", "b/2 up"}},
		"at a stop the quorum goes first": {put: []string{"a/1 down", "a/2 down", "a down"}, want: []string{"a down", "a/1 down", "a/2 down"}, quorumFirst: true},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(10)
			for _, s := range tt.put {
				if !q.put(note(s)) {
					t.Fatalf("no room for %s", s)
				}
			}
			var got []string
			for n, ok := q.take(tt.quorumFirst); ok; n, ok = q.take(tt.quorumFirst) {
				got = append(got, text(n))
				q.done(n.VS)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("order (-want +got):\n%s", d)
			}
			if q.size != 0 || len(q.lines) != 0 || len(q.ready) != 0 {
				t.Errorf("left over: %+v", q)
			}
		})
	}
}

func TestQueueIsBounded(t *testing.T) {
	q := newQueue(2)
	for _, tt := range []struct {
		put  string
		want bool
	}{{"a/1 up", true}, {"a/2 up", true}, {"a/3 up", false}, {"b up", false}, {"a/1 down", true}} {
		if got := q.put(note(tt.put)); got != tt.want {
			t.Errorf("put %s: %t, want %t", tt.put, got, tt.want)
		}
	}
	if len(q.lines) != 1 {
		t.Errorf("%d lines; what found no room left something behind", len(q.lines))
	}
	if n := q.clear(); n != 2 || q.size != 0 {
		t.Errorf("cleared %d, %d are left", n, q.size)
	}
	if n, ok := q.take(false); ok {
		t.Errorf("took %v from an empty queue", n)
	}
}

// TestQueueProperties holds any series of events against what the package
// promises, with a model that keeps all events.
func TestQueueProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue(rapid.IntRange(1, 8).Draw(t, "max"))
		var (
			waiting []Notice // in order; the model
			running = map[string]bool{}
			drop    = func(n Notice) {
				waiting = slices.DeleteFunc(waiting, func(w Notice) bool { return w.VS == n.VS && w.RS == n.RS })
			}
		)
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				n := Notice{VS: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "vs"), RS: rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(t, "rs"), Kind: Kind(rapid.IntRange(0, 3).Draw(t, "kind"))}
				known := slices.ContainsFunc(waiting, func(w Notice) bool { return w.VS == n.VS && w.RS == n.RS })
				room := known || len(waiting) < q.max
				if q.put(n) != room {
					t.Fatalf("put %v: want %t", n, room)
				}
				if room {
					drop(n)
					waiting = append(waiting, n)
				}
			},
			"take": func(t *rapid.T) {
				n, ok := q.take(false)
				if !ok {
					for _, w := range waiting {
						if !running[w.VS] {
							t.Fatalf("nothing to take, and %v may run", w)
						}
					}
					return
				}
				if running[n.VS] {
					t.Fatalf("took %v while another of its service runs", n)
				}
				first := slices.IndexFunc(waiting, func(w Notice) bool { return w.VS == n.VS })
				if first < 0 || waiting[first] != n {
					t.Fatalf("took %v, waiting: %v", n, waiting)
				}
				drop(n)
				running[n.VS] = true
			},
			"done": func(t *rapid.T) {
				for _, vs := range []string{"a", "b", "c"} {
					if running[vs] {
						q.done(vs)
						delete(running, vs)
						return
					}
				}
			},
			"clear": func(t *rapid.T) {
				if n := q.clear(); n != len(waiting) {
					t.Fatalf("cleared %d, want %d", n, len(waiting))
				}
				waiting = nil
			},
			"": func(t *rapid.T) {
				if q.size != len(waiting) || len(q.ready) > len(q.lines) {
					t.Fatalf("size %d, want %d; %d ready of %d", q.size, len(waiting), len(q.ready), len(q.lines))
				}
			},
		})
	})
}

func BenchmarkPut(b *testing.B) {
	notes := make([]Notice, 5000)
	for i := range notes {
		notes[i] = Notice{VS: "a", RS: fmt.Sprint(i)}
	}
	q := newQueue(len(notes))
	for i := 0; b.Loop(); i++ {
		q.put(notes[i%len(notes)])
	}
}
