package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// say answers in one or two sentences: what it does and why, then what ends it.
// trouble is what keeps the table from being written, "" for nothing.
func (x *Explanation) say(trouble string) string {
	rs := &x.RealServer
	first, then := x.why(rs)
	if rs.WeightWanted > 0 && !x.InService {
		first = fmt.Sprintf("It should be in service with weight %d (%s), and the kernel's table does not have it so", rs.WeightWanted, rs.Reason)
		then = cmp.Or(trouble, x.KernelError, "it is written within a moment; if not, the log says why")
	}
	if a := x.addresses(); a != "" && rs.State != StatePassive {
		then = strings.TrimPrefix(then+"; "+a, "; ")
	}
	if x.Observe {
		then = strings.TrimPrefix(then+"; in observe mode nothing of it is written to the kernel", "; ")
	}
	if then == "" {
		return first + "."
	}
	return first + ". " + strings.ToUpper(then[:1]) + then[1:] + "."
}

// why says what a server does and what changes that, each without a full stop.
func (x *Explanation) why(rs *RealServer) (first, then string) {
	since := ""
	if !rs.Since.IsZero() {
		since = " for " + span(x.At.Sub(rs.Since))
	}
	switch rs.State {
	case StateDown:
		return "It is out" + since + " since " + x.failure(rs.Reason) + x.stays(), x.back("it comes back")
	case StateUnverified:
		return "It is out" + since + " since it has not passed its first check: " + x.waiting(), x.back("it comes back")
	case StateMaintenance:
		return x.maintenance(rs, since)
	case StateWithdrawn:
		p := x.Pool
		return fmt.Sprintf("It is withdrawn%s: the pool has lost its quorum (weight %d alive, %d needed) and the sorry server %s serves", since, p.Alive, p.Threshold, x.sorry()),
			fmt.Sprintf("it comes back when weight %d is alive", p.Threshold)
	case StateHeld:
		return "It is in service and no longer configured (departure_hold)", x.held()
	case StateKept:
		return "It is in service though " + x.failure(rs.Reason) + ": min_alive keeps it, since fewer than " + fmt.Sprint(x.Pool.MinAlive) + " others are good", x.back("it needs no keeping")
	case StatePassive:
		return "It is out" + since + ", " + rs.Reason, x.active()
	case StateDamped:
		return "It is out" + since + " though " + strings.TrimSuffix(rs.Reason, "."),
			"it comes back in " + span(rs.HeldUntil.Sub(x.At)) + " if its checks go on passing"
	}
	first = fmt.Sprintf("It is in service%s with weight %d: %s", since, rs.WeightWanted, rs.Reason)
	if rs.WeightWanted <= 0 {
		first = fmt.Sprintf("It is up%s (%s), but not wanted in the kernel's table now", since, rs.Reason)
	}
	switch {
	case x.Pool.Suspended:
		then = "checks are suspended since the address of the virtual server is not on this host (ha_suspend)"
	case rs.RisesUntil.After(x.At):
		then = "it starts slowly and has its whole weight in " + span(rs.RisesUntil.Sub(x.At))
	}
	if f := x.failing(); f != "" {
		then = strings.TrimPrefix(then+"; "+f, "; ")
	}
	return first, then
}

// active says how a director becomes active again.
func (x *Explanation) active() string {
	p := x.Pool.Passive
	if p == nil {
		return "it comes back within a moment"
	}
	var ends []string
	for i := range p.Sources {
		switch s := &p.Sources[i]; s.Source {
		case PassiveByCommand:
			ends = append(ends, "sluice passive off")
		case PassiveByFile:
			ends = append(ends, s.Who+" is 0")
		default:
			ends = append(ends, "the configuration says passive off")
		}
	}
	return "it comes back, if its checks pass, after " + strings.Join(ends, ", and when ")
}

// addresses says what is wrong with those of its virtual server, "" for nothing.
func (x *Explanation) addresses() string {
	switch v := x.Pool.VIP; {
	case v == nil:
		return ""
	case !v.Announced:
		return fmt.Sprintf("the address of its virtual server is not announced on %s: %s", v.Device, v.Why)
	case len(v.Missing) > 0:
		return fmt.Sprintf("%d of the %d addresses of its virtual server are not on %s: %s, %s", len(v.Missing), v.Addresses, v.Device, v.Missing[0].Address, v.Missing[0].Reason)
	}
	return ""
}

