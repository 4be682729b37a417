package keyword_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/keyword"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// TestPrintedConfigurationsReadTheSame is the round trip over random models:
// whatever the model can hold, the language can say.
func TestPrintedConfigurationsReadTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		if err := config.Validate(cfg); err != nil {
			t.Fatalf("the generator made an invalid configuration: %v", err)
		}
		again(t, cfg)
		marked(t, cfg)
	})
}

type draw = *rapid.T

func drawBool(t draw, what string) bool { return rapid.Bool().Draw(t, what) }

func drawTime(t draw, what string, lo, hi time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(int64(lo/time.Microsecond), int64(hi/time.Microsecond)).Draw(t, what)) * time.Microsecond
}

// drawText is a word that the ordinary token rules can carry, or nothing.
func drawText(t draw, what string) string {
	return rapid.StringMatching(`([a-zA-Z0-9/._ {}#!'-]{0,12}[a-z])?`).Draw(t, what)
}

// drawLabel makes a label, or none.
func drawLabel(t draw) string {
	return rapid.String().Filter(func(s string) bool { return s == "" || config.BadLabel(s) == "" }).Draw(t, "label")
}

func drawAddr(t draw, v6 bool, what string) netip.Addr {
	n := rapid.IntRange(1, 250).Draw(t, what)
	if v6 {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", n))
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})
}

func drawPort(t draw, lo uint16, what string) uint16 {
	return rapid.Uint16Range(lo, 65535).Draw(t, what)
}

func drawScript(t draw, what string) *config.Script {
	if !drawBool(t, what) {
		return nil
	}
	s := &config.Script{
		Argv: rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("ab/ '\"\\#!${}@~é;\t")), 0, 6, -1), 0, 3).Draw(t, "argv"),
		User: rapid.SampledFrom([]string{"", "svc"}).Draw(t, "user"),
	}
	s.Argv = append([]string{"/bin/x" + drawText(t, "command")}, s.Argv...)
	if s.User != "" && drawBool(t, "has group") {
		s.Group = "adm"
	}
	return s
}

func drawForward(t draw, method config.Method) config.Forwarding {
	f := config.Forwarding{Method: method}
	if method != config.TUN {
		return f
	}
	switch f.Tunnel = rapid.SampledFrom([]config.Tunnel{config.IPIP, config.GUE, config.GRE}).Draw(t, "tunnel"); f.Tunnel {
	case config.GUE:
		f.Port = drawPort(t, 1, "tunnel port")
		f.Checksum = rapid.SampledFrom([]config.Checksum{config.NoCsum, config.Csum, config.RemCsum}).Draw(t, "checksum")
	case config.GRE:
		f.Checksum = rapid.SampledFrom([]config.Checksum{config.NoCsum, config.Csum}).Draw(t, "checksum")
	}
	return f
}

