package web

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sluice-lb/sluice/internal/engine"
)

// stateOrder is how states are listed, words what they are called and symbols what
// tells them apart without colour.
var (
	stateOrder = []string{
		string(engine.StateUp), string(engine.StateDown), string(engine.StateKept), string(engine.StateDamped), string(engine.StateUnverified),
		string(engine.StateWithdrawn), string(engine.StateMaintenance), stateDraining, string(engine.StateHeld), string(engine.StatePassive), stateSorry, stateForeign,
	}
	words = map[string]string{
		string(engine.StateUp): "up", string(engine.StateDown): "down", string(engine.StateKept): "kept", string(engine.StateDamped): "damped",
		string(engine.StateUnverified): "unverified", string(engine.StateWithdrawn): "withdrawn", string(engine.StateMaintenance): "maintenance",
		stateDraining: "draining", string(engine.StateHeld): "held", string(engine.StatePassive): "passive", stateSorry: "sorry", stateForeign: "foreign",
	}
	symbols = map[string]string{
		string(engine.StateUp): "✓", string(engine.StateDown): "✕", string(engine.StateKept): "‼", string(engine.StateDamped): "≈",
		string(engine.StateUnverified): "?", string(engine.StateWithdrawn): "○", string(engine.StateMaintenance): "‖",
		stateDraining: "↓", string(engine.StateHeld): "◷", string(engine.StatePassive): "◌", stateSorry: "☂", stateForeign: "≠",
	}
)

// maxText bounds what a line of the page may say.
const maxText = 240

// clip takes what checks and others found to one line without control characters.
func clip(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
	}), " ")
	if runes := []rune(s); len(runes) > maxText {
		s = string(runes[:maxText-1]) + "…"
	}
	return s
}

// thousands groups a number's digits.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// span is a duration with the two units that matter.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + " s"
	case d < time.Hour:
		return two(d, time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return two(d, time.Hour, "h", time.Minute, "min")
	}
	return two(d, 24*time.Hour, "d", time.Hour, "h")
}

func two(d, big time.Duration, bigUnit string, small time.Duration, smallUnit string) string {
	s := fmt.Sprintf("%d %s", d/big, bigUnit)
	if rest := d % big / small; rest > 0 {
		s += fmt.Sprintf(" %d %s", rest, smallUnit)
	}
	return s
}

// took is a check's duration.
func took(d time.Duration) string {
	switch {
	case d >= time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + " s"
	case d >= time.Millisecond:
		return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 1, 64) + " ms"
	}
	return strconv.FormatInt(d.Microseconds(), 10) + " µs"
}

// viewer puts things into words as of one moment.
type viewer struct{ now time.Time }

func (v viewer) moment(t time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	d := v.now.Sub(t)
	if d < 0 {
		d = -d
	}
	m := moment{Ago: span(d), Past: span(d) + " ago", At: t.Format(time.RFC3339), Title: t.Format(time.DateTime)}
	if d < time.Second { // tenths would flicker
		m.Ago, m.Past = "0 s", "now"
	}
	return m
}

func weight(w int64) string {
	if w < 0 {
		return "–"
	}
	return strconv.FormatInt(w, 10)
}

func (v viewer) pool(sh *shown) poolView {
	p := poolView{Key: "vs-" + sh.name, Title: sh.title(), Name: sh.name, URL: query{VS: sh.name}.url(), Hidden: sh.matching - len(sh.rows), Bad: sh.trouble > 0}
	if sh.alone {
		p.Hidden = 0 // they are on the next pages
	}
	if vs := sh.vs; vs != nil {
		p.Scheduler, p.Since = vs.Scheduler, v.moment(vs.Since)
		p.Alive, p.Needed = strconv.FormatInt(vs.Alive, 10), strconv.FormatUint(uint64(vs.Quorum), 10)
		if p.Share = 100; vs.Quorum > 0 && vs.Alive < int64(vs.Quorum) {
			p.Share = int(max(vs.Alive, 0) * 100 / int64(vs.Quorum))
		}
		v.badges(&p, vs)
		if len(vs.Services) > 1 {
			names := make([]string, 0, 5)
			for i := range vs.Services[:min(len(vs.Services), 4)] {
				names = append(names, vs.Services[i].Name)
			}
			if n := len(vs.Services); n > 4 {
				names = append(names, fmt.Sprintf("and %d more", n-4))
			}
			p.Notes = append(p.Notes, "Services: "+strings.Join(names, ", "))
		}
		p.Notes = append(p.Notes, addresses(vs)...)
	} else {
		p.Badges = append(p.Badges, badge{"leaving: no longer configured", "↓", "warn"})
	}
	for i := range sh.drifts[:min(len(sh.drifts), 4)] {
		d := &sh.drifts[i]
		at := d.Destination
		if at == "" {
			at = sh.name
		}
		p.Notes = append(p.Notes, clip(fmt.Sprintf("Drift: %s: %s, found %s, wanted %s", at, d.What, d.Found, d.Wanted)))
	}
	counts := map[string]int{}
	for i := range sh.pool.rows {
		counts[sh.pool.rows[i].state]++
	}
	for _, state := range stateOrder {
		if n := counts[state]; n > 0 {
			p.Summary = append(p.Summary, chip{State: state, Word: words[state], Symbol: symbols[state], N: n})
		}
	}
	p.Rows = make([]rowView, len(sh.rows))
	for i, r := range sh.rows {
		p.Rows[i] = v.row(r)
	}
	return p
}