// failure names the checks that keep it down; reason is the one that took it down.
func (x *Explanation) failure(reason string) string {
	var down []string
	for i := range x.Checks {
		if c := &x.Checks[i]; c.Verdict == "down" {
			down = append(down, c.name()+" fails: "+cmp.Or(c.lastFailure(), x.value(c), strings.TrimPrefix(reason, c.Kind+": ")))
		}
	}
	switch len(down) {
	case 0:
		return strings.TrimSuffix(reason, ".")
	case 1:
		return down[0]
	}
	return fmt.Sprintf("%d checks fail; %s", len(down), strings.Join(down, "; "))
}

// value is what the file of a FILE_CHECK says, "" for another check.
func (x *Explanation) value(c *Check) string {
	for _, f := range x.RealServer.TrackFiles {
		if c.Kind == "FILE_CHECK" && c.Target == "track_file "+f.Name {
			return fmt.Sprintf("%s is %d", cmp.Or(f.Path, f.Name), f.Value)
		}
	}
	return ""
}

// waiting names what has not passed yet.
func (x *Explanation) waiting() string {
	var names []string
	for i := range x.Checks {
		c := &x.Checks[i]
		if c.Verdict == "up" {
			continue
		}
		said := c.name()
		if f := c.lastFailure(); f != "" {
			said += " fails: " + f
		}
		names = append(names, said)
	}
	return strings.Join(names, "; ")
}

// failing says of a server in service which check is about to take it out, or cannot
// run.
func (x *Explanation) failing() string {
	for i := range x.Checks {
		switch c := &x.Checks[i]; {
		case c.Last == "unable":
			return fmt.Sprintf("%s cannot run here, so that its last verdict stays: %s", c.name(), c.LastReason)
		case c.Verdict != "down" && c.Failures > 0:
			return fmt.Sprintf("%s fails, attempt %d of %d: %s; the server is out at attempt %d%s", c.name(), c.Failures, c.Limit, c.LastReason, c.Limit, x.next(c))
		}
	}
	return ""
}

// back says what brings it back, which is the slowest of its checks; comes is what it
// does then.
func (x *Explanation) back(comes string) string {
	if x.Pool.Suspended {
		return "its checks are suspended since the address of the virtual server is not on this host (ha_suspend): " + comes + " after that is there and they pass"
	}
	var slow *Check
	more := 0
	for i := range x.Checks {
		c := &x.Checks[i]
		if c.Verdict == "up" {
			continue
		}
		more++
		if slow == nil || time.Duration(c.Missing)*c.Every > time.Duration(slow.Missing)*slow.Every {
			slow = c
		}
	}
	switch {
	case slow == nil:
		return ""
	case slow.Kind == "FILE_CHECK":
		return comes + " when " + slow.Target + " says so"
	}
	said := comes + " after "
	if slow.Missing <= 1 {
		said += "the next good check"
	} else {
		said += fmt.Sprintf("%d more good checks", slow.Missing)
	}
	if more > 1 {
		said += fmt.Sprintf(" of %s, and when the other %d pass too", slow.name(), more-1)
	}
	return said + x.next(slow)
}

// next says when a check runs.
func (x *Explanation) next(c *Check) string {
	switch {
	case c.Next.IsZero():
		return ""
	case !c.Next.After(x.At):
		return ", the next runs now"
	}
	return ", next in " + span(c.Next.Sub(x.At))
}