func drawConfig(t draw) *config.Config {
	c := &config.Config{}
	g := &c.Global
	g.RouterID, g.Instance, g.NetNamespace = drawText(t, "router"), drawText(t, "instance"), drawText(t, "netns")
	g.NetNamespaceIPVSSet = drawBool(t, "ipvs ns")
	if g.NetNamespaceIPVSSet {
		g.NetNamespaceIPVS = drawText(t, "ipvs netns")
	}
	g.CheckerLogAllFailures, g.RSInitNotifies, g.LVSFlush = drawBool(t, "log"), drawBool(t, "init"), drawBool(t, "flush")
	g.LVSFlushOnStop = rapid.SampledFrom([]string{"", "all", "vs"}).Draw(t, "flush on stop")
	g.LVSTimeouts.TCP, g.LVSTimeouts.UDP = rapid.Uint32Range(0, 2678400).Draw(t, "tcp"), rapid.Uint32Range(0, 9).Draw(t, "udp")
	g.EnableScriptSecurity = drawBool(t, "security")
	g.DrainInterval = drawTime(t, "drain interval", time.Millisecond, time.Hour)
	g.DrainTimeout = drawTime(t, "drain timeout", 0, time.Hour)
	g.OnStop = rapid.SampledFrom([]config.OnStop{config.OnStopRemove, config.OnStopKeep, config.OnStopDrain}).Draw(t, "on stop")
	g.StopTimeout = drawTime(t, "stop timeout", time.Millisecond, time.Hour)
	g.ManageSysctls, g.Conntrack, g.TrustNew = drawBool(t, "sysctls"), drawBool(t, "conntrack"), drawBool(t, "trust")
	g.ShareChecks = drawBool(t, "share")
	g.UDPDrainTimeout = rapid.SampledFrom([]time.Duration{config.DefaultUDPDrainTimeout, 0, time.Minute}).Draw(t, "udp drain")
	g.ReconcileInterval = rapid.SampledFrom([]time.Duration{config.DefaultReconcileInterval, 0, 2 * time.Second}).Draw(t, "reconcile")
	g.Drift = rapid.SampledFrom([]config.Drift{config.DriftRepair, config.DriftReport}).Draw(t, "drift")
	g.HTTPListen = rapid.SampledFrom([]netip.AddrPort{{}, netip.MustParseAddrPort("127.0.0.1:9999"), netip.MustParseAddrPort("[::]:80")}).Draw(t, "http_listen")
	g.MetricsDetail = rapid.SampledFrom([]config.MetricsDetail{config.MetricsService, config.MetricsServer}).Draw(t, "metrics_detail")
	g.ControlGroup.Name = rapid.SampledFrom([]string{"", "adm", "4"}).Draw(t, "control_group")
	g.ControlReadGroup.Name = rapid.SampledFrom([]string{"", "nogroup"}).Draw(t, "control_read_group")
	g.HTTPAdmin = rapid.SampledFrom([]string{"", "/etc/sluice/token", "/etc/a b"}).Draw(t, "http_admin")
	g.WithdrawDelay = drawTime(t, "withdraw delay", 0, time.Hour)
	g.CheckerThreads = rapid.SampledFrom([]int{config.DefaultCheckerThreads, 2, config.MaxCheckerThreads}).Draw(t, "threads")
	drawDaemon(t, g)
	if drawBool(t, "ssl") {
		c.SSL = &config.SSL{Certificate: drawText(t, "certificate"), Key: drawText(t, "key"), Password: drawText(t, "password"), CA: drawText(t, "ca")}
	}
	names := rapid.SampledFrom([]int{0, 1, 2}).Draw(t, "track files")
	drawHost(t, g, names)
	ordinal := 0
	for i := range rapid.IntRange(1, 4).Draw(t, "virtual servers") {
		vs := drawVirtual(t, g, i, &ordinal, names)
		c.VirtualServers = append(c.VirtualServers, vs)
	}
	for i := range names {
		f := &config.TrackFile{Name: trackName(i), Path: "/" + drawText(t, "path"), Weight: rapid.Int64Range(-254, 254).Draw(t, "weight"), Reverse: drawBool(t, "reverse"), InitSet: drawBool(t, "init")}
		if f.InitSet {
			f.Init, f.InitOverwrite = rapid.Int64Range(-1<<31, 1<<31-1).Draw(t, "value"), drawBool(t, "overwrite")
		}
		if uses(c, f.Name) {
			c.TrackFiles = append(c.TrackFiles, f)
		}
	}
	return c
}

