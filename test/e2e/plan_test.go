package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// operations are a plan's in a word each, the backends by their numbers.
func (b *bed) operations(p *engine.Plan) string {
	var out []string
	for _, o := range p.Operations {
		at := "service"
		for i, be := range b.Backends {
			if o.Destination == be.Addr.String()+":80" {
				at = fmt.Sprint(i + 1)
			}
		}
		s := o.Op + " " + at
		if o.To != nil && at != "service" {
			s += fmt.Sprintf(" weight %d", o.To.Weight)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// TestKernelPlan: what sluice plan says of the real table and of real connections is
// what the reload then does.
func TestKernelPlan(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 4)
	b.write(globals + pool("", 1, 2, 3))
	b.start()
	b.until("1:1 2:1 3:1")
	b.hold(6)
	b.says(0, "nothing would change", "plan")

	// Another scheduler, 3 goes with what it carries, 4 comes; somebody else has
	// changed 2.
	b.write(globals + strings.Replace(pool("", 1, 2, 4), "lvs_sched rr", "lvs_sched wlc", 1))
	b.Director.Run(t, "ipvsadm", "-e", "-t", b.VIP.String()+":80", "-r", b.Backends[1].Addr.String()+":80", "-m", "-w", "7")
	b.says(1, "2 active, 0 inactive connections; removed from the configuration", "plan")
	before, table := b.status(), b.Director.Run(t, "ipvsadm", "-Sn")
	plan, err := control.NewClient(b.socket).Plan(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := b.operations(plan), "change service, change 3 weight 0, change 2 weight 1"; got != want {
		t.Errorf("planned %q, want %q", got, want)
	}
	if len(plan.Drains) != 1 || plan.Drains[0].Active != 2 || len(plan.Joins) != 1 || len(plan.Cut) != 0 {
		t.Errorf("drains %+v, join later %+v, cut %+v", plan.Drains, plan.Joins, plan.Cut)
	}
	if now := b.Director.Run(t, "ipvsadm", "-Sn"); now != table || b.status().Kernel.Operations != before.Kernel.Operations {
		t.Errorf("the plan changed the table from\n%sto\n%s", table, now)
	}

	b.echo[3].Refuse() // so that nothing comes to what the reload does
	r, err := control.NewClient(b.socket).Reload(t.Context())
	if err != nil || !r.OK || r.Done == nil || int(r.Done.Operations) != len(plan.Operations) {
		t.Errorf("reload %+v, %v, planned %d operations", r, err, len(plan.Operations))
	}
	b.until("1:1 2:1 3:0")
	if now := b.Director.Run(t, "ipvsadm", "-Sn"); !strings.Contains(now, "-s wlc") {
		t.Errorf("after the reload the table is\n%s", now)
	}
	b.kept()
	b.says(0, "nothing would change", "plan")

	// A file that only the client reads takes all of them away.
	own := b.conf
	b.conf += ".next"
	b.write(globals + pool("", 4))
	next := b.conf
	b.conf = own
	b.says(1, "go on serving until those in their place have passed a check", "plan", next)
	b.release()
}
