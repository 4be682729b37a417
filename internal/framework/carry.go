package framework

import (
	"fmt"
	"strconv"

	"github.com/sluice-lb/sluice/internal/config"
)

// Trust says whether a real server may serve before its first check.
type Trust func(*config.RealServer) bool

// Values returns the present value of a track file by name; 0 for one that has
// none.
type Values func(name string) int64

// New returns the state of a virtual server that has not been known before, with
// its quorum evaluated from "down" as keepalived does at start. Rules for files
// must be resolved already: a use names its own weight.
func New(cfg *config.VirtualServer, trust Trust, values Values, orders ...Orders) (*VirtualServer, QuorumEvent) {
	vs := &VirtualServer{Config: cfg, Servers: newServers(cfg)}
	for _, rs := range vs.Servers {
		rs.order(orders)
		rs.Trusted = trust(rs.Config)
		rs.cold = true
		rs.fill(values)
	}
	vs.recompute()
	return vs, vs.evaluate()
}

// newServers makes all real servers of a virtual server at once: that is a few
// pieces of memory and not several for each.
func newServers(cfg *config.VirtualServer) []*RealServer {
	checkers := 0
	for _, rc := range cfg.RealServers {
		checkers += len(rc.Checkers)
	}
	all, verdicts := make([]RealServer, len(cfg.RealServers)), make([]Verdict, checkers)
	servers := make([]*RealServer, len(all))
	for i, rc := range cfg.RealServers {
		n := len(rc.Checkers)
		all[i].Config, all[i].Checkers = rc, verdicts[:n:n]
		servers[i], verdicts = &all[i], verdicts[n:]
	}
	return servers
}

// fill sets the file values, and with them the verdicts of file checkers, which
// need no probe.
func (rs *RealServer) fill(values Values) {
	var files []FileValue
	for _, u := range rs.Config.TrackFiles {
		files = append(files, FileValue{Name: u.Name, Weight: u.Weight, Reverse: u.Reverse, Checker: -1})
	}
	for i, c := range rs.Config.Checkers {
		if c.Kind == config.FileCheck && c.File != nil {
			files = append(files, FileValue{Name: c.File.Name, Weight: c.File.Weight, Reverse: c.File.Reverse, Checker: i})
		}
	}
	if len(files) == 0 {
		return
	}
	rs.rest().files = files
	for i := range files {
		rs.setFile(i, values(files[i].Name))
	}
}

// Next returns the state under a new configuration of the same virtual server:
// real servers are matched by key and checkers by their whole definition, and
// what matches keeps its state. It never mutates old.
//
// The rules for what does not match (design, section 5; cases R02, R03, R10):
//   - a new checker on a live server is trusted: it stays up until it fails;
//   - a new checker on a server that is down must pass before the server is back;
//   - failures of checkers that are gone vanish with them;
//   - a new server is trusted as trust says;
//   - a failed server that the floor keeps is not trusted, but it is not let go
//     either before others can take its place.
//
// The new state is at the old one's time: Advance old first.
func Next(old *VirtualServer, cfg *config.VirtualServer, trust Trust, values Values, orders ...Orders) (*VirtualServer, QuorumEvent) {
	byKey := make(map[config.RSKey]*RealServer, len(old.Servers))
	for _, rs := range old.Servers {
		byKey[rs.Config.Key] = rs
	}
	vs := &VirtualServer{Config: cfg, Servers: newServers(cfg), quorumUp: old.quorumUp, now: old.now, failures: old.failures}
	for i, rc := range cfg.RealServers {
		rs := vs.Servers[i]
		rs.order(orders)
		if was, ok := byKey[rc.Key]; ok {
			rs.Trusted = was.alive && !was.kept
			rs.standing, rs.passing, rs.failing, rs.failedAs = was.standing, was.passing, was.failing, was.failedAs
			rs.cold = was.cold
			if m := was.more; m != nil && (m.flaps.any() || !m.rises.IsZero()) {
				rs.rest().flaps, rs.rest().rises = m.flaps, m.rises
			}
			asked := was.Dynamic()
			if asked != nil {
				rs.rest().dynamic = make([]Dynamic, len(rc.Checkers))
			}
			match := MatchCheckers(was.Config.Checkers, rc.Checkers)
			for i, j := range match {
				if j < 0 {
					continue
				}
				rs.Checkers[i] = was.Checkers[j]
				if asked != nil {
					rs.more.dynamic[i] = asked[j]
				}
			}
		} else {
			rs.Trusted = trust(rc)
		}
		rs.fill(values)
	}
	vs.recompute()
	return vs, vs.evaluate()
}