// drawDaemon draws what global_defs says of the daemon itself.
func drawDaemon(t draw, g *config.Global) {
	g.SupplementaryGroups, g.UseSymlinkPaths = drawBool(t, "groups"), drawBool(t, "symlinks")
	if drawBool(t, "script_user") {
		g.ScriptUser, g.ScriptGroup = "svc", rapid.SampledFrom([]string{"", "adm"}).Draw(t, "script group")
	}
	seconds := func(what string, hi int) time.Duration {
		return time.Duration(rapid.IntRange(1, hi).Draw(t, what)) * time.Second
	}
	g.StartupScript, g.ShutdownScript = drawScript(t, "startup"), drawScript(t, "shutdown")
	g.StartupTimeout, g.ShutdownTimeout = seconds("startup timeout", 1000), seconds("shutdown timeout", 1000)
	m := &g.Mail
	for range rapid.IntRange(0, 3).Draw(t, "recipients") {
		m.To = append(m.To, rapid.StringMatching(`(@|~)?([A-Za-z .!#]{0,9}<)?[a-z]{1,5}@[a-z.]{1,9}>?`).Draw(t, "to"))
	}
	m.From, m.Helo, m.Timeout, m.NoCheckerEmails = drawText(t, "from"), drawText(t, "helo"), seconds("mail timeout", 4294), drawBool(t, "no checker emails")
	if drawBool(t, "server") {
		m.Server, m.Port = rapid.SampledFrom([]string{"192.0.2.1", "2001:db8::1", "mail-1.example.com"}).Draw(t, "host"), drawPort(t, 1, "port")
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "FIFOs") {
		f := config.FIFO{Path: fmt.Sprintf("/run/%d%s", i, drawText(t, "fifo")), Script: drawScript(t, "fifo script")}
		if f.User = rapid.SampledFrom([]string{"", "svc"}).Draw(t, "fifo user"); f.User != "" {
			f.Group = rapid.SampledFrom([]string{"", "adm"}).Draw(t, "fifo group")
		}
		g.FIFOs = append(g.FIFOs, f)
	}
	g.Paths = config.Paths{
		ReloadFile: drawText(t, "reload file"), ReloadTimeFile: drawText(t, "time file"), ReloadRepeat: drawBool(t, "repeat"),
		StateDump: drawText(t, "dump"), InstanceInNames: drawBool(t, "in names"), SaveDir: drawText(t, "save"),
	}
	if drawBool(t, "sync") {
		g.Sync = &config.SyncDaemon{
			Interface: rapid.SampledFrom([]string{"eth0", "bond0.100", "a b"}).Draw(t, "interface"),
			Instance:  rapid.SampledFrom([]string{"", "VI_1", "id", "V 1"}).Draw(t, "instance"),
			ID:        rapid.Uint8().Draw(t, "id"), MaxLen: rapid.Uint16Range(0, 65507).Draw(t, "maxlen"), Port: drawPort(t, 0, "sync port"), TTL: rapid.Uint8().Draw(t, "ttl"),
			State: rapid.SampledFrom([]config.SyncState{config.SyncOff, config.SyncMaster, config.SyncBackup, config.SyncBoth}).Draw(t, "state"),
			Group: rapid.SampledFrom([]netip.Addr{{}, netip.MustParseAddr("224.0.0.81"), netip.MustParseAddr("ff02::81")}).Draw(t, "multicast"),
		}
	}
	p := &g.Process
	p.Name = rapid.StringMatching(`[a-z #]{0,14}[a-z]?`).Draw(t, "name")
	if p.NiceSet = drawBool(t, "nice"); p.NiceSet {
		p.Nice = rapid.IntRange(-20, 19).Draw(t, "priority")
	}
	p.NoSwap = drawBool(t, "no swap")
	if drawBool(t, "real time") {
		p.RealTime = rapid.IntRange(1, 99).Draw(t, "rt")
	}
	if p.RealTime != 0 || drawBool(t, "limit") {
		p.RealTimeLimit = drawTime(t, "rlimit", 2*time.Microsecond, 4294*time.Second)
	}
	p.CPUs = rapid.SampledFrom([][]int{nil, {0}, {1, 3, 1023}}).Draw(t, "CPUs")
	if p.UmaskSet = drawBool(t, "umask"); p.UmaskSet {
		p.Umask = rapid.Uint32Range(0, 0o777).Draw(t, "mask")
	}
}

func trackName(i int) string { return []string{"load", "in service"}[i] }

func uses(c *config.Config, name string) bool {
	if f := c.Global.Passive.File; f != nil && f.Name == name {
		return true
	}
	if s := c.Global.Sync; s != nil && s.File != nil && s.File.Name == name {
		return true
	}
	for _, vs := range c.VirtualServers {
		for _, rs := range vs.RealServers {
			for _, u := range rs.TrackFiles {
				if u.Name == name {
					return true
				}
			}
			for _, ck := range rs.Checkers {
				if ck.File != nil && ck.File.Name == name {
					return true
				}
			}
		}
	}
	return false
}

