package checker

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestRunsWithoutAWordHaveAFault: what the scheduler says in place of a probe.
func TestRunsWithoutAWordHaveAFault(t *testing.T) {
	for name, tt := range map[string]struct {
		run     probeFunc
		timeout bool
	}{
		"panics": {func(context.Context) Outcome { panic("oops") }, false},
		"hangs":  {func(context.Context) Outcome { <-time.After(time.Minute); return Outcome{} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s, got, over := NewScheduler(Options{}), make(chan Outcome, 1), make(chan error)
				s.Add(Task{ID: 1, Timeout: time.Second, Probe: tt.run, Judge: func(o Outcome) time.Duration {
					got <- o
					return time.Hour
				}})
				go func() { over <- s.Run(ctx) }()
				if o := <-got; o.Result != Unable || o.Fault == nil || o.Fault.Stage != StagePrepare || o.Fault.Timeout != tt.timeout {
					t.Errorf("%+v, fault %+v", o, o.Fault)
				}
				synctest.Wait()
				cancel()
				<-over
				<-time.After(time.Minute) // of the bubble: the one that hangs returns
			})
		})
	}
}

// TestReasonAndFaultAgree: whatever a problem is made of stands in both.
func TestReasonAndFaultAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-z]{1,8}`)
		p := Problem{
			Site: Site{Stage: Stage(rapid.IntRange(0, int(Stages)-1).Draw(t, "stage")), Step: word.Draw(t, "step"), Peer: word.Draw(t, "peer"),
				Target: rapid.SampledFrom([]string{"", "http://x/"}).Draw(t, "target")},
			Result: Failed, Got: word.Draw(t, "got"), Want: rapid.SampledFrom([]string{"", "220"}).Draw(t, "want"),
			Errno: syscall.Errno(rapid.IntRange(0, 100).Draw(t, "errno")), Timeout: rapid.Bool().Draw(t, "timeout"), Took: time.Second,
		}
		o := p.Outcome()
		f := o.Fault
		if f.Stage != p.Stage || f.Got != p.Got || f.Want != p.Want || f.Errno != p.Errno || f.Timeout != p.Timeout || f.Target == "" {
			t.Fatalf("%+v of %+v", f, p)
		}
		for _, part := range []string{p.Step + " " + p.Peer + ": ", f.Got, f.Want, "after 1s"} {
			if !strings.Contains(o.Reason, part) {
				t.Fatalf("%q lacks %q", o.Reason, part)
			}
		}
	})
}

func TestStagesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for s := range Stages {
		if n := s.String(); n == "" || seen[n] {
			t.Errorf("stage %d is called %q", s, n)
		}
		seen[s.String()] = true
	}
}

func TestExcerptHidesCredentials(t *testing.T) {
	for name, tt := range map[string]struct{ said, want string }{
		"request":        {"GET / HTTP/1.0\r\nAuthorization: Basic c2VjcmV0\r\nHost: x\r\n\r\n", `"GET / HTTP/1.0\r\nAuthorization: (hidden)\r\nHost: x\r\n\r\n"`},
		"case":           {"cOOKIE:a=secret\n", `"cOOKIE: (hidden)\n"`},
		"continued":      {"Set-Cookie: a=\r\n secret\r\n\tsecret\r\nX: y\r\n", `"Set-Cookie: (hidden)\r\nX: y\r\n"`},
		"cut":            {strings.Repeat("x", excerptMost-10) + "\nCookie: secret", `"` + strings.Repeat("x", excerptMost-10) + `\nCookie: (hidden)"...`},
		"binary":         {"\x00\xff\x1b[1m", `"\x00\xff\x1b[1m"`},
		"name elsewhere": {"X-Cookie: plain\r\n", `"X-Cookie: plain\r\n"`},
	} {
		if got := Excerpt([]byte(tt.said)); got != tt.want {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
	}
}

func TestHeardTellsTheBeginningAndTheSize(t *testing.T) {
	var told []string
	tr := TraceOf(WithTrace(t.Context(), func(e TraceEntry) { told = append(told, e.Text) }))
	h := tr.Hear()
	for range 100 {
		h.Add([]byte("0123456789"))
	}
	h.End()
	want := []string{"the answer begins", `received 1000 bytes: "` + strings.Repeat("0123456789", 26)[:excerptMost] + `"...`}
	if len(told) != 2 || told[0] != want[0] || told[1] != want[1] {
		t.Errorf("%q\nwant %q", told, want)
	}
	var nobody *Trace
	nobody.Hear().Add([]byte("x"))
	nobody.Hear().End()
}
