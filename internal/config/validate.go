package config

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Validate tells whether a configuration is one that the rest of the daemon may
// rely on; the error joins everything that is wrong. What an operator got wrong
// was reported, and corrected or dropped, before (config/keyword): an error here
// is a mistake of the program that made the configuration.
func Validate(c *Config) error {
	var v validator
	v.need(c.Global.OnStop != OnStopDrain || c.Global.StopTimeout > 0, "stop_timeout %v is not above 0", c.Global.StopTimeout)
	v.need(c.Global.DrainInterval > 0, "drain_interval %v is not above 0", c.Global.DrainInterval)
	v.need(c.Global.DrainTimeout >= 0, "drain_timeout %v is negative", c.Global.DrainTimeout)
	v.need(c.Global.DepartureHold >= 0, "departure_hold %v is negative", c.Global.DepartureHold)
	v.need(c.Global.UDPDrainTimeout >= 0, "udp_drain_timeout %v is negative", c.Global.UDPDrainTimeout)
	v.need(c.Global.ReconcileInterval >= 0, "reconcile_interval %v is negative", c.Global.ReconcileInterval)
	v.need(c.Global.HTTPListen == netip.AddrPort{} || c.Global.HTTPListen.IsValid() && c.Global.HTTPListen.Port() != 0, "http_listen %v without address or port", c.Global.HTTPListen)
	v.need(c.Global.HTTPAdmin == "" || c.Global.HTTPAdmin[0] == '/', "http_admin %q is no path from /", c.Global.HTTPAdmin)
	v.need(c.Global.WithdrawDelay >= 0, "withdraw_delay %v is negative", c.Global.WithdrawDelay)
	v.global(&c.Global)
	files := map[string]bool{}
	for _, t := range c.TrackFiles {
		v.need(t.Name != "" && t.Path != "", "track file %q at %q", t.Name, t.Path)
		v.need(!files[t.Name], "track file %s twice", t.Name)
		files[t.Name] = true
	}
	v.host(&c.Global, files)
	seen := map[VSKey]bool{}
	for _, vs := range c.VirtualServers {
		v.in = vs.Key.String() + ": "
		v.need(!seen[vs.Key], "twice")
		seen[vs.Key] = true
		v.virtual(vs, files)
		v.in = ""
	}
	return errors.Join(v.errs...)
}

type validator struct {
	in   string
	errs []error
}

func (v *validator) need(ok bool, format string, args ...any) {
	if !ok {
		v.fail(format, args...)
	}
}

// fail is need for what is asked 30,000 times, where the arguments alone would cost
// more than the question.
func (v *validator) fail(format string, args ...any) {
	v.errs = append(v.errs, errors.New(v.in+fmt.Sprintf(format, args...)))
}

func (v *validator) global(g *Global) {
	v.need(g.StartupScript == nil || g.StartupTimeout > 0, "startup_script without timeout")
	v.need(g.ShutdownScript == nil || g.ShutdownTimeout > 0, "shutdown_script without timeout")
	v.need(g.Mail.Server == "" || (g.Mail.Port != 0 && g.Mail.Timeout > 0), "smtp_server %s without port or timeout", g.Mail.Server)
	paths := map[string]bool{}
	for _, f := range g.FIFOs {
		v.need(f.Path != "" && !paths[f.Path], "FIFO at %q", f.Path)
		paths[f.Path] = true
	}
	v.need(len(g.FIFOs) <= 2, "%d FIFOs", len(g.FIFOs))
	if s := g.Sync; s != nil {
		v.need(s.Interface != "", "lvs_sync_daemon without interface")
		v.need(!s.Group.IsValid() || s.Group.IsMulticast(), "lvs_sync_daemon group %s", s.Group)
	}
	v.need(g.Process.RealTime >= 0 && g.Process.RealTime <= 99, "real-time priority %d", g.Process.RealTime)
	v.need(g.CheckerThreads >= 0 && g.CheckerThreads <= MaxCheckerThreads, "checker_threads %d", g.CheckerThreads)
	v.need(g.Process.Nice >= -20 && g.Process.Nice <= 19, "priority %d", g.Process.Nice)
}