func drawVirtual(t draw, g *config.Global, i int, ordinal *int, tracks int) *config.VirtualServer {
	v6 := drawBool(t, "v6")
	family := config.IPv4
	if v6 {
		family = config.IPv6
	}
	vs := &config.VirtualServer{Protocol: rapid.SampledFrom([]config.Protocol{config.TCP, config.UDP, config.SCTP}).Draw(t, "protocol")}
	vs.Scheduler = rapid.SampledFrom([]string{"rr", "wlc", "sh", "mh", "twos"}).Draw(t, "scheduler")
	vs.Flags = config.SchedFlags{Flag1: drawBool(t, "flag-1"), Flag2: drawBool(t, "flag-2"), Flag3: drawBool(t, "flag-3")}
	vs.Persistence = rapid.Uint32Range(0, 2678400).Draw(t, "persistence")
	// Addresses and marks carry the index, so that no two services collide.
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), drawPort(t, 0, "port"))
	if v6 {
		at = netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("2001:db8:1::%x", i)), at.Port())
	}
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		vs.Key = config.VSKey{Protocol: vs.Protocol, Addr: at}
		vs.Entries = []config.Entry{{Addr: at, Family: family}}
		vs.Flags.OnePacket = vs.Protocol == config.UDP && drawBool(t, "ops")
	case 1:
		vs.Protocol = config.None
		vs.Key = config.VSKey{FWMark: uint32(i + 1), Family: family}
		vs.Entries = []config.Entry{{FWMark: uint32(i + 1), Family: family}}
	case 2:
		vs.Key = config.VSKey{Group: fmt.Sprintf("group %d", i), Protocol: vs.Protocol}
		for j := range rapid.IntRange(1, 3).Draw(t, "entries") {
			vs.Entries = append(vs.Entries, config.Entry{Addr: netip.AddrPortFrom(at.Addr(), at.Port()/4+uint16(j)), Family: family})
		}
		if drawBool(t, "mark") {
			vs.Entries = append(vs.Entries, config.Entry{FWMark: uint32(100 + i), Family: family})
		}
	}
	for _, e := range vs.Entries {
		if e.Addr.Port() == 0 && e.FWMark == 0 {
			vs.Persistence = max(vs.Persistence, 1)
		}
	}
	if vs.Persistence > 0 {
		vs.Engine = rapid.SampledFrom([]string{"", "sip"}).Draw(t, "engine")
		switch {
		case drawBool(t, "no granularity"):
		case v6:
			vs.Granularity = rapid.Uint32Range(1, 128).Draw(t, "prefix")
		default:
			vs.Granularity = rapid.Uint32Min(1).Draw(t, "mask")
		}
	}
	vs.QuorumUp, vs.QuorumDown = drawScript(t, "quorum_up"), drawScript(t, "quorum_down")
	vs.Omega, vs.SMTPAlert = drawBool(t, "omega"), drawBool(t, "alert")
	vs.HASuspend = vs.Entries[len(vs.Entries)-1].FWMark == 0 && drawBool(t, "ha_suspend")
	vs.VirtualHost, vs.SNMPName = drawText(t, "virtualhost"), drawText(t, "snmp")
	vs.DrainTimeout = rapid.SampledFrom([]time.Duration{g.DrainTimeout, 0, 7 * time.Second}).Draw(t, "drain")
	vs.UDPDrainTimeout = rapid.SampledFrom([]time.Duration{g.UDPDrainTimeout, 0, 7 * time.Second}).Draw(t, "udp drain")
	vs.OnFailure = rapid.SampledFrom([]config.OnFailure{config.OnFailureRemove, config.OnFailureDrain}).Draw(t, "on_failure")
	vs.Label = drawLabel(t)
	vs.MinAlive = rapid.SampledFrom([]config.Floor{{}, {Servers: 1}, {Servers: 4000000000}, {Percent: 1}, {Percent: 100}}).Draw(t, "floor")
	if drawBool(t, "damping") {
		vs.FlapDamping = config.Damping{Count: rapid.Uint32Range(1, 1000).Draw(t, "count"), Within: drawTime(t, "within", time.Microsecond, 7*24*time.Hour)}
	}
	drawVIP(t, vs, i)
	seen := map[netip.Addr]bool{}
	var total uint64
	for range rapid.IntRange(1, 4).Draw(t, "real servers") {
		rs := drawReal(t, g, vs, v6, tracks)
		if seen[rs.Key.Addr()] {
			continue
		}
		seen[rs.Key.Addr()] = true
		total += uint64(rs.Weight)
		vs.RealServers = append(vs.RealServers, rs)
	}
	vs.Quorum = rapid.Uint32Range(1, uint32(min(max(total, 1), 1<<32-1))).Draw(t, "quorum")
	vs.Hysteresis = rapid.Uint32Range(0, vs.Quorum-1).Draw(t, "hysteresis")
	if drawBool(t, "sorry") {
		s := &config.SorryServer{Inhibit: drawBool(t, "sorry inhibit")}
		s.Key, s.Forward = drawServer(t, vs, v6, 0)
		for _, rs := range vs.RealServers {
			if rs.Key == s.Key {
				s.Inhibit = rs.Inhibit
			}
		}
		vs.Sorry = s
	}
	return vs
}

// drawServer makes an address, a port and a method that go together.
func drawServer(t draw, vs *config.VirtualServer, v6 bool, least uint16) (config.RSKey, config.Forwarding) {
	f := drawForward(t, rapid.SampledFrom([]config.Method{config.NAT, config.DR, config.TUN}).Draw(t, "method"))
	addr := drawAddr(t, v6 != (f.Method == config.TUN && drawBool(t, "other family")), "address")
	port := drawPort(t, least, "server port")
	if f.Method != config.NAT && vs.Key.Group == "" {
		port = vs.Key.Addr.Port()
	}
	return config.RSKey{AddrPort: netip.AddrPortFrom(addr, port)}, f
}

