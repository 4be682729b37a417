package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/engine"
)

// PlanOptions says how a plan is shown.
type PlanOptions struct {
	// All shows every line of lists that are cut otherwise.
	All bool
	// Color marks with ANSI colours what is dangerous.
	Color bool
}

// planLines is how much of a list is shown.
const planLines = 10

// Plan writes what a reload would do: what is dangerous first, then what drains, then
// the rest.
func Plan(w io.Writer, plan *engine.Plan, o PlanOptions) error {
	p := &planner{printer: printer{o: Options{Color: o.Color}, at: plan.At}, all: o.All}
	p.plan(plan)
	if _, err := io.WriteString(w, p.b.String()); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	return nil
}

type planner struct {
	printer
	all bool
}

func (p *planner) plan(plan *engine.Plan) {
	p.line("reload to %s, while configuration %d runs", orDash(clean(plan.ConfigFile)), plan.Generation)
	if plan.Observe {
		p.line("%s: nothing is written to the kernel; this is for the copy of its table that the daemon has", p.color(odd, "observe mode"))
	}
	if plan.Refused != "" {
		p.line("%s, and the old configuration would go on: %s", p.color(bad, "it would be REFUSED"), clean(plan.Refused))
		return
	}
	if plan.KernelError != "" {
		p.line("kernel: %s: %s", p.color(bad, "NOT OK"), clean(plan.KernelError))
	}
	for _, n := range plan.Notes {
		p.line("%s: %s", p.color(odd, "note"), clean(n))
	}
	if !plan.Changes {
		p.line("nothing would change")
		return
	}
	p.dangers(plan)
	p.drains(plan)
	p.servers(plan)
	p.configuration(plan)
	p.operations(plan)
}

// list writes a heading and lines below it, cut where there are many.
func (p *planner) list(heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	p.line("")
	p.line("%s", heading)
	shown := len(lines)
	// A line that only says that there is one more could be that one.
	if !p.all && shown > planLines+1 {
		shown = planLines
	}
	for _, l := range lines[:shown] {
		p.line("  %s", l)
	}
	if rest := len(lines) - shown; rest > 0 {
		p.line("  ... and %d more", rest)
	}
}

func (p *planner) dangers(plan *engine.Plan) {
	var lines []string
	for i := range plan.Pools {
		lines = append(lines, pool(&plan.Pools[i]))
	}
	p.list(p.color(bad, fmt.Sprintf("DANGER: %s worse off", count(len(lines), "virtual server", "is", "are"))), lines)
	lines = nil
	cut := slices.Clone(plan.Cut)
	slices.SortStableFunc(cut, func(a, b engine.PlanDestination) int { return cmp.Compare(carried(&b), carried(&a)) })
	sum := uint64(0)
	for i := range cut {
		sum += carried(&cut[i])
		lines = append(lines, fmt.Sprintf("%s %s: %s", clean(cut[i].Service), clean(cut[i].Address), carries(&cut[i])))
	}
	p.list(p.color(bad, fmt.Sprintf("DANGER: %s cut, removed at once", count(int(sum), "connection", "is", "are"))), lines)
}

func pool(o *engine.PlanPool) string {
	var what []string
	if o.Empty {
		what = append(what, "nobody would serve")
	}
	if o.BelowQuorum {
		what = append(what, fmt.Sprintf("falls below its quorum, which needs weight %d", o.Needed))
	}
	if o.AtFloor {
		what = append(what, fmt.Sprintf("comes to its floor, min_alive %d", o.MinAlive))
	}
	s := fmt.Sprintf("%s: %s; weight %d -> %d, serving %d -> %d", clean(o.VS), strings.Join(what, ", "), o.WeightBefore, o.WeightAfter, o.ServingBefore, o.ServingAfter)
	if o.Sorry != "" {
		s += "; the sorry server " + clean(o.Sorry) + " serves"
	}
	return s
}

func carried(d *engine.PlanDestination) uint64 { return uint64(d.Active) + uint64(d.Inactive) }

// carries says which connections a destination has now.
func carries(d *engine.PlanDestination) string {
	if carried(d) == 0 {
		return "no connections"
	}
	return fmt.Sprintf("%d active, %d inactive connections", d.Active, d.Inactive)
}

