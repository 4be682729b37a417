package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
)

// planner answers as a daemon that plans so.
func planner(t *testing.T, plan *engine.Plan, asked func(*control.PlanRequest)) (socket string) {
	t.Helper()
	srv, socket, serve := listening(t)
	srv.OfferPlan(func(_ context.Context, req *control.PlanRequest) (*engine.Plan, error) {
		asked(req)
		if plan == nil {
			return nil, errors.New("no rest")
		}
		return plan, nil
	})
	serve()
	return socket
}

func TestPlanStatus(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.conf"), filepath.Join(dir, "bad.conf")
	text := "virtual_server 192.0.2.1 80 {\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n real_server 10.0.0.1 80 {\n }\n}\n"
	for file, text := range map[string]string{good: text, bad: text + "virtual_server {\n"} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	changes := &engine.Plan{Changes: true, Operations: []engine.PlanOperation{{Op: "remove", Service: "192.0.2.1:80/tcp"}}}
	falls := &engine.Plan{Changes: true, Pools: []engine.PlanPool{{VS: "[192.0.2.1]:tcp:80", Empty: true}}}
	refused := &engine.Plan{Refused: "no", Findings: []diag.Finding{{File: "k.conf", Line: 3, Col: 2, Width: 4, Severity: "error", Code: "E1", Message: "nonsense", Source: " nons 1"}}}
	for name, tt := range map[string]struct {
		plan           *engine.Plan
		args           []string
		status         int
		stdout, stderr string
		file           string
	}{
		"nothing":    {&engine.Plan{}, nil, 0, "nothing would change", "", ""},
		"changes":    {changes, nil, 1, "remove service 192.0.2.1:80/tcp", "", ""},
		"falls":      {falls, nil, 4, "DANGER", "", ""},
		"refused":    {refused, nil, 2, "REFUSED", "    3 |  nons 1\n      |  ^~~~", ""},
		"json":       {falls, []string{"--json"}, 4, `"virtual_server": "[192.0.2.1]:tcp:80"`, "", ""},
		"a file":     {changes, []string{good}, 1, "remove service", "", good},
		"a bad file": {changes, []string{bad}, 2, "", "bad.conf is not valid", ""},
		"no file":    {changes, []string{filepath.Join(dir, "none")}, 2, "", "none is not valid", ""},
		"no answer":  {nil, nil, 3, "", "no rest", ""},
		"two files":  {changes, []string{good, bad}, exitUsage, "", "unexpected argument", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file, sent := "", ""
			socket := planner(t, tt.plan, func(req *control.PlanRequest) {
				if req != nil {
					file, sent = req.File, req.Text
				}
			})
			status, stdout, stderr := typed(append([]string{"plan", "--socket", socket}, tt.args...)...)
			if status != tt.status || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("status %d, want %d\nstdout %s\nstderr %s", status, tt.status, stdout, stderr)
			}
			if file != tt.file || file != "" && !strings.Contains(sent, "real_server 10.0.0.1 80") {
				t.Errorf("sent %q of %q, want %q", sent, file, tt.file)
			}
			if name == "json" && !json.Valid([]byte(stdout)) {
				t.Error("this is no JSON")
			}
		})
	}
	if status, _, _ := typed("plan", "--socket", "/nonexistent/s.sock"); status != exitUnreachable {
		t.Errorf("without a daemon: %d", status)
	}
}

func TestReloadTells(t *testing.T) {
	done := engine.Reload{OK: true, Done: &engine.Reloaded{Operations: 7, Added: 1, Removed: 2}}
	if status, stdout, _ := typed("reload", "--socket", serve(t, nil, done)); status != 0 || stdout != "reloaded: 7 operations; virtual servers: 1 added, 0 changed, 2 removed\n" {
		t.Errorf("status %d, %s", status, stdout)
	}
	done.Done = &engine.Reloaded{}
	if _, stdout, _ := typed("reload", "--wait", "--socket", serve(t, proven(), done)); stdout != "reloaded: nothing changed\n" {
		t.Errorf("%s", stdout)
	}
	refused := engine.Reload{Error: "no", Findings: []diag.Finding{{File: "k.conf", Line: 3, Col: 1, Width: 1, Severity: "error", Message: "nonsense", Source: "x"}}}
	if status, _, stderr := typed("reload", "--socket", serve(t, nil, refused)); status != 1 || !strings.Contains(stderr, "k.conf:3:1: error: nonsense\n    3 | x\n      | ^") {
		t.Errorf("status %d, %s", status, stderr)
	}
}

// proven has a server whose check has its verdict, and one that is not checked.
func proven() *engine.Snapshot {
	s := snapshot(true)
	s.VirtualServers[0].RealServers[0].Checkers = []engine.Checker{{Verdict: "up"}}
	s.VirtualServers = append(s.VirtualServers, engine.VirtualServer{Suspended: true, RealServers: []engine.RealServer{{Checkers: []engine.Checker{{Verdict: "unknown"}}}}})
	return s
}