func drawReal(t draw, g *config.Global, vs *config.VirtualServer, v6 bool, tracks int) *config.RealServer {
	least := uint16(0)
	if vs.Key.Addr.Port() != 0 {
		least = 1 // without a port it would be the service's
	}
	rs := &config.RealServer{Weight: rapid.Int64Range(0, 1<<31-1).Draw(t, "weight")}
	rs.Key, rs.Forward = drawServer(t, vs, v6, least)
	rs.UpperThreshold, rs.LowerThreshold = rapid.Uint32().Draw(t, "upper"), rapid.Uint32().Draw(t, "lower")
	rs.Inhibit, rs.SMTPAlert = drawBool(t, "inhibit"), drawBool(t, "alert")
	rs.NotifyUp, rs.NotifyDown = drawScript(t, "up"), drawScript(t, "down")
	handed := config.Handed{Alpha: drawBool(t, "alpha"), VirtualHost: drawText(t, "host"), SNMPName: drawText(t, "snmp")}
	if handed != (config.Handed{}) {
		rs.Handed = &handed
	}
	rs.DrainTimeout = rapid.SampledFrom([]time.Duration{vs.DrainTimeout, 0, 9 * time.Second}).Draw(t, "server drain")
	use := func() config.TrackFileUse {
		return config.TrackFileUse{Name: trackName(rapid.IntRange(0, tracks-1).Draw(t, "file")), Weight: rapid.Int64Range(-1<<31+1, 1<<31-1).Draw(t, "weight"), Reverse: drawBool(t, "reverse")}
	}
	if tracks > 0 && drawBool(t, "track") {
		rs.TrackFiles = append(rs.TrackFiles, use())
	}
	rs.Label = drawLabel(t)
	if drawBool(t, "slow start") {
		rs.SlowStart = drawTime(t, "rise in", time.Microsecond, 7*24*time.Hour)
	}
	for range rapid.IntRange(0, 2).Draw(t, "checkers") {
		kind := rapid.SampledFrom([]config.CheckerKind{config.TCPCheck, config.HTTPGet, config.SSLGet, config.FileCheck, config.SMTPCheck, config.DNSCheck, config.UDPCheck, config.PingCheck, config.MiscCheck}).Draw(t, "kind")
		if kind == config.FileCheck {
			if tracks > 0 {
				u := use()
				rs.Checkers = append(rs.Checkers, &config.Checker{Kind: kind, File: &u, Schedule: config.Schedule{Rise: 1}})
			}
			continue
		}
		rs.Checkers = append(rs.Checkers, drawChecker(t, g, vs, rs, kind))
	}
	drawVia(t, vs, rs)
	return rs
}

func drawChecker(t draw, g *config.Global, vs *config.VirtualServer, rs *config.RealServer, kind config.CheckerKind) *config.Checker {
	v6 := drawBool(t, "target v6")
	c := &config.Checker{Kind: kind}
	c.Conn = config.Connection{
		Target: netip.AddrPortFrom(drawAddr(t, v6, "target"), drawPort(t, 1, "target port")),
		BindIf: rapid.SampledFrom([]string{"", "eth0"}).Draw(t, "if"), FWMark: rapid.Uint32().Draw(t, "mark"),
		Timeout: drawTime(t, "timeout", time.Microsecond, 4294*time.Second),
	}
	if drawBool(t, "bind") {
		c.Conn.BindAddr, c.Conn.BindPort = drawAddr(t, v6, "source"), drawPort(t, 0, "source port")
	}
	switch kind {
	case config.TCPCheck, config.HTTPGet, config.SSLGet, config.SMTPCheck:
		c.Conn.Close = rapid.SampledFrom([]config.Close{config.CloseNormal, config.CloseFull, config.CloseReset}).Draw(t, "close")
	}
	c.Schedule = config.Schedule{
		DelayLoop: drawTime(t, "loop", time.Microsecond, time.Hour), DelayBeforeRetry: drawTime(t, "before", 0, time.Hour),
		Warmup: drawTime(t, "warmup", 0, time.Hour), Retry: rapid.Uint32().Draw(t, "retry"), Rise: rapid.Uint32Min(1).Draw(t, "rise"),
	}
	c.Alpha, c.LogAllFailures = drawBool(t, "alpha"), g.CheckerLogAllFailures || drawBool(t, "log")
	if kind != config.HTTPGet && kind != config.SSLGet {
		drawOther(t, c)
		return c
	}
	h := &config.HTTP{Protocol: rapid.SampledFrom([]config.HTTPProtocol{config.HTTP10, config.HTTP10C, config.HTTP11}).Draw(t, "http"), SNI: drawBool(t, "sni"), FastRecovery: drawBool(t, "fast"), TLSCompliant: kind == config.SSLGet && drawBool(t, "tls")}
	if h.SNI {
		h.SNIName = drawText(t, "sni name")
	}
	if kind == config.SSLGet && drawBool(t, "certificates") {
		h.TLS = &config.TLS{Verify: true, CA: drawText(t, "ca"), ServerName: drawText(t, "server name"), ExpiryWarn: time.Duration(rapid.IntRange(0, 3650).Draw(t, "days")) * 24 * time.Hour}
	}
	own := drawText(t, "own host")
	h.VirtualHost, h.SNIVirtualHost = firstOf(own, rs.HandedOn().VirtualHost, vs.VirtualHost), firstOf(own, vs.VirtualHost)
	for range rapid.IntRange(1, 2).Draw(t, "urls") {
		u := config.URL{Path: "/" + drawText(t, "path"), VirtualHost: drawText(t, "url host"), TLSCompliant: kind == config.SSLGet && drawBool(t, "url tls")}
		for range rapid.IntRange(1, 3).Draw(t, "codes") {
			a := rapid.IntRange(100, 599).Draw(t, "code")
			u.Status = append(u.Status, config.StatusRange{First: a, Last: rapid.IntRange(a, 599).Draw(t, "last")})
		}
		if u.HasDigest = drawBool(t, "digest"); u.HasDigest {
			copy(u.Digest[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "md5"))
		}
		if drawBool(t, "regex") {
			r := &config.Regex{Pattern: "x" + rapid.StringOfN(rapid.RuneFrom([]rune(`ab.*\"' #!${}()|é`)), 0, 8, -1).Draw(t, "pattern"), NoMatch: drawBool(t, "no match")}
			if drawBool(t, "options") {
				r.Options = []string{"caseless", "dotall"}
			}
			r.MinOffset = rapid.IntRange(0, 100).Draw(t, "min")
			if r.HasMax = drawBool(t, "max"); r.HasMax {
				r.MaxOffset = rapid.IntRange(r.MinOffset, 200).Draw(t, "max offset")
			}
			u.Regex = r
		}
		h.URLs = append(h.URLs, u)
	}
	c.HTTP = h
	return c
}