// shownAddresses are those that a note names.
const shownAddresses = 4

// addresses says where those of a virtual server are, and which a mark stands for.
func addresses(vs *engine.VirtualServer) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, clip(fmt.Sprintf(format, args...))) }
	switch v := vs.VIP; {
	case v == nil:
	case !v.Announced:
		note("Not announced on %s: %s", v.Device, v.Why)
	case len(v.Missing) > 0:
		for _, m := range v.Missing[:min(len(v.Missing), shownAddresses)] {
			note("Not on %s: %s: %s", v.Device, m.Address, m.Reason)
		}
	default:
		note("%s on %s, vip_follow %s", plural(v.Addresses, "address"), v.Device, v.Follow)
	}
	if m := vs.Marked; m != nil {
		ranges := m.Ranges[:min(len(m.Ranges), shownAddresses)]
		more := ""
		if n := len(m.Ranges) - len(ranges); n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		note("Mark %d stands for %s: %s%s", m.Mark, plural(m.Count, "address"), strings.Join(ranges, ", "), more)
	}
	return notes
}

func (v viewer) badges(p *poolView, vs *engine.VirtualServer) {
	add := func(word, symbol, class string) { p.Badges = append(p.Badges, badge{word, symbol, class}) }
	switch {
	case vs.Suspended:
		add("suspended: its address is not on this host", "‖", "odd")
	case !vs.QuorumUp:
		add("no quorum", "✕", "bad")
	default:
		add("quorum", "✓", "good")
	}
	if vs.SorryServing {
		add("sorry server serves", "☂", "bad")
	}
	if vs.AtFloor {
		add(fmt.Sprintf("at its floor of %d for %s", vs.MinAlive, v.moment(vs.FloorSince).Ago), "‼", "bad")
	}
	if vs.Withheld {
		add("withheld: this director is passive", symbols[string(engine.StatePassive)], "odd")
	}
	switch v := vs.VIP; {
	case v == nil:
	case !v.Announced:
		add("not announced", "⇣", "warn")
	case len(v.Missing) > 0:
		add(fmt.Sprintf("%s of %s addresses not announced", thousands(len(v.Missing)), thousands(v.Addresses)), "✕", "bad")
	default:
		add("announced", "⇡", "good")
	}
	if vs.Hold != nil {
		add("departure hold", "◷", "warn")
	}
}

func (v viewer) row(r *row) rowView {
	out := rowView{
		Key: r.address, Address: r.address, State: r.state, Word: words[r.state], Symbol: symbols[r.state],
		Why: clip(r.why), Since: v.moment(r.since), Weight: weight(r.wanted),
		Kernel: weight(r.kernel), Differs: r.differs(), Active: "–", Inactive: "–",
	}
	if r.state == stateDraining || r.state == stateForeign {
		out.Key += " " + r.state
	}
	if r.mixed {
		out.Kernel = "mixed"
	}
	if r.kernel >= 0 {
		out.Active, out.Inactive = strconv.FormatUint(r.active, 10), strconv.FormatUint(r.inactive, 10)
	}
	if d := r.drain; d != nil {
		out.Notes = append(out.Notes, v.drain(d))
	}
	rs := r.rs
	if rs == nil {
		return out
	}
	out.Label = rs.Label
	if rs.HeldUntil.After(v.now) {
		out.Notes = append(out.Notes, "held back for another "+span(rs.HeldUntil.Sub(v.now)))
	}
	if rs.RisesUntil.After(v.now) {
		out.Notes = append(out.Notes, "slow start, full weight in "+span(rs.RisesUntil.Sub(v.now)))
	}
	v.checks(&out, rs)
	for _, f := range rs.TrackFiles {
		s := fmt.Sprintf("track_file %s (%s): %d, adds %d", f.Name, f.Path, f.Value, f.Contribution)
		if f.Fault {
			s = fmt.Sprintf("track_file %s (%s): %d, a fault", f.Name, f.Path, f.Value)
		}
		out.Files = append(out.Files, s)
	}
	for _, d := range rs.Dynamic {
		out.Files = append(out.Files, fmt.Sprintf("%s asks for weight %d", d.Checker, d.Weight))
	}
	return out
}