func (v *validator) virtual(vs *VirtualServer, files map[string]bool) {
	v.need(vs.Scheduler != "", "no scheduler")
	v.need(len(vs.Entries) > 0, "no service")
	v.need(vs.Key.Group != "" || len(vs.Entries) == 1, "%d services without a group", len(vs.Entries))
	for _, e := range vs.Entries {
		v.need(e.Family != FamilyUnknown, "entry %v without family", e)
		v.need(e.Addr.IsValid() != (e.FWMark != 0), "entry %v is not one of address and mark", e)
		v.need(!e.Addr.IsValid() || vs.Protocol != None, "an address without protocol")
		v.need(e.Addr.Port() != 0 || e.FWMark != 0 || vs.Persistence != 0, "every port without persistence")
	}
	v.need(vs.Granularity == 0 || vs.Persistence != 0, "granularity without persistence")
	v.need(vs.Quorum >= 1, "quorum 0")
	v.need(vs.Hysteresis < max(vs.Quorum, 1), "hysteresis %d with quorum %d", vs.Hysteresis, vs.Quorum)
	v.need(len(vs.RealServers) > 0, "no real server")
	v.need(vs.Label == "" || BadLabel(vs.Label) == "", "label %q", vs.Label)
	v.need(vs.DrainTimeout >= 0, "drain_timeout %v is negative", vs.DrainTimeout)
	v.need(vs.UDPDrainTimeout >= 0, "udp_drain_timeout %v is negative", vs.UDPDrainTimeout)
	v.need(vs.MinAlive.Percent <= 100 && (vs.MinAlive.Percent == 0 || vs.MinAlive.Servers == 0), "min_alive %+v", vs.MinAlive)
	v.need(vs.FlapDamping.Count == 0 || vs.FlapDamping.Within > 0, "flap_damping %+v", vs.FlapDamping)
	v.vip(vs)
	families := map[Family]bool{}
	for _, e := range vs.Entries {
		families[e.Family] = true
	}
	alien := func(k RSKey) bool { return len(families) > 1 || len(families) == 1 && !families[FamilyOf(k.Addr())] }
	if s := vs.Sorry; s != nil {
		v.server(vs, "sorry server", s.Key, s.Forward, alien)
	}
	seen := make(map[RSKey]struct{}, len(vs.RealServers))
	var total uint64
	for _, rs := range vs.RealServers {
		if _, again := seen[rs.Key]; again {
			v.fail("real server %s twice", rs.Key)
		}
		seen[rs.Key] = struct{}{}
		v.server(vs, "real server", rs.Key, rs.Forward, alien)
		if rs.Label != "" && BadLabel(rs.Label) != "" {
			v.fail("real server %s: label %q", rs.Key, rs.Label)
		}
		if rs.SlowStart < 0 {
			v.fail("real server %s: slow_start %v is negative", rs.Key, rs.SlowStart)
		}
		if rs.Weight < 0 || rs.Weight > 1<<31-1 {
			v.fail("real server %s: weight %d", rs.Key, rs.Weight)
		}
		if rs.DrainTimeout < 0 {
			v.fail("real server %s: drain_timeout %v is negative", rs.Key, rs.DrainTimeout)
		}
		total += uint64(max(rs.Weight, 0))
		for _, u := range rs.TrackFiles {
			if !files[u.Name] {
				v.fail("real server %s: no track file %q", rs.Key, u.Name)
			}
		}
		for _, c := range rs.Checkers {
			v.checker(rs, c, files)
		}
	}
	v.need(uint64(vs.Quorum) <= max(total, 1), "quorum %d above the weights' sum %d", vs.Quorum, total)
}

func (v *validator) server(vs *VirtualServer, what string, k RSKey, f Forwarding, alien func(RSKey) bool) {
	if !k.Addr().IsValid() {
		v.fail("%s without address", what)
	}
	if f.Method == MethodUnset {
		v.fail("%s %s without method", what, k)
	}
	if f.Tunnel != IPIP && f.Method != TUN {
		v.fail("%s %s: a tunnel without TUN", what, k)
	}
	if (f.Tunnel == GUE) != (f.Port != 0) {
		v.fail("%s %s: tunnel port %d", what, k, f.Port)
	}
	if f.Method == TUN {
		return
	}
	if alien(k) {
		v.fail("%s %s in a service of the other family without TUN", what, k)
		return
	}
	if f.Method == DR && vs.Key.Addr != (netip.AddrPort{}) && k.Port() != vs.Key.Addr.Port() {
		v.fail("%s %s: port differs with DR", what, k)
	}
}

func (v *validator) checker(rs *RealServer, c *Checker, files map[string]bool) {
	if c.Rise < 1 {
		v.fail("real server %s: %s: rise 0", rs.Key, c.Kind)
	}
	if c.Kind == FileCheck {
		if c.File == nil || !files[c.File.Name] {
			v.fail("real server %s: FILE_CHECK without track file", rs.Key)
		}
		return
	}
	if m := c.Misc; c.Kind == MiscCheck {
		if m == nil || m.Script == nil || len(m.Script.Argv) == 0 {
			v.fail("real server %s: MISC_CHECK without script", rs.Key)
		}
		if m != nil && m.Timeout <= 0 {
			v.fail("real server %s: MISC_CHECK without timeout", rs.Key)
		}
	} else {
		if t := c.Conn.Target; !t.Addr().IsValid() || t.Port() == 0 && c.Kind != PingCheck {
			v.fail("real server %s: %s: target %s", rs.Key, c.Kind, t)
		}
		if via := c.Conn.Via; via != nil {
			v.via(rs, c, via)
		}
		if c.Conn.Timeout <= 0 {
			v.fail("real server %s: %s: timeout %v", rs.Key, c.Kind, c.Conn.Timeout)
		}
	}
	if c.DelayLoop < time.Microsecond {
		v.fail("real server %s: %s: delay_loop %v", rs.Key, c.Kind, c.DelayLoop)
	}
	if c.DelayBeforeRetry < 0 || c.Warmup < 0 {
		v.fail("real server %s: %s: a negative delay", rs.Key, c.Kind)
	}
	switch c.Kind {
	case HTTPGet, SSLGet:
		if c.HTTP == nil || len(c.HTTP.URLs) == 0 {
			v.fail("real server %s: %s without url", rs.Key, c.Kind)
		}
	case SMTPCheck:
		if c.SMTP == nil || c.SMTP.Helo == "" {
			v.fail("real server %s: SMTP_CHECK without name", rs.Key)
		}
	case DNSCheck:
		if c.DNS == nil || c.DNS.Type == "" {
			v.fail("real server %s: DNS_CHECK without type", rs.Key)
		}
	case UDPCheck:
		u := c.UDP
		if u == nil || len(u.Reply) != len(u.Mask) || !u.Require && u.Reply != nil {
			v.fail("real server %s: UDP_CHECK %+v", rs.Key, u)
		}
	case TCPCheck, PingCheck, MiscCheck:
	default:
		v.fail("real server %s: a check of kind %s", rs.Key, c.Kind)
	}
}
