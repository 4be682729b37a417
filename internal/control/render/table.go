package render

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-lb/sluice/internal/engine"
)

// columns of the table; the reason is last and as long as it is.
var columns = []string{"SERVER", "METHOD", "STATE", "WEIGHT", "ACTIVE", "INACTIVE", "SINCE", "REASON"}

// rightAligned are the columns of numbers.
var rightAligned = map[string]bool{"WEIGHT": true, "ACTIVE": true, "INACTIVE": true, "SINCE": true}

// row is a line of the table with the lines that wide output puts below it.
type row struct {
	cells [8]string
	// state colours the STATE cell, weight the WEIGHT cell.
	state, weight string
	below         []string
}

func (p *printer) virtualServer(vs *engine.VirtualServer, observe bool) {
	quorum := p.color(good, "quorum")
	if !vs.QuorumUp {
		quorum = p.color(bad, "NO QUORUM")
	}
	need := fmt.Sprint(vs.Quorum)
	if vs.Hysteresis > 0 {
		need += fmt.Sprintf(" (hysteresis %d)", vs.Hysteresis)
	}
	p.line("")
	p.line("%s %s  %s for %s: weight %d alive, %s needed", p.color(bold, called(vs.Name, vs.Label)), clean(vs.Scheduler),
		quorum, p.ago(vs.Since), vs.Alive, need)
	if vs.Suspended {
		p.line("  %s: its address is not on this host, nothing is checked (ha_suspend)", p.color(odd, "SUSPENDED"))
	}
	p.vip(vs.VIP)
	p.marked(vs.Marked)
	p.hold(vs.Hold)
	if vs.AtFloor {
		p.line("  %s for %s: real servers whose checks fail are kept in service, so that %d serve (min_alive)", p.color(bad, "AT ITS FLOOR"), p.ago(vs.FloorSince), vs.MinAlive)
	}
	names := make([]string, len(vs.Services))
	for i, svc := range vs.Services {
		names[i] = clean(svc.Name)
	}
	switch {
	case len(names) == 0:
		p.line("  no kernel service")
	case len(names) > 8 && !p.o.Wide:
		p.line("  %d kernel services: %s, ...", len(names), strings.Join(names[:8], ", "))
	default:
		p.line("  kernel: %s", strings.Join(names, ", "))
	}
	p.table(p.rows(vs))
	p.drift(vs.Services)
	if len(vs.RealServers) == 0 {
		p.line("  no real servers")
	}
}

// rows are the real servers, the sorry server, then whatever else the kernel's
// services hold.
func (p *printer) rows(vs *engine.VirtualServer) []row {
	claimed := map[*engine.Destination]bool{}
	var rows []row
	for i := range vs.RealServers {
		rs := &vs.RealServers[i]
		found := destinationsOf(vs.Services, rs.Address, rs.Method, claimed)
		r := p.row(rs.Address, found, rs.WeightWanted)
		r.cells[0], r.cells[1] = called(rs.Address, rs.Label), clean(rs.Method)
		r.cells[2], r.state = clean(string(rs.State)), stateColor[rs.State]
		r.cells[6], r.cells[7] = p.ago(rs.Since), clean(rs.Reason)+p.pace(rs)
		for _, f := range found {
			if f.dest.Drain != nil { // why is the state's reason
				r.cells[7] += "; " + p.waits(f.dest.Drain)
				break
			}
		}
		if p.o.Wide {
			r.below = append(p.checks(rs), p.services(found)...)
		}
		rows = append(rows, r)
	}
	if s := vs.Sorry; s != nil {
		rows = append(rows, p.sorry(s, destinationsOf(vs.Services, s.Address, "", claimed)))
	}
	return append(rows, p.others(vs.Services, claimed)...)
}

var stateColor = map[engine.State]string{
	engine.StateUp: good, engine.StateDown: bad, engine.StateUnverified: odd,
	engine.StateMaintenance: odd, engine.StateWithdrawn: odd, engine.StateHeld: odd,
	engine.StateKept: bad, engine.StateDamped: odd, engine.StatePassive: odd,
}

// pace says how long a server is still held back, or starts slowly.
func (p *printer) pace(rs *engine.RealServer) string {
	switch {
	case rs.HeldUntil.After(p.at):
		return ", for another " + compact(rs.HeldUntil.Sub(p.at))
	case rs.RisesUntil.After(p.at):
		return "; slow start, full weight in " + compact(rs.RisesUntil.Sub(p.at))
	}
	return ""
}

