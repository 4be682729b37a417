package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

func drained(active uint64) []engine.Override {
	return []engine.Override{{VS: "[192.0.2.1]:tcp:80", Server: "10.0.0.1:80", Kind: engine.VerbDrain, Who: "root", Active: active}}
}

// operated answers commands as a daemon would and keeps the last.
func operated(t *testing.T, out []engine.Override, failure error) (socket string, got *engine.Command) {
	t.Helper()
	srv, socket, serve := listening(t)
	got = &engine.Command{}
	srv.Operate = func(_ context.Context, c engine.Command) ([]engine.Override, error) {
		*got = c
		return out, failure
	}
	srv.Overrides = func(context.Context) ([]engine.Override, error) { return out, nil }
	serve()
	return socket, got
}

func TestOperationsStatus(t *testing.T) {
	idle, busy := drained(0), drained(3)
	refused := &engine.CommandError{Code: engine.CodeRefused, Message: "weight 0 of 1 alive would be left"}
	for name, tt := range map[string]struct {
		args    []string
		out     []engine.Override
		failure error
		status  int
		says    string
	}{
		"drain":           {[]string{"drain", "v", "r"}, busy, nil, 0, "10.0.0.1:80 of [192.0.2.1]:tcp:80: drains, connections left: 3 active"},
		"refused":         {[]string{"drain", "v", "r"}, nil, refused, 1, "weight 0 of 1"},
		"force is told":   {[]string{"drain", "v", "r"}, nil, refused, 1, "--force"},
		"unknown":         {[]string{"undrain", "v", "r"}, nil, &engine.CommandError{Code: engine.CodeUnknown, Message: "there is no"}, 2, "there is no"},
		"ambiguous":       {[]string{"drain", "v", "r"}, nil, &engine.CommandError{Code: engine.CodeAmbiguous, Message: "any of 2"}, 2, "any of 2"},
		"invalid":         {[]string{"drain", "v", "r"}, nil, &engine.CommandError{Code: engine.CodeInvalid, Message: "bad"}, exitUsage, "bad"},
		"broken":          {[]string{"drain", "v", "r"}, nil, errors.New("loop"), 3, "loop"},
		"waited":          {[]string{"drain", "v", "r", "--wait"}, idle, nil, 0, "no connection is left"},
		"time over":       {[]string{"drain", "v", "r", "--wait", "--timeout", "5ms"}, busy, nil, 4, "3 active; the drain goes on"},
		"timeout alone":   {[]string{"drain", "v", "r", "--timeout", "5s"}, busy, nil, exitUsage, "--wait"},
		"one name":        {[]string{"drain", "v"}, busy, nil, exitUsage, "which real server?"},
		"names and both":  {[]string{"drain", "v", "r", "--server", "10.0.0.1"}, busy, nil, exitUsage, "which real server?"},
		"too many":        {[]string{"drain", "v", "r", "x"}, busy, nil, exitUsage, "unexpected"},
		"past":            {[]string{"drain", "v", "r", "--until", "2001-01-01 10:00"}, busy, nil, exitUsage, "over already"},
		"undrain":         {[]string{"undrain", "--server", "10.0.0.1"}, idle, nil, 0, "drained no longer"},
		"weight":          {[]string{"weight", "v", "r", "7"}, idle, nil, 0, "weight 7"},
		"default":         {[]string{"weight", "--server", "10.0.0.1", "default"}, idle, nil, 0, "configured weight again"},
		"weight of words": {[]string{"weight", "v", "r", "much"}, idle, nil, exitUsage, `neither a number nor "default"`},
		"weight missing":  {[]string{"weight", "v", "r"}, idle, nil, exitUsage, "N|default"},
		"drains":          {[]string{"drains"}, busy, nil, 0, "10.0.0.1:80"},
		"help":            {[]string{"drain", "--help"}, nil, nil, 0, "Exit statuses"},
	} {
		t.Run(name, func(t *testing.T) {
			socket, _ := operated(t, tt.out, tt.failure)
			status, stdout, stderr := typed(append(tt.args, "--socket", socket)...)
			if status != tt.status || !strings.Contains(stdout+stderr, tt.says) {
				t.Errorf("status %d, want %d and %q\nstdout %s\nstderr %s", status, tt.status, tt.says, stdout, stderr)
			}
		})
	}
	for _, args := range [][]string{{"drain", "v", "r"}, {"drains"}} {
		if status, _, _ := typed(append(args, "--socket", "/nonexistent/s.sock")...); status != exitUnreachable {
			t.Errorf("%v without a daemon: %d", args, status)
		}
	}
}

