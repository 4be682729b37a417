package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/engine"
)

// explains serves one real server, blue, which is in service, and one that is out.
func explains(t *testing.T) (socket string) {
	t.Helper()
	srv, socket, serve := listening(t)
	find := func(vs, rs string) error {
		if vs != "web" || rs != "blue" && rs != "green" {
			return &engine.CommandError{Code: engine.CodeUnknown, Message: fmt.Sprintf("there is no %s in %s", rs, vs)}
		}
		return nil
	}
	srv.OfferExplain(func(_ context.Context, vs, rs string) (*engine.Explanation, error) {
		if err := find(vs, rs); err != nil {
			return nil, err
		}
		return &engine.Explanation{Summary: "It is " + rs + ".", InService: rs == "blue", RealServer: engine.RealServer{Address: "10.0.0.1:80"}}, nil
	})
	srv.OfferTest(func(_ context.Context, _, _, vs, rs string, tell func(engine.TrialLine) error) error {
		if vs == "busy" {
			return &engine.CommandError{Code: engine.CodeRefused, Message: "4 tests are under way"}
		}
		if err := find(vs, rs); err != nil {
			return err
		}
		result := map[string]string{"blue": "ok", "green": "failed"}[rs]
		if err := tell(engine.TrialLine{Line: "step", Stage: "connect", Text: "connected"}); err != nil {
			return err
		}
		return tell(engine.TrialLine{Line: "end", Result: result})
	})
	serve()
	return socket
}

func TestExplainAndTest(t *testing.T) {
	socket := explains(t)
	for name, tt := range map[string]struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		"explain, in service":  {[]string{"explain", "web", "blue"}, 0, "It is blue.", ""},
		"explain, out":         {[]string{"explain", "web", "green"}, 1, "It is green.", ""},
		"explain, unknown":     {[]string{"explain", "web", "red"}, 2, "", "there is no red"},
		"explain, one operand": {[]string{"explain", "web"}, exitUsage, "", "which real server?"},
		"explain, too many":    {[]string{"explain", "web", "blue", "x"}, exitUsage, "", "unexpected argument"},
		"test, passed":         {[]string{"test", "web", "blue"}, 0, "all passed now", ""},
		"test, failed":         {[]string{"test", "web", "green"}, 1, "connected", ""},
		"test, unknown":        {[]string{"test", "web", "red"}, 2, "", "there is no red"},
		"test, busy":           {[]string{"test", "busy", "red"}, 4, "", "4 tests are under way"},
		"test, no operand":     {[]string{"test"}, exitUsage, "", "which real server?"},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := typed(append(tt.args, "--socket", socket)...)
			if status != tt.status || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("status %d, want %d\nstdout %s\nstderr %s", status, tt.status, stdout, stderr)
			}
		})
	}
	for _, verb := range []string{"explain", "test"} {
		if status, _, stderr := typed(verb, "a", "b", "--socket", "/nonexistent/s.sock"); status != exitUnreachable || !strings.Contains(stderr, "is sluiced running?") {
			t.Errorf("%s: status %d, %s", verb, status, stderr)
		}
		_, stdout, _ := typed(verb, "web", "green", "--json", "--socket", socket)
		dec, n := json.NewDecoder(strings.NewReader(stdout)), 0
		for ; dec.More(); n++ {
			var v map[string]any
			if err := dec.Decode(&v); err != nil {
				t.Fatalf("%v in %s", err, stdout)
			}
		}
		if want := map[string]int{"explain": 1, "test": 2}[verb]; n != want {
			t.Errorf("%s: %d values: %s", verb, n, stdout)
		}
	}
}