// MatchCheckers pairs each fresh checker with the first unused old one that asks the
// same: the result has, for each fresh index, the old index or -1.
func MatchCheckers(old, fresh []*config.Checker) []int {
	match := make([]int, len(fresh))
	used := make([]bool, len(old))
	for i, c := range fresh {
		match[i] = -1
		for j, o := range old {
			if !used[j] && o.AsksSame(c) {
				match[i], used[j] = j, true
				break
			}
		}
	}
	return match
}

// Definition returns a text that is equal for two checkers exactly when
// config.Checker.AsksSame finds them the same. It names a check in the state file, so that
// another text means that verdicts of an earlier version are not found.
func Definition(c *config.Checker) string {
	b := make([]byte, 0, 160)
	b = strconv.AppendInt(b, int64(c.Kind), 10)
	b = append(b, "|{Target:"...)
	b = append(b, c.Conn.Target.String()...)
	b = append(b, " BindAddr:"...)
	b = append(b, c.Conn.BindAddr.String()...)
	b = append(b, " BindPort:"...)
	b = strconv.AppendUint(b, uint64(c.Conn.BindPort), 10)
	b = append(b, " BindIf:"...)
	b = append(b, c.Conn.BindIf...)
	b = append(b, " FWMark:"...)
	b = strconv.AppendUint(b, uint64(c.Conn.FWMark), 10)
	b = append(b, " Timeout:"...)
	b = append(b, c.Conn.Timeout.String()...)
	b = append(b, '}')
	if c.Conn.Close != config.CloseNormal {
		b = append(append(b, "|close="...), c.Conn.Close.String()...)
	}
	if c.File != nil {
		b = append(append(b, "|file="...), c.File.Name...)
	}
	switch {
	case c.SMTP != nil:
		b = strconv.AppendQuote(append(b, '|'), c.SMTP.Helo)
	case c.DNS != nil:
		b = fmt.Appendf(b, "|%s %q", c.DNS.Type, c.DNS.Name)
	case c.UDP != nil:
		u := c.UDP
		b = fmt.Appendf(b, "|%t %x|%t %x %x %d-%d", u.Payload != nil, u.Payload, u.Require, u.Reply, u.Mask, u.Min, u.Max)
	case c.Misc != nil:
		m := c.Misc
		b = fmt.Appendf(b, "|%q %q %q|%v %t", m.Script.Argv, m.Script.User, m.Script.Group, m.Timeout, m.Dynamic)
	}
	if h := c.HTTP; h != nil {
		b = fmt.Appendf(b, "|%d|%q|%t|%q|%q|%t", h.Protocol, h.VirtualHost, h.SNI, h.SNIName, h.SNIVirtualHost, h.TLSCompliant)
		for _, u := range h.URLs {
			b = fmt.Appendf(b, "|url %q %q %v %t %x %t", u.Path, u.VirtualHost, u.Status, u.HasDigest, u.Digest, u.TLSCompliant)
			if r := u.Regex; r != nil {
				b = fmt.Appendf(b, " regex %q %t %q %d %d %t", r.Pattern, r.NoMatch, r.Options, r.MinOffset, r.MaxOffset, r.HasMax)
			}
		}
	}
	return string(b)
}
