package render

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-lb/sluice/internal/engine"
)

// Explain writes why a real server is as it is: the answer first, then what it follows
// from.
func Explain(w io.Writer, x *engine.Explanation, color bool) error {
	p := &printer{o: Options{Color: color}, at: x.At}
	rs := &x.RealServer
	state, c := string(rs.State), stateColor[rs.State]
	if !x.Configured {
		state, c = "draining, no longer configured", odd
	}
	p.line("%s of %s: %s", p.color(bold, called(rs.Address, rs.Label)), called(x.VirtualServer, x.VSLabel), p.color(c, clean(state)))
	p.paragraph(x.Summary)
	if len(x.Checks) > 0 {
		p.section("checks")
	}
	for i := range x.Checks {
		p.check(&x.Checks[i])
	}
	if x.Configured {
		p.parts(x)
	}
	p.section("in the kernel")
	p.places(x)
	p.situation(x)
	if _, err := io.WriteString(w, p.b.String()); err != nil {
		return fmt.Errorf("write explanation: %w", err)
	}
	return nil
}

func (p *printer) section(title string) {
	p.line("")
	p.line("%s", p.color(faint, strings.ToUpper(title)))
}

// paragraphWidth is where a sentence is broken.
const paragraphWidth = 78

// paragraph writes a text in lines.
func (p *printer) paragraph(text string) {
	line := " "
	for word := range strings.FieldsSeq(clean(text)) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > paragraphWidth && line != " " {
			p.line("%s", line)
			line = " "
		}
		line += " " + word
	}
	if line != " " {
		p.line("%s", line)
	}
}

var verdictColor = map[string]string{"up": good, "down": bad, "unknown": odd}

// check writes one checker: how it stands, when it runs, what it found.
func (p *printer) check(c *engine.Check) {
	s := clean(c.Kind)
	if c.Target != "" {
		s += " " + clean(c.Target)
	}
	s += ": " + p.color(verdictColor[c.Verdict], clean(c.Verdict))
	if !c.Since.IsZero() {
		s += " since " + p.clock(c.Since)
	}
	switch {
	case c.Failures == 1 && c.Verdict == "down":
		s += ", the last run failed"
	case c.Failures > 0 && c.Verdict == "down":
		s += fmt.Sprintf(", %s in a row failed", times(c.Failures))
	case c.Failures > 0:
		s += fmt.Sprintf(", attempt %d of %d failed", c.Failures, c.Limit)
	}
	if c.Missing > 0 && c.Verdict == "down" {
		s += fmt.Sprintf(", up after %d more good", c.Missing)
	}
	p.line("  %s", s)
	if c.Every > 0 {
		p.line("    %s", p.rhythm(c))
	}
	past := c.History
	var fault *engine.Fault
	if n := len(past); n > 0 && past[n-1].Last.Equal(c.LastAt) {
		fault = past[n-1].Fault
	}
	if c.Last != "" {
		p.line("    last %s %s ago in %s: %s", clean(c.Last), p.ago(c.LastAt), took(c.Took), orDash(clean(c.LastReason)))
	}
	if f := fault; f != nil {
		for _, part := range [][2]string{{"step", f.Stage}, {"target", f.Target}, {"expected", f.Expected}, {"got", f.Got}, {"errno", f.Errno}} {
			if part[1] != "" {
				p.line("      %-9s %s", part[0], clean(part[1]))
			}
		}
		if f.Timeout {
			p.line("      %-9s %s", "deadline", "passed")
		}
	}
	if len(past) == 0 && c.Last == "ok" {
		p.line("    %s", p.color(faint, "no failure since the daemon was started"))
	}
	for i, s := range slices.Backward(past) {
		if i == len(past)-1 && s.Count == 1 {
			continue // it is the last one
		}
		p.line("    %s", p.color(faint, p.stretch(&s)))
	}
}

// rhythm says when a check runs.
func (p *printer) rhythm(c *engine.Check) string {
	s := fmt.Sprintf("every %s, %s after a failure, at most %s long", plainly(c.Every), plainly(c.Retry), plainly(c.Timeout))
	switch {
	case c.Next.IsZero():
		s += "; suspended"
	case !c.Next.After(p.at):
		s += "; runs now"
	default:
		s += "; next in " + plainly(c.Next.Sub(p.at).Round(100*time.Millisecond))
	}
	if c.Shared > 1 {
		s += fmt.Sprintf("; one run for %d real servers", c.Shared)
	}
	return s
}

// plainly is a duration as people write it.
func plainly(d time.Duration) string {
	if d >= time.Minute {
		return compact(d)
	}
	return d.String()
}

func times(n uint32) string {
	if n == ^uint32(0) {
		return "very many"
	}
	return strconv.FormatUint(uint64(n), 10)
}