// drawOther draws what the other kinds of checker have of their own.
func drawOther(t draw, c *config.Checker) {
	switch c.Kind {
	case config.SMTPCheck:
		c.SMTP = &config.SMTP{Helo: "x" + drawText(t, "helo")}
	case config.DNSCheck:
		c.DNS = &config.DNS{Type: rapid.SampledFrom([]string{"A", "SOA", "DNSKEY"}).Draw(t, "type"), Name: rapid.SampledFrom([]string{"", ".", "example.com", "a b.example.com."}).Draw(t, "name")}
	case config.UDPCheck:
		u := &config.Datagram{Min: rapid.IntRange(0, 65535).Draw(t, "min"), Max: rapid.IntRange(0, 65535).Draw(t, "max")}
		u.Payload = rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "payload")
		if len(u.Payload) == 0 {
			u.Payload = nil
		}
		if u.Require = drawBool(t, "require"); u.Require && drawBool(t, "reply") {
			for range rapid.IntRange(1, 5).Draw(t, "octets") {
				mask := rapid.SampledFrom([]byte{0xff, 0xf0, 0x0f, 0}).Draw(t, "mask")
				u.Mask, u.Reply = append(u.Mask, mask), append(u.Reply, mask&rapid.Byte().Draw(t, "octet"))
			}
		}
		c.UDP = u
	case config.PingCheck:
		c.Conn.Target = netip.AddrPortFrom(c.Conn.Target.Addr(), 0)
	case config.MiscCheck:
		c.Conn = config.Connection{}
		s := drawScript(t, "misc")
		if s == nil {
			s = &config.Script{Argv: []string{"</etc/passwd"}}
		}
		// What misc_timeout cannot say is the virtual server's delay_loop, and there
		// is one of that.
		timeout := rapid.SampledFrom([]time.Duration{time.Second, 4294 * time.Second, 4295500 * time.Millisecond}).Draw(t, "misc timeout")
		c.Misc = &config.Misc{Script: s, Timeout: timeout, Dynamic: drawBool(t, "dynamic")}
	}
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// FuzzLoad reads anything. Whatever is accepted is valid, and reads the same
// when it is printed.
func FuzzLoad(f *testing.F) {
	for _, text := range []string{
		service("NAT", "real_server 10.0.0.1 80 { TCP_CHECK { } }"),
		"virtual_server_group g { 192.0.2.1-9 80\nfwmark 3 }\nvirtual_server group g { lvs_sched rr\nreal_server 10.0.0.1 { } }",
		"virtual_server fwmark 3 { persistence_granularity 24\nsorry_server 10.0.0.1 0\nreal_server 10.0.0.1 80 { HTTP_GET { url { path /\nregex \"a\\x20b\"\nstatus_code 2xx } } } }",
		"global_defs { notification_email { a@b\n\"@c d\" }\nsmtp_server x 0\nlvs_sync_daemon e i 3 group ff02::1\numask IRUSR | IRWXO\nlvs_notify_fifo x y z\nchecker_cpu_affinity 3 1 x }\n" +
			service("NAT", "delay_loop 0.5\nreal_server 10.0.0.1 80 { MISC_CHECK { misc_path \"< /x\"\nuser a b }\nUDP_CHECK { payload 1 2 345\nrequire_reply xx 1X x }\nDNS_CHECK { type a\nname a.b. } }"),
		"track_file t { file /x\nweight 3 reverse\ninit_file 3 overwrite }\n" + service("TUN type gue port 3", "quorum_up \"/bin/x 'y'\" u g\nreal_server 10.0.0.1 80 { FILE_CHECK { track_file t }\n#sluice track_file t weight 3\n}"),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			return
		}
		cfg, list := keyword.LoadString("fuzz", text, keyword.Options{})
		for _, d := range list {
			if d.Code == "" || d.Message == "" || d.Width < 1 {
				t.Errorf("finding %+v", d)
			}
		}
		if cfg == nil {
			return
		}
		if err := config.Validate(cfg); err != nil {
			t.Error(err)
		}
		if sayable(cfg) {
			again(t, cfg)
		}
	})
}

