// Package render writes a snapshot as the table that "sluice status" shows.
//
// It decides what an operator reads first: for each virtual server whether it
// has its quorum, for each server its state, its weight as wanted and as it is in
// the kernel, and why. It deliberately does no I/O of its own and reads no clock:
// ages are measured to the moment at which the snapshot was made.
//
// Destinations that drain stand in the same table as the real servers, since to
// the question "who has connections" they are rows like the others. A virtual
// server that stands for several kernel services (a group) shows their sum; wide
// output has a line for each.
package render

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sluice-lb/sluice/internal/engine"
)

// Options says what is shown.
type Options struct {
	// Wide adds a line for each checker, track file and kernel service.
	Wide bool
	// Color marks states with ANSI colours.
	Color bool
	// Filter shows only virtual servers and leaving services whose name, service
	// or server address contains it, ignoring case; "" shows all.
	Filter string
	// Version is this program's, to be mentioned when the daemon's is another.
	Version string
}

// Result is what a caller makes an exit status of.
type Result struct {
	// Shown is how many virtual servers and leaving services passed the filter.
	Shown int
	// Healthy: every virtual server shown has its quorum without being at its floor and
	// without an address that is missing, the kernel's table can be written (which does
	// not count in observe mode), and what goes with the services works.
	Healthy bool
}

// Select returns the virtual servers and leaving services that pass a filter, and
// what is to be said of them, without writing anything.
func Select(s *engine.Snapshot, filter string) ([]engine.VirtualServer, []engine.Service, Result) {
	r := Result{Healthy: (s.Kernel.OK || s.Observe) && (s.Edge == nil || len(s.Edge.Failures) == 0)}
	vss := []engine.VirtualServer{} // for JSON, which has no list otherwise
	for _, vs := range s.VirtualServers {
		if matches(vs, filter) {
			vss = append(vss, vs)
			r.Healthy = r.Healthy && vs.QuorumUp && !vs.AtFloor && (vs.VIP == nil || len(vs.VIP.Missing) == 0)
		}
	}
	var leaving []engine.Service
	for _, svc := range s.Leaving {
		if contains(svc.Name, filter) {
			leaving = append(leaving, svc)
		}
	}
	r.Shown = len(vss) + len(leaving)
	return vss, leaving, r
}

func contains(s, filter string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(filter))
}

func matches(vs engine.VirtualServer, filter string) bool {
	if contains(vs.Name, filter) || contains(vs.Label, filter) {
		return true
	}
	for _, svc := range vs.Services {
		if contains(svc.Name, filter) {
			return true
		}
	}
	for _, rs := range vs.RealServers {
		if contains(rs.Address, filter) || contains(rs.Label, filter) {
			return true
		}
	}
	return false
}

// Status writes a snapshot for people.
func Status(w io.Writer, s *engine.Snapshot, o Options) (Result, error) {
	vss, leaving, r := Select(s, o.Filter)
	p := &printer{o: o, at: s.At}
	p.head(s)
	for i := range vss {
		p.virtualServer(&vss[i], s.Observe)
	}
	p.leaving(leaving)
	p.foreign(SelectForeign(s.Foreign, o.Filter))
	if r.Shown == 0 {
		p.line("")
		if o.Filter != "" {
			p.line("no virtual server matches %q", o.Filter)
		} else {
			p.line("no virtual servers are configured")
		}
	}
	if _, err := io.WriteString(w, p.b.String()); err != nil {
		return r, fmt.Errorf("write status: %w", err)
	}
	return r, nil
}

// printer collects the output.
type printer struct {
	b  strings.Builder
	o  Options
	at time.Time
}

func (p *printer) line(format string, args ...any) {
	fmt.Fprintf(&p.b, format, args...)
	p.b.WriteByte('\n')
}

// ANSI colours by what they tell.
const (
	good  = "\x1b[32m"
	bad   = "\x1b[1;31m"
	odd   = "\x1b[33m"
	bold  = "\x1b[1m"
	faint = "\x1b[2m"
	reset = "\x1b[0m"
)

