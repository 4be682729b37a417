package framework

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// run feeds results ('+' good, '-' bad) and returns, for each, the verdict after
// it as one letter: u, d or ?.
func run(m *Machine, r Rules, results string) string {
	var got []byte
	for _, c := range results {
		m.Step(r, c == '+')
		got = append(got, "?ud"[m.Verdict()])
	}
	return string(got)
}

func TestMachineVerdicts(t *testing.T) {
	for _, tt := range []struct {
		name    string
		strict  bool
		rules   Rules
		results string
		want    string
	}{
		{"start: one failure is enough", true, Rules{Retry: 3}, "-", "d"},
		{"start: one success is enough", true, Rules{Retry: 3, Rise: 5}, "+", "u"},
		{"retry 3 takes four failures once it has been up", true, Rules{Retry: 3}, "+----", "uuuud"},
		{"retry 0 takes one failure", true, Rules{}, "+-+", "udu"},
		{"a success in between resets the count", false, Rules{Retry: 2}, "+--+---", "uuuuuud"},
		{"a checker that a reload adds to a live server has its retries", false, Rules{Retry: 2}, "---", "??d"},
		{"rise 3 needs three in a row", true, Rules{Rise: 3}, "-++-+++", "ddddddu"},
		{"rise counts only the way back from down", false, Rules{Rise: 3}, "+", "u"},
		{"rise 0 is 1", true, Rules{}, "-+", "du"},
		{"down stays down", true, Rules{Retry: 1}, "----", "dddd"},
		{"a huge retry does not wrap", false, Rules{Retry: ^uint32(0)}, "---", "???"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMachine(tt.strict)
			if got := run(&m, tt.rules, tt.results); got != tt.want {
				t.Errorf("results %s gave %s, want %s", tt.results, got, tt.want)
			}
		})
	}
}

// TestC17AttemptsBeforeRemoval: retry 3 means four attempts, for every checker,
// since all of them share this machine.
func TestC17AttemptsBeforeRemoval(t *testing.T) {
	m, r := NewMachine(true), Rules{Retry: 3}
	m.Step(r, true)
	for n := uint32(1); n <= 4; n++ {
		if got := m.Limit(r); got != 4 {
			t.Fatalf("limit %d, want 4", got)
		}
		changed, _ := m.Step(r, false)
		if changed != (n == 4) {
			t.Fatalf("attempt %d: changed %t", n, changed)
		}
		if m.Failures() != n {
			t.Fatalf("failures %d after attempt %d", m.Failures(), n)
		}
	}
}

func TestMachineDelays(t *testing.T) {
	const loop, again = 10 * time.Second, 3 * time.Second
	for _, tt := range []struct {
		name    string
		rules   Rules
		results string
		want    []time.Duration
	}{
		{"retries come sooner", Rules{Retry: 2}, "+---+", []time.Duration{loop, again, again, loop, loop}},
		{"no retry, no hurry", Rules{}, "+-", []time.Duration{loop, loop}},
		{"down and failing", Rules{}, "---", []time.Duration{loop, loop, loop}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.rules.DelayLoop, tt.rules.DelayBeforeRetry = loop, again
			m := NewMachine(true)
			for i, c := range tt.results {
				if _, next := m.Step(tt.rules, c == '+'); next != tt.want[i] {
					t.Errorf("after result %d of %s: next in %s, want %s", i, tt.results, next, tt.want[i])
				}
			}
		})
	}
	t.Run("an HTTP failure that is final waits for the longer of the two", func(t *testing.T) {
		m := NewMachine(true)
		if _, next := m.Step(Rules{DelayLoop: time.Second, DelayBeforeRetry: 5 * time.Second, SlowDown: true}, false); next != 5*time.Second {
			t.Errorf("next in %s, want 5s", next)
		}
	})
}

// TestC03RecoveryIsSymmetric: whatever happened before, Rise good results end up,
// and Retry+1 bad ones end down.
func TestC03RecoveryIsSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Rules{Retry: rapid.Uint32Range(0, 5).Draw(t, "retry"), Rise: rapid.Uint32Range(0, 5).Draw(t, "rise")}
		m := NewMachine(rapid.Bool().Draw(t, "strict"))
		for _, ok := range rapid.SliceOf(rapid.Bool()).Draw(t, "results") {
			before := m.Verdict()
			changed, _ := m.Step(r, ok)
			if changed != (before != m.Verdict()) {
				t.Fatalf("changed %t, verdict %s -> %s", changed, before, m.Verdict())
			}
			if changed && (m.Verdict() == Up) != ok {
				t.Fatalf("a result %t made it %s", ok, m.Verdict())
			}
		}
		n := max(r.Rise, 1)
		for range n {
			m.Step(r, true)
		}
		if m.Verdict() != Up {
			t.Fatalf("%d good results in a row leave it %s", n, m.Verdict())
		}
		for range r.Retry + 1 {
			m.Step(r, false)
		}
		if m.Verdict() != Down {
			t.Fatalf("%d bad results in a row leave it %s", r.Retry+1, m.Verdict())
		}
	})
}