func (p *printer) sorry(s *engine.SorryServer, found []destination) row {
	r := p.row(s.Address, found, -1)
	r.cells[1], r.cells[2], r.cells[6] = "-", "sorry", "-"
	r.cells[7] = "sorry server, not needed"
	if s.Serving {
		r.cells[7], r.state = "sorry server, serves", bad
	}
	for _, f := range found {
		if f.dest.Drain != nil {
			r.cells[6], r.cells[7] = p.ago(f.dest.Drain.Since), "sorry server, "+p.drain(f.dest.Drain)
			break
		}
	}
	if p.o.Wide {
		r.below = p.services(found)
	}
	return r
}

// others are destinations that belong to no real server: they drain, or nobody
// wants them. Those of one address in several services make one row.
func (p *printer) others(services []engine.Service, claimed map[*engine.Destination]bool) []row {
	var order []string
	byAddr := map[string][]destination{}
	for i := range services {
		for j := range services[i].Destinations {
			d := &services[i].Destinations[j]
			if claimed[d] {
				continue
			}
			if byAddr[d.Address] == nil {
				order = append(order, d.Address)
			}
			byAddr[d.Address] = append(byAddr[d.Address], destination{services[i].Name, d})
		}
	}
	var rows []row
	for _, addr := range order {
		found := byAddr[addr]
		r := p.row(addr, found, -1)
		r.cells[1], r.cells[6] = "-", "-"
		r.cells[2], r.state, r.cells[7] = "foreign", odd, "in the kernel's table, but not wanted there"
		for _, f := range found {
			if d := f.dest.Drain; d != nil {
				r.cells[2], r.cells[6], r.cells[7] = "draining", p.ago(d.Since), p.drain(d)
				break
			}
		}
		if p.o.Wide {
			r.below = p.services(found)
		}
		rows = append(rows, r)
	}
	return rows
}

// drain says why a destination leaves, what it waits for, and until when.
func (p *printer) drain(d *engine.Drain) string { return clean(d.Why) + "; " + p.waits(d) }

func (p *printer) waits(d *engine.Drain) string {
	s := "drains"
	if d.WaitsFor != "" {
		s = "waits for " + clean(d.WaitsFor)
	}
	if d.Note != "" {
		s += ", " + clean(d.Note)
	}
	switch {
	case d.EndsBy.After(p.at) && (d.Deadline.IsZero() || d.EndsBy.Before(d.Deadline)):
		return s + ", which the kernel forgets in at most " + compact(d.EndsBy.Sub(p.at))
	case d.Deadline.IsZero():
		return s + ", without a time limit"
	case d.Deadline.After(p.at):
		return s + ", for at most " + compact(d.Deadline.Sub(p.at))
	}
	return s + ", its time is over"
}

// destination is a destination with the name of its service.
type destination struct {
	service string
	dest    *engine.Destination
}

// expected is the weight that a destination should have now: one that drains
// stays at 0 until it is deleted.
func expected(d *engine.Destination) int64 {
	if d.Drain != nil && d.Wanted < 0 {
		return 0
	}
	return d.Wanted
}

// destinationsOf finds a server in each service and claims what it finds. Only
// NAT translates the port; with every other method the destination has the
// service's. The sorry server's method is not known: both are tried.
func destinationsOf(services []engine.Service, addr, method string, claimed map[*engine.Destination]bool) []destination {
	var found []destination
	for i := range services {
		svc := &services[i]
		var d *engine.Destination
		if method != "NAT" {
			d = find(svc, withPort(addr, svc.Name))
		}
		if d == nil && (method == "NAT" || method == "") {
			d = find(svc, addr)
		}
		if d != nil {
			claimed[d] = true
			found = append(found, destination{svc.Name, d})
		}
	}
	return found
}

func find(svc *engine.Service, addr string) *engine.Destination {
	for i := range svc.Destinations {
		if svc.Destinations[i].Address == addr {
			return &svc.Destinations[i]
		}
	}
	return nil
}

// withPort replaces an address's port by that of a service, which is 0 for a mark.
func withPort(addr, service string) string {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		return addr
	}
	name, _, _ := strings.Cut(service, "/")
	svc, _ := netip.ParseAddrPort(name) // "fwmark 5" leaves it zero
	return netip.AddrPortFrom(a.Addr(), svc.Port()).String()
}