// sayable tells whether Print can be read back. What cannot: a group that two
// virtual servers see with different entries, a word that definitions produced
// and the language cannot write, and a checker that came from a merged real
// server with another virtualhost or a merged virtual server with another
// delay_loop.
func sayable(c *config.Config) bool {
	entries := map[string]string{}
	for _, vs := range c.VirtualServers {
		if g := vs.Key.Group; g != "" {
			s := fmt.Sprint(vs.Entries)
			if old, ok := entries[g]; (ok && old != s) || vs.Key.Ordinal > 0 {
				return false
			}
			entries[g] = s
		}
		loops := map[time.Duration]bool{}
		for _, rs := range vs.RealServers {
			for _, ck := range rs.Checkers {
				if ck.Misc != nil && (ck.Misc.Timeout%time.Second != 0 || ck.Misc.Timeout > 4294*time.Second) {
					loops[ck.Misc.Timeout] = true
				}
				h, inherited := ck.HTTP, firstOf(rs.HandedOn().VirtualHost, vs.VirtualHost)
				if h == nil || (h.VirtualHost == inherited && h.SNIVirtualHost == vs.VirtualHost) {
					continue
				}
				if h.VirtualHost == "" || h.VirtualHost != h.SNIVirtualHost {
					return false
				}
			}
		}
		if len(loops) > 1 {
			return false
		}
	}
	var b bytes.Buffer
	_ = config.Print(&b, c)
	if strings.ContainsAny(b.String(), "$\x00\r\v\f\x1b") || !strings.Contains(b.String(), "\n") {
		return false
	}
	_, list := syntax.ParseString("printed", b.String(), syntax.Options{})
	return len(list) == 0
}