func (p *planner) drains(plan *engine.Plan) {
	var lines []string
	sum := uint64(0)
	all := slices.Clone(plan.Drains)
	slices.SortStableFunc(all, func(a, b engine.PlanDrain) int {
		return cmp.Compare(carried(&b.PlanDestination), carried(&a.PlanDestination))
	})
	for i := range all {
		d := &all[i]
		sum += carried(&d.PlanDestination)
		limit := ""
		if d.Limit > 0 {
			limit = ", cut after " + compact(d.Limit)
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s; %s%s", clean(d.Service), clean(d.Address), carries(&d.PlanDestination), clean(d.Why), limit))
	}
	p.list(fmt.Sprintf("%s drain, with %s", count(len(lines), "destination", "would", "would"), count(int(sum), "connection")), lines)
}

// count says how many there are of something, with what follows it.
func count(n int, one string, verbs ...string) string {
	s := Count(n, one)
	switch {
	case len(verbs) == 0:
	case n == 1:
		s += " " + verbs[0]
	default:
		s += " " + verbs[1]
	}
	return s
}

func (p *planner) servers(plan *engine.Plan) {
	var lines []string
	for _, h := range plan.Held {
		lines = append(lines, fmt.Sprintf("%s of %s, at most %s", clean(h.Server), clean(h.VS), compact(h.For)))
	}
	p.list("go on serving until those in their place have passed a check (departure_hold)", lines)
	lines = nil
	for _, s := range plan.Joins {
		lines = append(lines, fmt.Sprintf("%s of %s", clean(s.Server), clean(s.VS)))
	}
	p.list("join after their first good check", lines)
	lines = nil
	for _, c := range plan.Checks {
		lines = append(lines, fmt.Sprintf("%s %s of %s in %s", clean(c.Kind), clean(c.Target), clean(c.Server), clean(c.VS)))
	}
	p.list("checks of servers that stay begin anew", lines)
	lines = nil
	for _, o := range plan.Orders {
		what := "has no effect any more, its server is gone"
		if o.Comes {
			what = "takes effect, its server comes"
		}
		lines = append(lines, fmt.Sprintf("%s of %s in %s, by %s: %s", clean(string(o.Kind)), clean(o.Server), clean(o.VS), clean(o.Who), what))
	}
	p.list("operators' orders", lines)
}

func (p *planner) configuration(plan *engine.Plan) {
	var lines []string
	for _, vs := range plan.Removed {
		lines = append(lines, "- "+clean(vs))
	}
	for _, vs := range plan.Added {
		lines = append(lines, "+ "+clean(vs))
	}
	for i := range plan.Changed {
		lines = append(lines, "~ "+p.changed(&plan.Changed[i]))
	}
	p.list(fmt.Sprintf("virtual servers: %d removed, %d added, %d changed", len(plan.Removed), len(plan.Added), len(plan.Changed)), lines)
	if len(plan.Settings) > 0 {
		p.list("global settings", []string{changes(plan.Settings)})
	}
	if len(plan.Restart) > 0 {
		p.list("only a restart takes up", []string{clean(strings.Join(plan.Restart, ", "))})
	}
}

func changes(all []engine.PlanSetting) string {
	var out []string
	for _, s := range all {
		text := clean(s.Keyword)
		if s.From != "" || s.To != "" {
			text += " " + orDash(clean(s.From)) + " -> " + orDash(clean(s.To))
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// changed describes one virtual server in one line; its lists are cut like the others.
func (p *planner) changed(c *engine.PlanVirtualServer) string {
	var parts []string
	if len(c.Settings) > 0 {
		parts = append(parts, changes(c.Settings))
	}
	names := func(sign string, all []string) {
		n := len(all)
		if !p.all && n > planLines+1 {
			n = planLines
		}
		for _, s := range all[:n] {
			parts = append(parts, sign+clean(s))
		}
		if n < len(all) {
			parts = append(parts, fmt.Sprintf("%s... and %d more", sign, len(all)-n))
		}
	}
	names("-", c.Removed)
	names("+", c.Added)
	var changed []string
	for _, rs := range c.Changed {
		changed = append(changed, rs.Server+" ("+changes(rs.Settings)+")")
	}
	names("~", changed)
	if parts == nil {
		parts = []string{"the order of its real servers"}
	}
	return clean(c.VS) + ": " + strings.Join(parts, "; ")
}

func (p *planner) operations(plan *engine.Plan) {
	if len(plan.Operations) == 0 {
		p.line("")
		p.line("nothing is written to the table")
		return
	}
	var lines []string
	for i := range plan.Operations {
		lines = append(lines, operation(&plan.Operations[i]))
	}
	p.list(count(len(lines), "operation")+" on the table, in this order", lines)
}

func operation(o *engine.PlanOperation) string {
	s := o.Op + " service " + clean(o.Service)
	if o.Destination != "" {
		s = fmt.Sprintf("%s destination %s of %s", o.Op, clean(o.Destination), clean(o.Service))
	}
	switch {
	case o.From != nil && o.To != nil:
		s += ": " + differ(o.From, o.To)
	case o.To != nil:
		s += ": " + entry(o.To, o.Destination != "")
	}
	if o.Active > 0 || o.Inactive > 0 {
		s += fmt.Sprintf(" (%d active, %d inactive connections)", o.Active, o.Inactive)
	}
	return s
}

// parts are what an entry of the table is made of, by name.
func parts(e *engine.PlanEntry, destination bool) [][2]string {
	number := func(n uint32) string {
		if n == 0 && !destination {
			return ""
		}
		return fmt.Sprint(n)
	}
	if destination {
		all := [][2]string{{"", clean(e.Method)}, {"weight", number(e.Weight)}, {"tunnel", clean(e.Tunnel)}, {"uthreshold", ""}, {"lthreshold", ""}}
		if e.Upper|e.Lower != 0 {
			all[3][1], all[4][1] = number(e.Upper), number(e.Lower)
		}
		return all
	}
	return [][2]string{{"", clean(e.Scheduler)}, {"flags", clean(strings.Join(e.Flags, ","))}, {"persistence", number(e.Persistence)},
		{"mask", clean(e.Netmask)}, {"persistence engine", clean(e.Engine)}}
}

func entry(e *engine.PlanEntry, destination bool) string {
	var out []string
	for _, p := range parts(e, destination) {
		if p[1] != "" {
			out = append(out, strings.TrimSpace(p[0]+" "+p[1]))
		}
	}
	return strings.Join(out, " ")
}

func differ(from, to *engine.PlanEntry) string {
	destination := to.Scheduler == ""
	a, b := parts(from, destination), parts(to, destination)
	var out []string
	for i := range a {
		if a[i] != b[i] {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s -> %s", a[i][0], orDash(a[i][1]), orDash(b[i][1]))))
		}
	}
	return strings.Join(out, ", ")
}

// Findings writes findings that a daemon sent, as sluice check writes its own.
func Findings(w io.Writer, found []diag.Finding, color bool) error {
	var all diag.List
	for _, f := range found {
		all = append(all, f.Diagnostic())
	}
	return all.WriteText(w, diag.TextOptions{Color: color})
}
