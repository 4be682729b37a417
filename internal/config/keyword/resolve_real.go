package keyword

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

func addrPort(a netip.Addr, p uint16) netip.AddrPort { return netip.AddrPortFrom(a, p) }

// realServer resolves one real server and adds it to its virtual server.
func (b *builder) realServer(d *draft, r *rawReal, family config.Family) {
	vs, f := d.raw, r.f
	if r.own && r.method.v.bad {
		return
	}
	fwd := methodOf(r.method, vs.method)
	if own := config.FamilyOf(r.addr); family != config.FamilyUnknown && own != family && fwd.Method != config.TUN {
		f.reportBlock(codeFamily, fmt.Sprintf("%s is %s, and its virtual server is %s", title(f.n), own, family),
			"this real server is not served, as with keepalived; only TUN carries one family in the other")
		return
	}
	weight := r.weight.or(vs.weight)
	rs := &config.RealServer{
		Pos: f.n.Pos, Weight: weight, Forward: fwd, UpperThreshold: r.upper, LowerThreshold: r.lower,
		Inhibit:  r.inhibit.or(vs.inhibit),
		NotifyUp: r.up, NotifyDown: r.down,
		SMTPAlert: first(true, r.smtpAlert, b.raw.smtpAlertChecker, b.raw.smtpAlert),
		Handed: b.pool.handedOn(config.Handed{
			Alpha: first(false, r.alpha, vs.alpha), VirtualHost: r.virtualHost, SNMPName: r.snmpName,
		}),
		DrainTimeout: r.drainTimeout.or(vs.drainTimeout.or(b.raw.global.DrainTimeout)),
		SlowStart:    first(0, r.slowStart, vs.slowStart),
		Label:        b.pool.text(r.label),
	}
	rs.Key = config.RSKey{AddrPort: addrPort(r.addr, b.servicePort(d, fwd.Method, r.port, vs.port, f.parent, f.n, true))}
	kept := r.checkers[:0]
	for i, c := range r.checkers {
		ck := b.checker(d, r, c, rs.Key.Port())
		if ck == nil {
			continue
		}
		if rs.Checkers == nil {
			rs.Checkers = make([]*config.Checker, 0, len(r.checkers)-i)
		}
		rs.Checkers, kept = append(rs.Checkers, ck), append(kept, c)
	}
	b.noteSilent(kept)
	for _, u := range r.trackUses {
		if use := b.trackUse(f, u, u.n); use != nil {
			rs.TrackFiles = append(rs.TrackFiles, *use)
		}
	}
	b.addReal(d, &realDraft{raw: r, rs: rs})
}

// servicePort corrects a server's port by the kind of service and the method.
// without is the port of a NAT server that gives none, checked tells that checks go
// to the port as written.
func (b *builder) servicePort(d *draft, m config.Method, port, without uint16, f *frame, n *syntax.Node, checked bool) uint16 {
	vs := d.raw
	tail := func() string {
		if !checked {
			return ""
		}
		return fmt.Sprintf("; checks still go to %d", port)
	}
	w := &n.Words[min(2, len(n.Words)-1)]
	switch {
	case vs.kind == byGroup:
		if m != config.NAT && port != 0 {
			if p, ok := d.group.otherPort(port); ok {
				f.report(codeGroupPort, n, w, fmt.Sprintf("port %d is not the port of every entry of group %s (%d)", port, vs.group, p),
					fmt.Sprintf("with %s packets keep their port, so that each entry's own is used in the kernel's table", m))
			}
		}
		return port
	case m == config.NAT:
		if port == 0 && vs.kind == byAddress {
			return without
		}
		return port
	case vs.kind == byMark:
		if port != 0 {
			f.report(codePortReplaced, n, w, fmt.Sprintf("port %d has no meaning with %s behind a firewall mark", port, m), "0 is used in the kernel's table, as keepalived does"+tail())
		}
		return 0
	}
	if port != 0 && port != vs.port {
		f.report(codePortReplaced, n, w, fmt.Sprintf("port %d cannot differ from the service's port %d with %s", port, vs.port, m),
			fmt.Sprintf("%d is used in the kernel's table, as keepalived does%s", vs.port, tail()))
	}
	return vs.port
}

// addReal adds a real server, or its checkers to the same one that is there.
// With DR and TUN in a group the ports are the entries', so that the address
// alone tells servers apart.
func (b *builder) addReal(d *draft, rd *realDraft) {
	key := rd.rs.Key
	if d.raw.kind == byGroup && rd.rs.Forward.Method != config.NAT {
		key.AddrPort = addrPort(key.Addr(), 0)
	}
	before := d.real[key]
	if before == nil && key != rd.rs.Key {
		before = d.real[rd.rs.Key]
	}
	if before == nil {
		// Under both keys: the same address and port may come with NAT and with DR.
		d.real[key] = rd
		if key != rd.rs.Key {
			d.real[rd.rs.Key] = rd
		}
		d.order = append(d.order, rd)
		return
	}
	f := rd.raw.f
	f.reportBlock(codeSameReal, fmt.Sprintf("%s is the same real server as %s", title(f.n), title(before.raw.f.n)),
		"its checkers and track files are added to the first one, and the rest of it is ignored; keepalived drops it",
		"the first one is on "+lineOf(before.rs.Pos, rd.rs.Pos))
	before.rs.Checkers = append(before.rs.Checkers, rd.rs.Checkers...)
	before.rs.TrackFiles = append(before.rs.TrackFiles, rd.rs.TrackFiles...)
}