func (p *printer) color(c, s string) string {
	if !p.o.Color || c == "" || s == "" {
		return s
	}
	return c + s + reset
}

// ago is the age of a moment, "-" for one that is not known.
func (p *printer) ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return compact(p.at.Sub(t))
}

// compact writes a duration with its two largest units: "45s", "3m12s", "2h5m",
// "3d4h". What is below a second is "0s"; a clock that went back is "0s" too.
func compact(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	for _, u := range []struct {
		seconds, below int64
		name, sub      string
	}{{86400, 3600, "d", "h"}, {3600, 60, "h", "m"}, {60, 1, "m", "s"}} {
		if s < u.seconds {
			continue
		}
		out := strconv.FormatInt(s/u.seconds, 10) + u.name
		if rest := s % u.seconds / u.below; rest > 0 {
			out += strconv.FormatInt(rest, 10) + u.sub
		}
		return out
	}
	return strconv.FormatInt(s, 10) + "s"
}

// clean makes a foreign text safe for a terminal and one line.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

func (p *printer) head(s *engine.Snapshot) {
	version := "sluiced " + orDash(clean(s.Version))
	if p.o.Version != "" && p.o.Version != s.Version {
		version += " (this sluice is " + p.o.Version + ")"
	}
	p.line("%s, up %s, configuration %d from %s", version, p.ago(s.Started), s.Generation, orDash(clean(s.ConfigFile)))
	switch {
	case s.Reload.At.IsZero():
	case s.Reload.OK:
		p.line("last reload %s ago: ok", p.ago(s.Reload.At))
	default:
		p.line("last reload %s ago: %s, the configuration before it runs on: %s", p.ago(s.Reload.At),
			p.color(bad, "REFUSED"), clean(s.Reload.Error))
	}
	switch {
	case s.Kernel.OK && s.Kernel.Error != "":
		p.line("kernel: %s: %s", p.color(odd, "ok, but"), clean(s.Kernel.Error))
	case s.Kernel.OK:
		p.line("kernel: ok, %s since the start", Count(s.Kernel.Operations, "operation"))
	case s.Kernel.Since.IsZero() && s.Kernel.Error == "":
		p.line("kernel: %s yet", p.color(odd, "not reached"))
	default:
		p.line("kernel: %s for %s: %s", p.color(bad, "NOT OK"), p.ago(s.Kernel.Since), clean(s.Kernel.Error))
	}
	p.edge(s)
	for _, m := range s.MissingCapabilities {
		p.line("%s %s", p.color(bad, "missing"), clean(m))
	}
	if n := s.Kernel.DriftRepaired; n > 0 {
		p.line("put back since the start: %s that somebody else made, see the log", Count(n, "change"))
	}
	differ := ""
	switch n := differences(s); {
	case n == 1:
		differ = "1 weight in the kernel is not as wanted, it is marked with *"
	case n > 1:
		differ = fmt.Sprintf("%d weights in the kernel are not as wanted, they are marked with *", n)
	case s.Observe:
		differ = "the kernel's weights are as wanted"
	}
	if s.Observe {
		differ = p.color(odd, "observe mode") + ": nothing is written to the kernel; " + differ
	}
	if differ != "" {
		p.line("%s", differ)
	}
	p.sync(s.Sync)
	p.overrides(s.Overrides)
	if s.Overdue >= time.Second {
		p.line("%s: the most overdue check is %s late", p.color(bad, "checks are late"), compact(s.Overdue))
	}
}

// differences counts the destinations whose weight in the kernel is not the
// wanted one.
func differences(s *engine.Snapshot) int {
	n := 0
	count := func(services []engine.Service) {
		for _, svc := range services {
			for i := range svc.Destinations {
				if d := &svc.Destinations[i]; expected(d) != d.Kernel {
					n++
				}
			}
		}
	}
	for _, vs := range s.VirtualServers {
		count(vs.Services)
	}
	count(s.Leaving)
	return n
}

// called adds what people call something to its name.
func called(name, label string) string {
	if label == "" {
		return clean(name)
	}
	return clean(name) + " (" + clean(label) + ")"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
