package daemon

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
)

func (p *process) plan(req *control.PlanRequest) *engine.Plan {
	p.Helper()
	out, err := control.NewClient(p.socket).Plan(p.Context(), req)
	if err != nil {
		p.Fatal(err)
	}
	return out
}

// TestPlanThenReload: the daemon's own file and a client's give one plan, the reload
// does as many operations, and then nothing is left to do.
func TestPlanThenReload(t *testing.T) {
	one, _ := backend(t)
	two, _ := backend(t)
	three := int(closedPort(t).Port()) // a good check might come in the midst of the reload
	p := launch(t, confText(one, two), nil)
	p.out.await(t, 0, "Ready")
	if plan := p.plan(nil); plan.Changes || !plan.Observe || plan.Refused != "" {
		t.Errorf("nothing changed, and the plan is %+v", plan)
	}
	p.write(strings.Replace(confText(one, three), "lvs_sched rr", "lvs_sched wlc", 1))
	req, err := ReadPlan(io.Discard, p.file, "", false)
	if err != nil {
		t.Fatal(err)
	}
	own, sent := p.plan(nil), p.plan(req)
	if own.ConfigFile != p.file || len(own.Changed) != 1 || !own.Changes || len(own.Operations) == 0 {
		t.Errorf("plan %+v", own)
	}
	own.At = sent.At
	if a, b := describe(t, own), describe(t, sent); a != b {
		t.Errorf("by its own file\n%s\nby a client's\n%s", a, b)
	}
	r, err := control.NewClient(p.socket).Reload(t.Context())
	if err != nil || !r.OK || r.Done == nil || int(r.Done.Operations) != len(own.Operations) || r.Done.Changed != 1 {
		t.Errorf("reload %+v, done %+v, %v; planned %d operations", r, r.Done, err, len(own.Operations))
	}
	if plan := p.plan(nil); plan.Changes {
		t.Errorf("after the reload the plan is %s", describe(t, plan))
	}
	p.stop()
}

// TestPlanRefused: a plan says what a reload would be refused for, with the findings,
// and by a client's file too, whose text has none any more.
func TestPlanRefused(t *testing.T) {
	one, _ := backend(t)
	p := launch(t, confText(one), nil)
	p.out.await(t, 0, "Ready")
	p.write(strings.Replace(confText(one), "lvs_sched rr", "lvs_schde rr\n smtp_password s3cret", 1))
	req, err := ReadPlan(io.Discard, p.file, "", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, plan := range []*engine.Plan{p.plan(nil), p.plan(req)} {
		if plan.Refused == "" || len(plan.Operations) > 0 || len(plan.Findings) < 2 {
			t.Errorf("plan %+v", plan)
		}
		if !strings.Contains(describe(t, plan), "lvs_schde rr") {
			t.Error("the line in question is not shown")
		}
	}
	r, err := control.NewClient(p.socket).Reload(t.Context())
	if err != nil || r.OK || len(r.Findings) < 2 || r.Findings[0].Line == 0 {
		t.Errorf("reload %+v, %v", r, err)
	}
	for _, f := range r.Findings {
		if strings.Contains(f.Source, "s3cret") {
			t.Errorf("a secret is served: %+v", f)
		}
	}
	p.stop()
}

// TestPlanOpensNothing: what a client sends names no file that the daemon opens.
func TestPlanOpensNothing(t *testing.T) {
	one, _ := backend(t)
	p := launch(t, confText(one), nil)
	p.out.await(t, 0, "Ready")
	// Whoever opens a FIFO to read blocks, or is seen by who opens it to write.
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := control.NewClient(p.socket).Plan(t.Context(), &control.PlanRequest{File: "x", Text: "include " + fifo + "\n" + confText(one)})
	if refusal, ok := errors.AsType[*engine.CommandError](err); !ok || refusal.Code != engine.CodeInvalid {
		t.Errorf("an include was answered with %v", err)
	}
	value := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(value, []byte("7"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "track_file f {\n file " + value + "\n weight 1\n}\n" + strings.Replace(confText(one), " real_server", " real_server", 1)
	text = strings.Replace(text, "  TCP_CHECK", "  #sluice track_file f weight 1\n  TCP_CHECK", 1)
	plan := p.plan(&control.PlanRequest{File: "x", Text: text})
	if out := describe(t, plan); strings.Contains(out, `"weight": 8`) || len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], "track_file f taken for 0") {
		t.Errorf("the value of a file that the client names shows, or is not spoken of:\n%s", out)
	}
	// The daemon's own file may.
	p.write(text)
	if out := describe(t, p.plan(nil)); !strings.Contains(out, `"weight": 8`) {
		t.Errorf("the value of the daemon's own file is not read:\n%s", out)
	}
	p.stop()
}

func TestServedFindings(t *testing.T) {
	var found diag.List
	for _, source := range []string{"  lvs_sched rr", " password abc", " misc_path \"/x --pass y\"", "$SECRET=abc", "#sluice lvs_notify_fifo_script x"} {
		found = append(found, diag.Diagnostic{Severity: diag.Error, Code: "E1", Source: source})
	}
	found = append(found, diag.Diagnostic{Severity: diag.Notice, Source: "vrrp"})
	out := served(found)
	if len(out) != 5 || out[0].Source != "  lvs_sched rr" {
		t.Fatalf("%+v", out)
	}
	for _, f := range out[1:] {
		if f.Source != "" {
			t.Errorf("served: %q", f.Source)
		}
	}
}

func describe(t *testing.T, plan *engine.Plan) string {
	t.Helper()
	b, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