// sorry resolves the sorry server.
func (b *builder) sorry(d *draft, family config.Family) {
	s, f := d.raw.sorry, d.raw.f
	if s == nil || s.method.v.bad && d.raw.method.ok && !d.raw.method.v.bad {
		return
	}
	fwd := methodOf(s.method, d.raw.method)
	if own := config.FamilyOf(s.addr); family != config.FamilyUnknown && own != family && fwd.Method != config.TUN {
		f.report(codeFamily, s.n, &s.n.Words[1], fmt.Sprintf("sorry_server %s is %s, and its virtual server is %s", s.addr, own, family), "there is no sorry server, as with keepalived")
		return
	}
	d.vs.Sorry = &config.SorryServer{Pos: s.n.Pos, Inhibit: s.inhibit, Forward: fwd}
	d.vs.Sorry.Key = config.RSKey{AddrPort: addrPort(s.addr, b.servicePort(d, fwd.Method, s.port, 0, f, s.n, false))}
	b.sorryTwin(d, 0)
}

// sorryTwin lets a real server decide on inhibit when it is the sorry server
// as well. Of the real servers, those before known were asked already.
func (b *builder) sorryTwin(d *draft, known int) {
	s := d.vs.Sorry
	if s == nil {
		return
	}
	for _, rd := range d.order[known:] {
		if rd.rs.Key != s.Key {
			continue
		}
		if s.Inhibit != rd.rs.Inhibit && d.raw.sorry != nil {
			n := d.raw.sorry.n
			hint := "sorry_server_inhibit is ignored, and the real server's inhibit_on_failure decides, as in keepalived"
			if rd.rs.Inhibit {
				hint = "inhibit_on_failure of the real server holds for the sorry server too, as in keepalived; write sorry_server_inhibit"
			}
			d.raw.f.report(codeSorryInhibit, n, &n.Words[0], "the sorry server is also a real server, and only one of the two inhibits", hint,
				"the real server is on "+lineOf(rd.rs.Pos, n.Pos))
		}
		s.Inhibit = rd.rs.Inhibit
	}
}

// checker resolves one checker; nil if it cannot be run.
func (b *builder) checker(d *draft, r *rawReal, c *rawChecker, servicePort uint16) *config.Checker {
	f := c.f
	ck := &config.Checker{Kind: c.kind, Pos: f.n.Pos}
	if c.kind == config.FileCheck {
		if ck.File = b.trackUse(f, c.file, c.file.n); ck.File == nil {
			return nil
		}
		ck.Rise = 1
		return ck
	}
	ck.Schedule = schedule(c.kind, &c.checkDefaults, &r.checkDefaults, &d.raw.checkDefaults, c.rawHTTP != nil && c.fastRecovery)
	ck.Alpha = first(false, c.alpha, r.alpha, d.raw.alpha)
	ck.LogAllFailures = c.logAll || b.raw.global.CheckerLogAllFailures
	if c.kind == config.MiscCheck {
		if ck.Misc = b.misc(d, c); ck.Misc == nil {
			return nil
		}
		return ck
	}
	ck.Conn = config.Connection{
		BindAddr: c.bind, BindPort: c.bindPort, BindIf: c.bindIf, FWMark: c.mark,
		Timeout: first(5*time.Second, c.timeout, r.timeout, d.raw.timeout),
		Close:   b.endOf(c.kind, &c.checkDefaults, &r.checkDefaults, &d.raw.checkDefaults),
	}
	if c.bind.IsValid() && (c.kind == config.UDPCheck || c.kind == config.DNSCheck) {
		d.bound = append(d.bound, c)
	}
	via, wants := b.wantsVia(d, r, c)
	if wants {
		d.remember(ck, via)
	}
	target, port := c.ip, c.port
	if !target.IsValid() {
		target = r.addr
	}
	switch {
	case c.kind == config.PingCheck:
		port = 0 // an echo has none
	case port == 0:
		port = r.port
	}
	ck.Conn.Target = addrPort(target, port)
	if port == 0 && c.kind != config.PingCheck && !wants && !b.servicePortFor(d, r, c, ck, servicePort) {
		return nil
	}
	if target.Is6() && target.IsLinkLocalUnicast() && c.bindIf == "" {
		f.reportBlock(codeLinkLocal, fmt.Sprintf("%s of the link-local address %s needs bind_if", c.kind, target), "it is dropped, as keepalived does, and the real server is not checked by it")
		return nil
	}
	if c.bind.IsValid() && c.bind.Is4() != target.Is4() {
		f.reportBlock(codeFamily, fmt.Sprintf("%s: bindto %s and its target %s are of different families", c.kind, c.bind, target), "bindto is ignored")
		ck.Conn.BindAddr, ck.Conn.BindPort = netip.Addr{}, 0
	} else if c.bindPort != 0 && !c.bind.IsValid() {
		f.reportBlock(codeBindPort, fmt.Sprintf("%s: bind_port %d without bindto", c.kind, c.bindPort), "it is ignored, as keepalived does in silence")
		ck.Conn.BindPort = 0
	}
	if c.kind == config.HTTPGet || c.kind == config.SSLGet {
		if len(c.urls) == 0 {
			f.reportBlock(codeURL, fmt.Sprintf("%s without a usable url", c.kind), "it is dropped, as keepalived does, and the real server is not checked by it")
			return nil
		}
		ck.HTTP = b.http(d, r, c)
	}
	b.own(c, ck)
	b.lateTimeout(d, r, c)
	return ck
}