// maintenance says who took the weight away, and how it comes back.
func (x *Explanation) maintenance(rs *RealServer, since string) (first, then string) {
	first = "It takes no new connections" + since + ": " + rs.Reason
	i := slices.IndexFunc(x.Orders, func(o Override) bool { return o.Kind == VerbDrain })
	fault := slices.IndexFunc(rs.TrackFiles, func(f TrackFile) bool { return f.Fault || f.Contribution < 0 })
	switch {
	case i >= 0:
		then = "sluice undrain ends it"
		if u := x.Orders[i].Until; !u.IsZero() {
			then = fmt.Sprintf("it ends by itself in %s, or by sluice undrain", span(u.Sub(x.At)))
		}
	case slices.ContainsFunc(x.Orders, func(o Override) bool { return o.Kind == VerbWeight && o.Weight == 0 }):
		then = "sluice weight ... default gives it the configured weight back"
	case fault >= 0:
		f := &rs.TrackFiles[fault]
		then = fmt.Sprintf("it comes back when %s says so", cmp.Or(f.Path, "track_file "+f.Name))
	case slices.ContainsFunc(rs.Dynamic, func(d Dynamic) bool { return d.Weight == 0 }):
		then = "it comes back when its check asks for another weight"
	case rs.WeightConfigured == 0:
		then = "another weight in the configuration, or sluice weight, ends it"
	}
	if n := x.connections(); n != "" {
		then = strings.TrimPrefix(then+"; it still has "+n, "; ")
	}
	if bad := slices.IndexFunc(x.Checks, func(c Check) bool { return c.Verdict == "down" }); bad >= 0 {
		then += ", and only after its checks pass again"
	}
	return first, then
}

// held says what a server that a reload took away waits for.
func (x *Explanation) held() string {
	h := x.Pool.Hold
	switch {
	case h == nil:
		return ""
	case h.Over:
		return "it goes on since no configured server can serve; these are waited for: " + strings.Join(h.WaitsFor, ", ")
	}
	return fmt.Sprintf("it leaves when these have passed their checks, or in %s: %s", span(h.Until.Sub(x.At)), strings.Join(h.WaitsFor, ", "))
}

// stays says where a failed server is left in the table.
func (x *Explanation) stays() string {
	for _, s := range x.Services {
		d := &s.Destinations[0]
		switch {
		case d.Drain != nil:
			return "; it keeps its connections until they end (on_failure drain): " + d.Drain.WaitsFor
		case d.Kernel == 0 && x.RealServer.Inhibit:
			return "; it stays in the table with weight 0 (inhibit_on_failure)"
		}
	}
	return ""
}

// connections are what it still has.
func (x *Explanation) connections() string {
	var active, inactive uint64
	for _, s := range x.Services {
		active += uint64(s.Destinations[0].Active)
		inactive += uint64(s.Destinations[0].Inactive)
	}
	switch {
	case active+inactive == 0:
		return ""
	case inactive == 0:
		return fmt.Sprintf("%d active connections", active)
	}
	return fmt.Sprintf("%d active and %d inactive connections", active, inactive)
}

func (x *Explanation) sorry() string {
	if x.Pool.Sorry == nil {
		return ""
	}
	return x.Pool.Sorry.Address
}

// sayLeaving is for one that is no longer configured.
func (x *Explanation) sayLeaving() string {
	d := x.Services[0].Destinations[0].Drain
	s := fmt.Sprintf("It is on its way out for %s: %s, and takes no new connections. It is deleted after its last connection; it waits for %s", span(x.At.Sub(d.Since)), d.Why, d.WaitsFor)
	if !d.EndsBy.IsZero() && d.EndsBy.After(x.At) {
		s += fmt.Sprintf(", which the kernel forgets in at most %s", span(d.EndsBy.Sub(x.At)))
	}
	if !d.Deadline.IsZero() {
		s += fmt.Sprintf(", and at most until %s (drain_timeout)", d.Deadline.Format(time.DateTime))
	}
	return s + "."
}

// name is a check's kind and what it asks.
func (c *Check) name() string {
	if c.Target == "" {
		return c.Kind
	}
	return c.Kind + " " + c.Target
}

// lastFailure is the reason of the last run, or of the last that failed.
func (c *Check) lastFailure() string {
	for _, s := range slices.Backward(c.History) {
		if s.Result == "failed" {
			return s.Reason
		}
	}
	if c.Last == "failed" {
		return c.LastReason
	}
	return ""
}

// span is a duration for a sentence.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	}
	return fmt.Sprintf("%.1f days", d.Hours()/24)
}
