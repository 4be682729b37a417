package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// scriptUserLate tells whether script_user must be printed after all scripts:
// it is for those after it, and some stood before.
func scriptUserLate(c *Config) bool {
	if c.Global.ScriptUser == "" {
		return false
	}
	without := func(scripts ...*Script) bool {
		for _, s := range scripts {
			if s != nil && s.User == "" {
				return true
			}
		}
		return false
	}
	if without(c.Global.StartupScript, c.Global.ShutdownScript) {
		return true
	}
	for _, f := range c.Global.FIFOs {
		if f.User == "" || without(f.Script) {
			return true
		}
	}
	for _, vs := range c.VirtualServers {
		if without(vs.QuorumUp, vs.QuorumDown) {
			return true
		}
		for _, rs := range vs.RealServers {
			if without(rs.NotifyUp, rs.NotifyDown) {
				return true
			}
			for _, ck := range rs.Checkers {
				if ck.Misc != nil && without(ck.Misc.Script) {
					return true
				}
			}
		}
	}
	return false
}

func (p *printer) scriptUser(g *Global) {
	if g.ScriptUser != "" {
		p.line(strings.TrimSpace("script_user " + word(g.ScriptUser) + " " + g.ScriptGroup))
	}
}

// set prints a switch that is on; off is the default everywhere.
func (p *printer) set(keyword string, on bool) {
	if on {
		p.line(keyword, yesNo(on))
	}
}

// defaultScriptTimeout and defaultMailTimeout are left out where nothing uses them.
const (
	defaultScriptTimeout = 10 * time.Second
	defaultMailTimeout   = 30 * time.Second
)

func (p *printer) bounded(keyword string, s *Script, d time.Duration) {
	p.script(keyword, s)
	if s != nil || d != defaultScriptTimeout {
		p.whole(keyword+"_timeout", d)
	}
}

// whole prints whole seconds.
func (p *printer) whole(keyword string, d time.Duration) {
	if d != 0 {
		p.line(keyword, strconv.FormatInt(int64(d/time.Second), 10))
	}
}

func (p *printer) global(g *Global, late bool) {
	p.open("global_defs")
	p.text("router_id", g.RouterID)
	p.line("checker_log_all_failures", yesNo(g.CheckerLogAllFailures))
	p.line("rs_init_notifies", yesNo(g.RSInitNotifies))
	if t := g.LVSTimeouts; t.TCP|t.TCPFin|t.UDP != 0 {
		p.line("lvs_timeouts tcp", number(t.TCP), "tcpfin", number(t.TCPFin), "udp", number(t.UDP))
	}
	p.flag("lvs_flush", g.LVSFlush)
	switch g.LVSFlushOnStop {
	case "all":
		p.line("lvs_flush_on_stop")
	case "vs":
		p.line("lvs_flush_on_stop VS")
	}
	if !late {
		p.scriptUser(g)
	}
	p.flag("enable_script_security", g.EnableScriptSecurity)
	p.set("set_supplementary_groups", g.SupplementaryGroups)
	p.set("use_symlink_paths", g.UseSymlinkPaths)
	p.bounded("startup_script", g.StartupScript, g.StartupTimeout)
	p.bounded("shutdown_script", g.ShutdownScript, g.ShutdownTimeout)
	p.mail(&g.Mail)
	for i, f := range g.FIFOs {
		p.fifo([]string{"lvs_notify_fifo", "notify_fifo"}[min(i, 1)], &f)
	}
	p.sync(g.Sync)
	p.process(&g.Process)
	p.paths(&g.Paths)
	p.ext("drain_interval", timer(g.DrainInterval))
	p.ext("drain_timeout", timer(g.DrainTimeout))
	p.ext("on_stop", g.OnStop.String())
	// It is of no use without a drain.
	if g.OnStop == OnStopDrain || g.StopTimeout != DefaultStopTimeout {
		p.ext("stop_timeout", timer(g.StopTimeout))
	}
	p.ext("manage_sysctls", yesNo(g.ManageSysctls))
	p.ext("ipvs_conntrack", yesNo(g.Conntrack))
	p.ext("trust_new", yesNo(g.TrustNew))
	p.ext("departure_hold", timer(g.DepartureHold))
	p.drift(g)
	p.observation(g)
	p.threads(g)
	p.host(g)
	p.close()
	p.text("net_namespace", g.NetNamespace)
	if g.NetNamespaceIPVSSet {
		p.line("net_namespace_ipvs", word(g.NetNamespaceIPVS))
	}
	p.text("instance", g.Instance)
}

func (p *printer) mail(m *Mail) {
	if len(m.To) > 0 {
		p.open("notification_email")
		for _, to := range m.To {
			p.line(word(to))
		}
		p.close()
	}
	p.text("notification_email_from", m.From)
	if m.Server != "" {
		p.line("smtp_server", word(m.Server), number(m.Port))
	}
	p.text("smtp_helo_name", m.Helo)
	if m.Server != "" || m.Timeout != defaultMailTimeout {
		p.whole("smtp_connect_timeout", m.Timeout)
	}
	p.set("no_checker_emails", m.NoCheckerEmails)
}

func (p *printer) fifo(keyword string, f *FIFO) {
	line := []string{keyword, word(f.Path)}
	if f.User != "" {
		line = append(line, word(f.User))
		if f.Group != "" {
			line = append(line, word(f.Group))
		}
	}
	p.line(line...)
	p.script(keyword+"_script", f.Script)
}

func (p *printer) sync(s *SyncDaemon) {
	if s == nil {
		return
	}
	line := []string{"lvs_sync_daemon", word(s.Interface)}
	if s.Instance != "" {
		line = append(line, "inst", word(s.Instance))
	}
	line = append(line, "id", number(s.ID))
	if s.MaxLen != 0 {
		line = append(line, "maxlen", number(s.MaxLen))
	}
	if s.Port != 0 {
		line = append(line, "port", number(s.Port))
	}
	if s.TTL != 0 {
		line = append(line, "ttl", number(s.TTL))
	}
	if s.Group.IsValid() {
		line = append(line, "group", s.Group.String())
	}
	p.line(line...)
	if s.File != nil {
		p.ext("lvs_sync_state", "track_file", word(s.File.Name))
		return
	}
	p.ext("lvs_sync_state", s.State.String())
}

func (p *printer) process(c *Process) {
	p.text("checker_process_name", c.Name)
	if c.NiceSet {
		p.line("checker_priority", number(c.Nice))
	}
	p.flag("checker_no_swap", c.NoSwap)
	if c.RealTime != 0 {
		p.line("checker_rt_priority", number(c.RealTime))
	}
	if c.RealTimeLimit != 0 {
		p.line("checker_rlimit_rttime", strconv.FormatInt(int64(c.RealTimeLimit/time.Microsecond), 10))
	}
	if len(c.CPUs) > 0 {
		line := []string{"checker_cpu_affinity"}
		for _, n := range c.CPUs {
			line = append(line, number(n))
		}
		p.line(line...)
	}
	if c.UmaskSet {
		p.line("umask", fmt.Sprintf("%#04o", c.Umask))
	}
}

func (p *printer) paths(f *Paths) {
	p.text("reload_file", f.ReloadFile)
	p.text("reload_time_file", f.ReloadTimeFile)
	p.flag("reload_repeat", f.ReloadRepeat)
	p.text("state_dump_file", f.StateDump)
	p.set("data_use_instance", f.InstanceInNames)
	p.text("config_save_dir", f.SaveDir)
}