func TestSettler(t *testing.T) {
	unknown, held, over := proven(), proven(), proven()
	unknown.VirtualServers[0].RealServers[0].Checkers[0].Verdict = "unknown"
	held.VirtualServers[0].Hold = &engine.Hold{Servers: []string{"10.0.0.9:80"}}
	over.VirtualServers[0].Hold = &engine.Hold{Servers: []string{"10.0.0.9:80"}, Over: true}
	// beside is a daemon with something around the table.
	beside := func(pending bool, failures ...string) *engine.Snapshot {
		s := proven()
		s.VirtualServers[0].VIP = &engine.VIP{Device: "vip0", Follow: "quorum", Why: "the quorum is lost"} // on purpose
		s.Edge = &engine.Edge{Pending: pending}
		for _, f := range failures {
			s.Edge.Failures = append(s.Edge.Failures, engine.EdgeFailure{Feature: f, Reason: strings.TrimPrefix(f+": no permission", "check_via: ")})
		}
		return s
	}
	both := beside(false, "vip_device")
	both.VirtualServers[0].RealServers[0].Checkers[0].Verdict = "unknown"
	unwritten := proven()
	unwritten.Kernel = engine.Kernel{Error: "not permitted"}
	observing := proven()
	observing.Kernel, observing.Observe = engine.Kernel{Error: "not permitted"}, true
	gone := errors.New("is sluiced running?")
	for name, tt := range map[string]struct {
		answers []any // the last one is repeated
		limit   time.Duration
		status  int
		took    time.Duration
		says    string
	}{
		"proven":                         {answers: []any{proven()}, says: "every check has a verdict"},
		"a verdict comes":                {answers: []any{unknown, unknown, proven()}, took: 2 * time.Second, says: "checks without a verdict: 1, departing real servers held: 0, the first: 10.0.0.1:80 of [192.0.2.1]:tcp:80"},
		"a hold ends":                    {answers: []any{held, proven()}, took: time.Second, says: "departing real servers held: 1, the first: 10.0.0.9:80"},
		"a hold is over":                 {answers: []any{held, over}, took: time.Second, says: "nobody is held"},
		"the time is over":               {answers: []any{unknown}, limit: 2500 * time.Millisecond, status: exitUnsettled, took: 2500 * time.Millisecond, says: "not settled within 2.5s: checks without a verdict: 1"},
		"the daemon ends":                {answers: []any{unknown, gone}, status: exitUnreachable, took: silence, says: "is sluiced running?"},
		"withheld on purpose":            {answers: []any{beside(false)}, says: "all is in place"},
		"what is around comes":           {answers: []any{beside(true), beside(true), beside(false)}, took: 2 * time.Second, says: "addresses, guard and marks are not in place yet"},
		"it never comes":                 {answers: []any{beside(true)}, limit: time.Minute, status: exitUnsettled, took: time.Minute, says: "not settled within 1m0s: addresses, guard and marks"},
		"no address":                     {answers: []any{beside(false, "vip_device")}, status: exitObstructed, took: obstacleFor, says: "applied, and not in place: vip_device: no permission; it is tried again"},
		"no guard and no marks":          {answers: []any{beside(false, "nftables_ipvs", "vip_guard")}, status: exitObstructed, took: obstacleFor, says: "nftables_ipvs: no permission; vip_guard: no permission;"},
		"no way":                         {answers: []any{beside(false, "check_via")}, limit: time.Second, status: exitObstructed, took: time.Second, says: "check_via: no permission"},
		"no address and no verdict":      {answers: []any{both}, status: exitObstructed, took: obstacleFor, says: "vip_device"},
		"an old failure, tried again":    {answers: []any{beside(true, "vip_device"), beside(true, "vip_device"), beside(true, "vip_device"), beside(true, "vip_device"), beside(true, "vip_device"), beside(true, "vip_device"), beside(true, "vip_device"), beside(false)}, took: 7 * time.Second, says: "all is in place"},
		"the second attempt succeeds":    {answers: []any{beside(false, "vip_device"), beside(false, "vip_device"), beside(false)}, took: 2 * time.Second, says: "vip_device: no permission, after 0s"},
		"fails, works and fails":         {answers: []any{beside(false, "vip_device"), beside(false, "vip_device"), beside(false, "vip_device"), unknown, beside(false, "vip_device")}, status: exitObstructed, took: 3*time.Second + obstacleFor, says: "not in place: vip_device"},
		"the table is not written":       {answers: []any{unwritten, proven()}, took: time.Second, says: "the kernel's table is not written: not permitted"},
		"the table is another program's": {answers: []any{observing}, says: "all is in place"},
		"the daemon is new":              {answers: []any{unknown, gone, proven()}, took: 2 * time.Second, says: "every check"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				asked := 0
				w := settler{limit: tt.limit, out: &out, status: func(context.Context, ...control.Part) (*engine.Snapshot, error) {
					a := tt.answers[min(asked, len(tt.answers)-1)]
					asked++
					if err, ok := a.(error); ok {
						return nil, err
					}
					return a.(*engine.Snapshot), nil
				}}
				begun := time.Now()
				status := w.wait(t.Context())
				if took := time.Since(begun); status != tt.status || took != tt.took || !strings.Contains(out.String(), tt.says) {
					t.Errorf("status %d after %v, want %d after %v and %q:\n%s", status, took, tt.status, tt.took, tt.says, out.String())
				}
			})
		})
	}
}