// stretch is a line of what a check found before.
func (p *printer) stretch(s *engine.Stretch) string {
	when := p.clock(s.First) + " to " + p.clock(s.Last)
	switch {
	case s.First.IsZero():
		when = "until " + p.clock(s.Last)
	case s.Count == 1:
		when = p.clock(s.Last)
	}
	out := when + ": " + clean(s.Result)
	if s.Count > 1 {
		out += " " + times(s.Count) + " times"
	}
	if s.Reason != "" {
		out += ": " + clean(s.Reason)
	}
	return out
}

// clock is a time of day, with the date if that is another one.
func (p *printer) clock(t time.Time) string {
	if p.at.Sub(t) < 20*time.Hour {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// parts writes the weight as a sum.
func (p *printer) parts(x *engine.Explanation) {
	p.section("weight")
	width := 0
	for _, part := range x.Weight {
		width = max(width, utf8.RuneCountInString(clean(part.Text)))
	}
	for i, part := range x.Weight {
		adds := fmt.Sprintf("%+d", part.Adds)
		if i == 0 {
			adds = strconv.FormatInt(part.Adds, 10)
		}
		text := clean(part.Text)
		p.line("  %s%s  %s", text, strings.Repeat(" ", width-utf8.RuneCountInString(text)), adds)
	}
	wanted := x.RealServer.WeightWanted
	s := fmt.Sprintf("= %d wanted", wanted)
	if wanted < 0 {
		s = "= not wanted in the kernel"
	}
	if len(x.Services) > 0 && x.KernelError == "" {
		s += ", " + inKernel(x.Services)
	}
	p.line("  %s", s)
}

// inKernel is the weight that the kernel has, which may be another in each service.
func inKernel(services []engine.Service) string {
	first := services[0].Destinations[0].Kernel
	for _, s := range services {
		if s.Destinations[0].Kernel != first {
			return "several in the kernel"
		}
	}
	if first < 0 {
		return "not there"
	}
	return fmt.Sprintf("%d in the kernel", first)
}

// places writes where the kernel has it.
func (p *printer) places(x *engine.Explanation) {
	if x.KernelError != "" {
		p.line("  %s, what follows is believed: %s", p.color(bad, "not read"), clean(x.KernelError))
	}
	if len(x.Services) == 0 {
		p.line("  no service")
	}
	for _, s := range x.Services {
		for i := range s.Destinations {
			d := &s.Destinations[i]
			out := fmt.Sprintf("%s: ", clean(s.Name))
			if d.Kernel < 0 {
				out += "not there"
			} else {
				out += fmt.Sprintf("%s with weight %d, %d active and %d inactive connections", clean(d.Address), d.Kernel, d.Active, d.Inactive)
			}
			if want := expected(d); want != d.Kernel && !x.Observe {
				out += ", " + p.color(bad, "wanted "+weight(want))
			}
			p.line("  %s", out)
			if d.Drain != nil {
				p.line("    draining for %s: %s", p.ago(d.Drain.Since), p.drain(d.Drain))
			}
		}
	}
}

// situation writes what its pool and operators have to do with it.
func (p *printer) situation(x *engine.Explanation) {
	q := x.Pool
	if q != nil {
		p.section("pool")
		quorum := p.color(good, "quorum")
		if !q.QuorumUp {
			quorum = p.color(bad, "NO QUORUM")
		}
		p.line("  %s for %s: weight %d alive, %d needed; %d of %d real servers in service", quorum, p.ago(q.Since), q.Alive, q.Threshold, q.Up, q.Servers)
		if q.MinAlive > 0 {
			at := ""
			if q.AtFloor {
				at = ", " + p.color(bad, "AT ITS FLOOR")
			}
			p.line("  min_alive keeps at least %d in service%s", q.MinAlive, at)
		}
		if s := q.Sorry; s != nil && q.SorryServing {
			p.line("  sorry server %s %s", clean(s.Address), p.color(bad, "serves"))
		}
		if q.Suspended {
			p.line("  %s: its address is not on this host, nothing is checked (ha_suspend)", p.color(odd, "SUSPENDED"))
		}
		p.vip(q.VIP)
		p.marked(q.Marked)
		p.hold(q.Hold)
	}
	if len(x.Orders) == 0 {
		return
	}
	p.section("operators")
	for i := range x.Orders {
		o := &x.Orders[i]
		s := fmt.Sprintf("%s by %s since %s", Order(o), clean(o.Who), p.clock(o.Since))
		if !o.Until.IsZero() {
			s += " until " + o.Until.Format(time.DateTime)
		}
		if o.Reason != "" {
			s += ": " + clean(o.Reason)
		}
		p.line("  %s", s)
	}
}
