package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

func TestExplainRoundTrip(t *testing.T) {
	path := sockPath(t)
	s := mustListen(t, path)
	want := &engine.Explanation{
		At: sample.Started, Summary: "It is out.", Configured: true,
		RealServer: engine.RealServer{Address: "10.0.0.1:80", State: engine.StateDown},
		Services:   []engine.Service{{Name: "192.0.2.1:80/tcp", Destinations: []engine.Destination{{Address: "10.0.0.1:80", Wanted: -1, Kernel: -1}}}},
		Checks: []engine.Check{{Checker: engine.Checker{Kind: "TCP_CHECK", Verdict: "down", Failures: 3}, Missing: 2,
			History: []engine.Stretch{{Last: sample.Started, Result: "failed", Count: 3, Fault: &engine.Fault{Stage: "connect", Errno: "ECONNREFUSED"}}}}},
		Weight: []engine.WeightPart{{What: "configured", Text: "configured 1", Adds: 1}},
	}
	s.OfferExplain(func(_ context.Context, vs, rs string) (*engine.Explanation, error) {
		if vs != "web shop & co" || rs != "10.0.0.1" {
			return nil, &engine.CommandError{Code: engine.CodeUnknown, Message: fmt.Sprintf("no %q, %q", vs, rs), Candidates: []string{"a"}}
		}
		return want, nil
	})
	serve(t, s)
	got, err := NewClient(path).Explain(t.Context(), "web shop & co", "10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	sent, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := json.Marshal(got); err != nil || string(back) != string(sent) || !got.At.Equal(want.At) {
		t.Errorf("sent %s, got %s", sent, back)
	}
	var ce *engine.CommandError
	if _, err := NewClient(path).Explain(t.Context(), "web", "x"); !errors.As(err, &ce) || ce.Code != engine.CodeUnknown || len(ce.Candidates) != 1 {
		t.Errorf("%v", err)
	}
}

// TestTranscriptComesAsItIsMade: each line is there before the next one is made, and
// the daemon learns who asks, and when nobody does any more.
func TestTranscriptComesAsItIsMade(t *testing.T) {
	path := sockPath(t)
	s := mustListen(t, path)
	next, left := make(chan bool), make(chan error, 1)
	s.OfferTest(func(ctx context.Context, client, who, vs, rs string, tell func(engine.TrialLine) error) error {
		if want := fmt.Sprintf("%d/%d", os.Getuid(), os.Getpid()); client != want || who == "" || who == "unknown" {
			t.Errorf("client %q, who %q", client, who)
		}
		if vs == "none" {
			return &engine.CommandError{Code: engine.CodeUnknown, Message: "there is no " + vs}
		}
		for i := range 3 {
			if err := tell(engine.TrialLine{Line: "step", Check: i + 1, Text: "a\nb"}); err != nil {
				return err
			}
			select {
			case more := <-next:
				if !more {
					return errors.New("something broke")
				}
			case <-ctx.Done():
				left <- context.Cause(ctx)
				return ctx.Err()
			}
		}
		return tell(engine.TrialLine{Line: "end", Result: "ok"})
	})
	serve(t, s)
	c := NewClient(path)
	var got []engine.TrialLine
	err := c.Test(t.Context(), "web", "10.0.0.1", func(l engine.TrialLine) error {
		got = append(got, l)
		if l.Line != "end" {
			next <- true
		}
		return nil
	})
	if err != nil || len(got) != 4 || got[1].Check != 2 || got[1].Text != "a\nb" || got[3].Result != "ok" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := c.Test(t.Context(), "web", "10.0.0.1", func(l engine.TrialLine) error {
		next <- l.Check < 2
		return nil
	}); err == nil || !strings.Contains(err.Error(), "something broke") {
		t.Errorf("%v", err)
	}
	var ce *engine.CommandError
	if err := c.Test(t.Context(), "none", "x", nil); !errors.As(err, &ce) || ce.Code != engine.CodeUnknown {
		t.Errorf("%v", err)
	}
	gone := errors.New("reader gone")
	if err := c.Test(t.Context(), "web", "10.0.0.1", func(engine.TrialLine) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	select {
	case <-left:
	case <-time.After(20 * time.Second):
		t.Error("the daemon does not learn that nobody reads")
	}
}

// TestBrokenTranscripts: what is no transcript is an error, and never a good end.
func TestBrokenTranscripts(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":  "",
		"cut":      `{"line":"step"}` + "\n",
		"half":     `{"line":"st`,
		"nonsense": "hello\n",
		"long":     `{"line":"` + strings.Repeat("x", 2*maxTrialLine) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := sockPath(t)
			s := mustListen(t, path)
			s.Offer(Route{Pattern: "POST /v1/test", Serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }})
			serve(t, s)
			if err := NewClient(path).Test(t.Context(), "a", "b", func(engine.TrialLine) error { return nil }); err == nil {
				t.Error("no error")
			}
		})
	}
}

// TestWhoMayExplainAndTest: to look is for who may read, to have servers asked and
// scripts run is not.
func TestWhoMayExplainAndTest(t *testing.T) {
	var s Server
	s.OfferExplain(nil)
	s.OfferTest(nil)
	got := map[string]Right{}
	for _, r := range s.routes {
		got[r.Pattern] = r.Right
	}
	if len(got) != 2 || got["GET /v1/explain"] != Read || got["POST /v1/test"] != Write {
		t.Errorf("%v", got)
	}
}