// checks has the check that matters most in the row and all others below it.
func (v viewer) checks(out *rowView, rs *engine.RealServer) {
	first := -1
	for i := range rs.Checkers {
		if c := &rs.Checkers[i]; first < 0 || ill(c) > ill(&rs.Checkers[first]) {
			first = i
		}
	}
	for i := range rs.Checkers {
		c := v.check(&rs.Checkers[i], rs.Address)
		if i == first {
			out.Check = &c
			// What the state says already need not be said twice.
			if text, _, _ := strings.Cut(c.Reason, " after "); strings.Contains(out.Why, text) {
				c.Reason = ""
			}
			continue
		}
		out.More = append(out.More, c)
	}
}

// ill is how bad a check's state is.
func ill(c *engine.Checker) int {
	switch {
	case c.Verdict == "down":
		return 4
	case c.Failures > 0:
		return 3
	case c.Last == "unable":
		return 2
	case c.Last != "ok":
		return 1
	}
	return 0
}

func (v viewer) check(c *engine.Checker, address string) checkView {
	out := checkView{Kind: c.Kind, Result: c.Last, At: v.moment(c.LastAt)}
	if c.Target != address {
		out.Target = clip(c.Target)
	}
	switch {
	case c.Last == "":
		out.Result = "not yet run"
	case c.Last == "ok":
		out.Class = "good"
	case c.Last == "unable":
		out.Class = "warn"
	default:
		out.Class = "bad"
	}
	if c.Last != "" {
		out.Took = took(c.Took)
	}
	if c.Last != "ok" {
		out.Reason = clip(c.LastReason)
	}
	switch {
	case c.Next.IsZero():
	case c.Next.Sub(v.now) >= time.Second:
		out.Next = "next in " + span(c.Next.Sub(v.now))
	default: // tenths would flicker
		out.Next = "next now"
	}
	if c.Failures > 0 {
		out.Attempt = fmt.Sprintf("attempt %d of %d", min(c.Failures, c.Limit), c.Limit)
	}
	return out
}

// drain says what it waits for and until when.
func (v viewer) drain(d *engine.Drain) string {
	s := "drains"
	if d.WaitsFor != "" {
		s = "waits for " + d.WaitsFor
	}
	if d.Note != "" {
		s += ", " + d.Note
	}
	switch {
	case d.EndsBy.After(v.now) && (d.Deadline.IsZero() || d.EndsBy.Before(d.Deadline)):
		s += ", forgotten by the kernel in at most " + span(d.EndsBy.Sub(v.now))
	case d.Deadline.IsZero():
		s += ", without a time limit"
	case d.Deadline.After(v.now):
		s += ", for at most " + span(d.Deadline.Sub(v.now))
	default:
		s += ", its time is over"
	}
	return clip(s)
}

func (v viewer) order(o *engine.Override) orderView {
	out := orderView{VS: o.VS, Server: o.Server, What: "drained", Who: clip(o.Who), Reason: clip(o.Reason), Since: v.moment(o.Since), Until: v.moment(o.Until), Absent: o.Absent}
	if o.Kind == engine.VerbWeight {
		out.What = fmt.Sprintf("weight %d", o.Weight)
	}
	if o.Kernel >= 0 {
		out.Connections = fmt.Sprintf("%d active, %d inactive", o.Active, o.Inactive)
	}
	out.Manage = manageURL(o.VS, o.Server)
	return out
}

func manageURL(vs, rs string) string {
	return "/admin/server?" + url.Values{"vs": {vs}, "rs": {rs}}.Encode()
}

// manage gives real servers the address of their forms.
func (p *poolView) manage() {
	for i := range p.Rows {
		switch r := &p.Rows[i]; r.State {
		case stateDraining, stateSorry, stateForeign:
		default:
			r.Manage = manageURL(p.Name, r.Address)
		}
	}
}