// TestAnyStatementsMakeAValidConfiguration throws the table's words with good
// and bad arguments together, in any order and number.
func TestAnyStatementsMakeAValidConfiguration(t *testing.T) {
	type vocabulary struct {
		words []string
		opens map[string]string
	}
	known := map[string]vocabulary{}
	of := func(block string) vocabulary {
		v, ok := known[block]
		if !ok {
			v.words, v.opens = keyword.Words(block)
			known[block] = v
		}
		return v
	}
	args := rapid.SampledFrom([]string{"", "", "1", "0", "5", "80", "100", "-3", "0.5", "x", "10.0.0.1", "10.0.0.1 80", "10.0.0.2 81", "192.0.2.10 80", "192.0.2.10 0", "2001:db8::1 80", "fe80::1", "fwmark 3", "fwmark 0", "group g",
		"g", "rr", "sh", "mh", "NAT", "DR", "TUN", "TUN type gue port 5", "TCP", "UDP", "inet", "inet6", "yes", "no", "reverse", "3 reverse", "g weight 3", "200-299 2xx", "255.255.255.0", "24", "/path", `"a b"`, `"/bin/x 'y'" root`, `"open`, "tcp 5", "// x", "192.0.2.0/30 80", "192.0.2.1-9", "0a XX 1", "/run/f svc adm", "eth0 VI id 3", "eth0 inst", "vip", "off", "quorum", "none", "vip0", "0x10000", "192.0.2.10-12", "IRUSR|IWUSR", "0177", "</etc/passwd", "a..b", "ops@example.com <b@c>"})
	// What usually follows a word, so that enough of it makes sense.
	usual := map[string]*rapid.Generator[string]{
		"virtual_server":       rapid.SampledFrom([]string{"192.0.2.10 80", "192.0.2.10 80", "192.0.2.11 0", "2001:db8::1 80", "fwmark 3", "group g", "group h"}),
		"virtual_server_group": rapid.SampledFrom([]string{"g", "h"}),
		"track_file":           rapid.SampledFrom([]string{"f", "g", "g weight 3"}),
		"real_server":          rapid.SampledFrom([]string{"10.0.0.1 80", "10.0.0.1 81", "10.0.0.2", "10.0.0.3 0", "2001:db8:1::1 80", "fe80::1 80"}),
		"sorry_server":         rapid.SampledFrom([]string{"10.0.0.1 80", "10.0.0.9", "2001:db8::9 80"}),
		"lvs_sched":            rapid.SampledFrom(strings.Fields("rr wlc sh mh lc2")),
		"lvs_method":           rapid.SampledFrom([]string{"NAT", "DR", "TUN", "TUN type gue port 5", "TUN type gre csum", "dr"}),
		"check_via":            rapid.SampledFrom([]string{"vip", "vip", "off"}),
		"vip_device":           rapid.SampledFrom([]string{"vip0", "vip1", "none"}),
		"vip_follow":           rapid.SampledFrom([]string{"quorum"}),
		"vip_address":          rapid.SampledFrom([]string{"192.0.2.10", "192.0.2.40-44 192.0.2.41", "2001:db8::40"}),
		"nftables_ipvs":        rapid.SampledFrom([]string{"", "t"}),
		"path":                 rapid.SampledFrom([]string{"/", `"/a b"`}),
		"misc_path":            rapid.SampledFrom([]string{"/bin/x", `"/bin/x 'y'" root`, "</etc/passwd"}),
		"file":                 rapid.SampledFrom([]string{"/x"}),
		"":                     rapid.SampledFrom([]string{"192.0.2.10 80", "192.0.2.20-25 80", "192.0.2.32/30", "2001:db8::20-22 80", "fwmark 3", "fwmark 3 inet6"}),
	}
	follow := func(t *rapid.T, word string) string {
		if g := usual[word]; g != nil && rapid.IntRange(0, 9).Draw(t, "unusual") > 0 {
			return g.Draw(t, "usual")
		}
		return args.Draw(t, "args")
	}
	inside := map[string][]string{
		"":               {"virtual_server", "virtual_server", "virtual_server", "virtual_server_group", "track_file", "global_defs", "SSL"},
		"virtual_server": {"real_server", "real_server", "lvs_sched", "lvs_method", "sorry_server", "check_via", "vip_device", "vip_address"},
		"real_server":    {"TCP_CHECK", "HTTP_GET", "SSL_GET", "FILE_CHECK", "track_file", "lvs_method", "check_via", "SMTP_CHECK", "DNS_CHECK", "UDP_CHECK", "PING_CHECK", "MISC_CHECK"},
		"MISC_CHECK":     {"misc_path"},
		"HTTP_GET":       {"url"}, "SSL_GET": {"url"}, "HTTP_GET url": {"path"}, "SSL_GET url": {"path"}, "FILE_CHECK": {"track_file"}, "track_file": {"file"},
	}
	services, checkers := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		budget := 120
		var block func(kind string, depth int)
		block = func(kind string, depth int) {
			v := of(kind)
			for range rapid.IntRange(1, 9).Draw(t, "statements") {
				if budget--; budget < 0 {
					return
				}
				if len(v.words) == 0 {
					fmt.Fprintf(&b, "%s\n", follow(t, ""))
					continue
				}
				word := rapid.SampledFrom(v.words).Draw(t, "word")
				// Few words open blocks, and what matters is inside.
				if likely := inside[kind]; likely != nil && (kind == "" || rapid.Bool().Draw(t, "likely")) {
					word = rapid.SampledFrom(likely).Draw(t, "likely word")
				}
				fmt.Fprintf(&b, "%s %s", word, follow(t, word))
				if inner := v.opens[word]; inner != "" && depth < 5 {
					b.WriteString(" {\n")
					block(inner, depth+1)
					b.WriteString("}\n")
				}
				b.WriteByte('\n')
			}
		}
		block("", 0)
		// A file whose parameters are missing is judged to its end as well.
		tree, _ := syntax.ParseString("random", b.String(), syntax.Options{OpensBlock: keyword.OpensBlock()})
		cfg, _ := keyword.Build(tree)
		if err := config.Validate(cfg); err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		if !sayable(cfg) {
			return
		}
		again(t, cfg)
		marked(t, cfg)
		for _, vs := range cfg.VirtualServers {
			services++
			for _, rs := range vs.RealServers {
				checkers += len(rs.Checkers)
			}
		}
	})
	if services < 20 || checkers < 20 {
		t.Errorf("only %d virtual servers and %d checkers were made: the test looks at nothing", services, checkers)
	}
}