func TestOperationsCommand(t *testing.T) {
	socket, got := operated(t, drained(0), nil)
	typed("drain", "v", "r", "--reason", "new kernel", "--until", "2h", "--force", "--socket", socket)
	if got.Verb != engine.VerbDrain || got.VS != "v" || got.RS != "r" || got.Reason != "new kernel" || !got.Force || time.Until(got.Until) < time.Hour {
		t.Errorf("%+v", got)
	}
	typed("weight", "--server", "10.0.0.1", "7", "--socket", socket)
	if got.Verb != engine.VerbWeight || got.Server != "10.0.0.1" || got.VS != "" || got.Weight == nil || *got.Weight != 7 || !got.Until.IsZero() {
		t.Errorf("%+v", got)
	}
	typed("weight", "v", "r", "default", "--socket", socket)
	if got.Weight != nil || got.RS != "r" {
		t.Errorf("%+v", got)
	}
	_, stdout, _ := typed("drain", "v", "r", "--wait", "--json", "--socket", socket)
	var out []engine.Override
	if err := json.Unmarshal([]byte(stdout), &out); err != nil || len(out) != 1 {
		t.Errorf("%v in %s", err, stdout)
	}
}

func TestMoment(t *testing.T) {
	zone := time.FixedZone("here", 2*3600)
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, zone)
	for text, want := range map[string]string{
		"90s": "2026-11-30T12:01:30+02:00", "2h": "2026-11-30T14:00:00+02:00", "18:30": "2026-11-30T18:30:00+02:00",
		"06:15:30": "2026-12-01T06:15:30+02:00", "12:00": "2026-12-01T12:00:00+02:00", "2026-12-24 08:00": "2026-12-24T08:00:00+02:00",
		"2026-12-24T08:00:00Z": "2026-12-24T08:00:00Z", "2026-12-24 08:00:01": "2026-12-24T08:00:01+02:00",
		"-1h": "", "0s": "", "tomorrow": "", "25:00": "", "2026-11-30 11:59": "", "90": "",
	} {
		at, err := moment(text, now)
		if got := at.Format(time.RFC3339); want == "" && err == nil || want != "" && (err != nil || got != want) {
			t.Errorf("%s: %s, %v, want %q", text, got, err, want)
		}
	}
}

// waiting runs a wait over what the daemon answers at each look.
func waiting(w *waiter, answers ...any) (status int, took time.Duration) {
	begun, i := time.Now(), 0
	w.drains = append(w.drains, drained(3)...)
	w.list = func(context.Context) ([]engine.Override, error) {
		a := answers[min(i, len(answers)-1)]
		i++
		if err, bad := a.(error); bad {
			return nil, err
		}
		return a.([]engine.Override), nil
	}
	return w.wait(context.Background()), time.Since(begun)
}

func TestWait(t *testing.T) {
	gone := errors.New("sluiced is not running")
	live := drained(0)
	live[0].Kernel = 1 // the kernel has refused the weight so far
	others := []engine.Override{{VS: "[192.0.2.1]:tcp:80", Server: "10.0.0.1:80", Kind: engine.VerbWeight}}
	for name, tt := range map[string]struct {
		answers  []any
		terminal bool
		limit    time.Duration
		status   int
		took     time.Duration
		lines    int
		says     string
	}{
		"until the last is gone": {answers: []any{drained(3), drained(1), drained(1), drained(0)}, took: 3 * time.Second, lines: 2, says: "no connection is left; it took 3s"},
		"a line each 5 s": {answers: []any{drained(3), drained(3), drained(3), drained(3), drained(3), drained(3), drained(3), drained(3), drained(3), drained(3), drained(3), drained(0)},
			took: 11 * time.Second, lines: 4, says: "3 active after 5s"},
		"on a terminal each second": {answers: []any{drained(3), drained(2), drained(0)}, terminal: true, took: 2 * time.Second, lines: 1, says: "\r\x1b[K10.0.0.1:80 of [192.0.2.1]:tcp:80: connections left: 2 active after 1s"},
		"the time is over":          {answers: []any{drained(3)}, limit: 2500 * time.Millisecond, status: exitTimeout, took: 2500 * time.Millisecond, lines: 2, says: "not drained within 2.5s"},
		"somebody undrains":         {answers: []any{drained(3), others}, status: exitEnded, took: time.Second, lines: 2, says: "ended by somebody else"},
		"weight not 0 yet":          {answers: []any{live, drained(0)}, took: time.Second, lines: 2, says: "no connection is left"},
		"a restart of the daemon":   {answers: []any{drained(3), gone, gone, gone, drained(0)}, took: 4 * time.Second, lines: 2, says: "no connection is left"},
		"the daemon is gone":        {answers: []any{drained(3), gone}, status: exitUnreachable, took: 30 * time.Second, lines: 2, says: "not running"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				w := &waiter{limit: tt.limit, terminal: tt.terminal, out: &out, errors: &out}
				status, took := waiting(w, tt.answers...)
				if status != tt.status || took != tt.took || strings.Count(out.String(), "\n") != tt.lines || !strings.Contains(out.String(), tt.says) {
					t.Errorf("status %d after %v, want %d after %v, %d lines and %q:\n%s", status, took, tt.status, tt.took, tt.lines, tt.says, out.String())
				}
			})
		})
	}
}