// row fills what the kernel's side tells: the address, the weight as wanted, with
// the kernel's behind it where that differs, and the sums of the connections.
// wanted counts for a server that no service holds.
func (p *printer) row(addr string, found []destination, wanted int64) row {
	var r row
	r.cells[0] = clean(addr)
	var active, inactive uint64
	kernel, same := int64(-1), true
	for i, f := range found {
		active += uint64(f.dest.Active)
		inactive += uint64(f.dest.Inactive)
		if i == 0 {
			kernel, wanted = f.dest.Kernel, expected(f.dest)
		}
		same = same && f.dest.Kernel == expected(f.dest)
	}
	switch {
	case len(found) == 0 && wanted < 0, len(found) > 0 && same:
		r.cells[3] = weight(wanted)
	case len(found) == 0:
		r.cells[3], r.weight = weight(wanted)+"/-*", bad
	default:
		r.cells[3], r.weight = weight(wanted)+"/"+kernels(found, kernel)+"*", bad
	}
	r.cells[4], r.cells[5] = "-", "-"
	if len(found) > 0 {
		r.cells[4], r.cells[5] = strconv.FormatUint(active, 10), strconv.FormatUint(inactive, 10)
	}
	return r
}

// kernels is the kernel's weight, or "mixed" where the services have several.
func kernels(found []destination, first int64) string {
	for _, f := range found {
		if f.dest.Kernel != first {
			return "mixed"
		}
	}
	return weight(first)
}

func weight(w int64) string {
	if w < 0 {
		return "-"
	}
	return strconv.FormatInt(w, 10)
}

// checks are the wide lines of what moves a real server.
func (p *printer) checks(rs *engine.RealServer) []string {
	var lines []string
	for _, c := range rs.Checkers {
		s := clean(c.Kind)
		if c.Target != "" && c.Target != rs.Address {
			s += " " + clean(c.Target)
		}
		s += ": " + clean(c.Verdict)
		if c.Last != "" && !c.LastAt.IsZero() {
			s += fmt.Sprintf("; last %s %s ago in %s", clean(c.Last), p.ago(c.LastAt), took(c.Took))
		}
		switch {
		case c.Next.IsZero():
		case c.Next.After(p.at):
			s += ", next in " + compact(c.Next.Sub(p.at))
		default:
			s += ", runs now"
		}
		if c.Failures > 0 {
			s += fmt.Sprintf(", failure %d of %d", c.Failures, c.Limit)
		}
		if c.LastReason != "" {
			s += ": " + clean(c.LastReason)
		}
		lines = append(lines, s)
	}
	for _, f := range rs.TrackFiles {
		s := fmt.Sprintf("track_file %s (%s): %d", clean(f.Name), clean(f.Path), f.Value)
		if f.Fault {
			s += ", a fault"
		} else {
			s += fmt.Sprintf(", adds %d to the weight", f.Contribution)
		}
		lines = append(lines, s)
	}
	for _, d := range rs.Dynamic {
		lines = append(lines, fmt.Sprintf("%s asks for weight %d", clean(d.Checker), d.Weight))
	}
	return lines
}

// took is a probe's duration with three digits' worth of precision.
func took(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// services are the wide lines of the kernel services behind one row, if there
// are several.
func (p *printer) services(found []destination) []string {
	if len(found) < 2 {
		return nil
	}
	var lines []string
	for _, f := range found {
		s := fmt.Sprintf("in %s: weight %s, %d active, %d inactive", clean(f.service), weight(f.dest.Kernel), f.dest.Active, f.dest.Inactive)
		if want := expected(f.dest); f.dest.Kernel != want {
			s += ", wanted " + weight(want)
		}
		lines = append(lines, s)
	}
	return lines
}

// leaving are services that are no longer configured.
func (p *printer) leaving(services []engine.Service) {
	for i := range services {
		p.line("")
		p.line("%s  %s", p.color(bold, clean(services[i].Name)), p.color(odd, "leaving: no longer configured, deleted after its last destination"))
		p.table(p.others(services[i:i+1], nil))
		p.drift(services[i : i+1])
	}
}

// table writes rows under a header, aligned. Colours come after the padding, so
// that they do not count as width.
func (p *printer) table(rows []row) {
	if len(rows) == 0 {
		return
	}
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = len(c)
		for _, r := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r.cells[i]))
		}
	}
	write := func(cells []string, colors map[int]string) {
		var b strings.Builder
		for i, c := range cells {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			c = p.color(colors[i], c)
			switch {
			case i == len(cells)-1:
				pad = ""
				fallthrough
			case !rightAligned[columns[i]]:
				b.WriteString("  " + c + pad)
			default:
				b.WriteString("  " + pad + c)
			}
		}
		p.line("%s", strings.TrimRight(b.String(), " "))
	}
	header := make(map[int]string, len(columns))
	for i := range columns {
		header[i] = faint
	}
	write(columns, header)
	for _, r := range rows {
		write(r.cells[:], map[int]string{2: r.state, 3: r.weight})
		for _, below := range r.below {
			p.line("      %s", p.color(faint, below))
		}
	}
}