// servicePortFor lets a checker that nobody gave a port take the service's; it tells
// whether there is one.
func (b *builder) servicePortFor(d *draft, r *rawReal, c *rawChecker, ck *config.Checker, servicePort uint16) bool {
	port := b.portFor(d, servicePort)
	if port == 0 {
		c.f.reportBlock(codeNoCheckPort, fmt.Sprintf("%s of %s has no port to connect to", c.kind, title(r.f.n)),
			"it is dropped, and the real server is not checked by it; write connect_port in it. keepalived would connect to port 0 and never bring the server up")
		return false
	}
	ck.Conn.Target = addrPort(ck.Conn.Target.Addr(), port)
	c.f.reportBlock(codeCheckPort, fmt.Sprintf("%s of %s connects to the service's port %d", c.kind, title(r.f.n), port),
		"keepalived would connect to port 0 and never bring the server up; write the port in real_server, or connect_port")
	return true
}

// portFor is the port that a checker takes when nothing names one: the
// service's, if there is only one.
func (b *builder) portFor(d *draft, servicePort uint16) uint16 {
	if d.group == nil || servicePort != 0 {
		return servicePort
	}
	if len(d.group.ports) != 1 {
		return 0
	}
	return d.group.ports[0]
}

// http resolves what HTTP_GET and SSL_GET have of their own. The Host header
// comes from url, checker, real server, virtual server; the server name passes
// the real server over, as in keepalived.
func (b *builder) http(d *draft, r *rawReal, c *rawChecker) *config.HTTP {
	h := config.HTTP{
		Protocol: c.protocol, SNI: c.sni, SNIName: c.sniName,
		FastRecovery: c.fastRecovery, TLSCompliant: c.tlsCompliant,
		VirtualHost:    firstText(c.virtualHost, r.virtualHost, d.raw.virtualHost),
		SNIVirtualHost: firstText(c.virtualHost, d.raw.virtualHost),
	}
	if t := c.tls; t != (config.TLS{}) {
		t.CA, t.ServerName = b.pool.text(t.CA), b.pool.text(t.ServerName)
		h.TLS = &t
	}
	h.URLs = make([]config.URL, len(c.urls))
	for i, u := range c.urls {
		h.URLs[i] = u.url
	}
	return b.pool.http(h)
}

func firstText(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// trackUse resolves a use of a track file, with the file's own weight as the
// default.
func (b *builder) trackUse(f *frame, u *rawTrackUse, n *syntax.Node) *config.TrackFileUse {
	w := &n.Words[min(1, len(n.Words)-1)]
	t := b.raw.tracks[u.name]
	dropped := "the file does not move the weight"
	if f.block == blockFile {
		dropped = "the check is dropped, as keepalived does, and the real server is not checked by it"
	}
	if n == f.n {
		f = f.parent
	}
	switch {
	case u.name == "":
		f.report(codeTrackFileUse, n, w, n.Keyword()+" names no track_file", dropped)
		return nil
	case t == nil:
		f.report(codeTrackFileUse, n, w, fmt.Sprintf("there is no track_file %s", u.name), b.didYouMean(u.name, b.raw.trackNames, dropped))
		return nil
	case u.late:
		f.report(codeTrackFileOrder, n, w, fmt.Sprintf("track_file %s is defined after its use", u.name), "it is used all the same; keepalived would drop the check, so move the track_file before",
			"it is defined on "+lineOf(t.track.Pos, n.Pos))
	}
	use := config.TrackFileUse{Name: b.pool.text(u.name), Weight: t.track.Weight, Reverse: t.track.Reverse}
	if u.weight.ok {
		use.Weight, use.Reverse = u.weight.v, u.reverse
	}
	return b.pool.uses.of(use)
}
