package config

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Print writes the effective configuration: the same language again, with every
// default and every inherited value spelled out where it acts, in file order.
// What a file asked for and this daemon does not have is left out. Extensions
// stand in "#sluice" comments, so that keepalived reads the output too. Reading
// it gives an equal configuration, positions aside, with one exception: where
// two blocks of one real server were merged, a check of the second block whose
// Host header came from that block prints it as its own virtualhost.
func Print(w io.Writer, c *Config) error {
	b := bufio.NewWriter(w)
	p := &printer{w: b}
	late := scriptUserLate(c)
	p.global(&c.Global, late)
	if s := c.SSL; s != nil {
		p.open("SSL")
		p.text("certificate", s.Certificate)
		p.text("key", s.Key)
		p.text("password", s.Password)
		p.text("ca", s.CA)
		p.close()
	}
	for _, t := range c.TrackFiles {
		p.trackFile(t)
	}
	groups := map[string]bool{}
	for _, vs := range c.VirtualServers {
		if g := vs.Key.Group; g != "" && !groups[g] {
			groups[g] = true
			p.group(vs)
		}
		p.virtual(&c.Global, vs)
	}
	if late {
		p.open("global_defs")
		p.scriptUser(&c.Global)
		p.close()
	}
	return b.Flush()
}

// printer writes statements with their indentation. Errors are kept by the
// bufio.Writer below it.
type printer struct {
	w     *bufio.Writer
	depth int
}

func (p *printer) line(words ...string) {
	for range p.depth {
		p.w.WriteByte('\t')
	}
	p.w.WriteString(strings.Join(words, " "))
	p.w.WriteByte('\n')
}

func (p *printer) ext(words ...string) { p.line("#sluice " + strings.Join(words, " ")) }

func (p *printer) open(words ...string) {
	p.line(append(words, "{")...)
	p.depth++
}

func (p *printer) close() {
	p.depth--
	p.line("}")
}

// text prints a string that is set.
func (p *printer) text(keyword, s string) {
	if s != "" {
		p.line(keyword, word(s))
	}
}

func (p *printer) flag(keyword string, on bool) {
	if on {
		p.line(keyword)
	}
}

func number[T int | int32 | int64 | uint8 | uint16 | uint32](n T) string {
	return strconv.FormatInt(int64(n), 10)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Word writes a token as a file of configuration has it, in quotes where it must be.
func Word(s string) string { return word(s) }

// word quotes a token that the ordinary rules would take apart, or take for a
// condition or a loop at the start of a line.
func word(s string) string {
	if s == "" || strings.ContainsAny(s, " \t\r\n\f\v{}#!\\") || s[0] == '@' || s[0] == '~' {
		return `"` + s + `"`
	}
	return s
}

// timer prints seconds with up to six decimals.
func timer(d time.Duration) string {
	s := strconv.FormatInt(int64(d/time.Second), 10)
	if us := int64(d % time.Second / time.Microsecond); us != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%06d", us), "0")
	}
	return s
}

// escaped quotes a word for the script rules. Whatever a rule of the language
// could act on becomes an octal sequence, which only the last step resolves.
func escaped(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c <= ' ' || c == 0x7f || strings.IndexByte("\"'\\#!${}@~", c) >= 0:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// command prints a script without its user.
func command(s *Script) string {
	words := make([]string, len(s.Argv))
	for i, a := range s.Argv {
		if words[i] = escaped(a); a == "" {
			words[i] = "''"
		}
	}
	return `"` + strings.Join(words, " ") + `"`
}

func (p *printer) script(keyword string, s *Script) {
	if s == nil {
		return
	}
	line := []string{keyword, command(s)}
	if s.User != "" {
		line = append(line, s.User)
		if s.Group != "" {
			line = append(line, s.Group)
		}
	}
	p.line(line...)
}

func (p *printer) trackFile(t *TrackFile) {
	p.open("track_file", word(t.Name))
	p.line("file", word(t.Path))
	if t.Reverse {
		p.line("weight", number(t.Weight), "reverse")
	} else {
		p.line("weight", number(t.Weight))
	}
	if t.InitSet {
		line := []string{"init_file", number(t.Init)}
		if t.InitOverwrite {
			line = append(line, "overwrite")
		}
		p.line(line...)
	}
	p.close()
}

// place prints an address with its port, if it has one.
func place(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.Addr().String() + " " + number(a.Port())
}

func (p *printer) group(vs *VirtualServer) {
	p.open("virtual_server_group", word(vs.Key.Group))
	for _, e := range vs.Entries {
		if e.FWMark != 0 {
			p.line("fwmark", number(e.FWMark), e.Family.String())
		} else {
			p.line(place(e.Addr))
		}
	}
	p.close()
}

func (p *printer) method(keyword string, f Forwarding) {
	words := []string{keyword, f.Method.String()}
	switch f.Tunnel {
	case GUE:
		words = append(words, "type gue port", number(f.Port))
	case GRE:
		words = append(words, "type gre")
	}
	switch f.Checksum {
	case Csum:
		words = append(words, "csum")
	case RemCsum:
		words = append(words, "remcsum")
	}
	p.line(words...)
}

func (p *printer) virtual(g *Global, vs *VirtualServer) {
	switch {
	case vs.Key.Group != "":
		p.open("virtual_server group", word(vs.Key.Group))
	case vs.Key.FWMark != 0:
		p.open("virtual_server fwmark", number(vs.Key.FWMark))
		p.line("ip_family", vs.Key.Family.String())
	default:
		p.open("virtual_server", place(vs.Key.Addr))
	}
	if vs.Protocol != None {
		p.line("protocol", vs.Protocol.String())
	}
	p.line("lvs_sched", vs.Scheduler)
	p.miscLoop(vs)
	p.flag("flag-1", vs.Flags.Flag1)
	p.flag("flag-2", vs.Flags.Flag2)
	p.flag("flag-3", vs.Flags.Flag3)
	p.flag("ops", vs.Flags.OnePacket)
	p.granularity(vs)
	if vs.Persistence != 0 {
		p.line("persistence_timeout", number(vs.Persistence))
	}
	p.text("persistence_engine", vs.Engine)
	p.line("quorum", number(vs.Quorum))
	p.line("hysteresis", number(vs.Hysteresis))
	p.script("quorum_up", vs.QuorumUp)
	p.script("quorum_down", vs.QuorumDown)
	p.flag("omega", vs.Omega)
	p.flag("ha_suspend", vs.HASuspend)
	p.line("smtp_alert", yesNo(vs.SMTPAlert))
	p.text("virtualhost", vs.VirtualHost)
	p.text("snmp_name", vs.SNMPName)
	p.label(vs.Label)
	p.departure(vs, g)
	if vs.DrainTimeout != g.DrainTimeout {
		p.ext("drain_timeout", timer(vs.DrainTimeout))
	}
	p.protection(vs)
	p.vip(vs)
	if s := vs.Sorry; s != nil {
		p.line("sorry_server", place(s.Key.AddrPort))
		p.method("sorry_server_lvs_method", s.Forward)
		p.flag("sorry_server_inhibit", s.Inhibit)
	}
	for _, rs := range vs.RealServers {
		p.real(vs, rs)
	}
	p.close()
}

func (p *printer) granularity(vs *VirtualServer) {
	if vs.Granularity == 0 {
		return
	}
	family := vs.Key.Family
	if family == FamilyUnknown {
		family = vs.Entries[0].Family
	}
	if family == IPv6 {
		p.line("persistence_granularity", number(vs.Granularity))
		return
	}
	n := vs.Granularity
	p.line("persistence_granularity", netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String())
}

func (p *printer) real(vs *VirtualServer, rs *RealServer) {
	p.open("real_server", place(rs.Key.AddrPort))
	p.method("lvs_method", rs.Forward)
	p.line("weight", number(rs.Weight))
	if rs.UpperThreshold != 0 {
		p.line("uthreshold", number(rs.UpperThreshold))
	}
	if rs.LowerThreshold != 0 {
		p.line("lthreshold", number(rs.LowerThreshold))
	}
	p.line("inhibit_on_failure", yesNo(rs.Inhibit))
	handed := rs.HandedOn()
	p.line("alpha", yesNo(handed.Alpha))
	p.line("smtp_alert", yesNo(rs.SMTPAlert))
	p.text("virtualhost", handed.VirtualHost)
	p.text("snmp_name", handed.SNMPName)
	p.script("notify_up", rs.NotifyUp)
	p.script("notify_down", rs.NotifyDown)
	p.label(rs.Label)
	p.via(rs)
	for _, u := range rs.TrackFiles {
		p.ext("track_file", word(u.Name), "weight", number(u.Weight), reverse(u.Reverse))
	}
	if rs.DrainTimeout != vs.DrainTimeout {
		p.ext("drain_timeout", timer(rs.DrainTimeout))
	}
	if rs.SlowStart != 0 {
		p.ext("slow_start", timer(rs.SlowStart))
	}
	for _, c := range rs.Checkers {
		p.checker(vs, rs, c)
	}
	p.close()
}

func reverse(b bool) string {
	if b {
		return "reverse"
	}
	return "noreverse"
}

var httpProtocols = map[HTTPProtocol]string{HTTP10: "1.0", HTTP10C: "1.0C", HTTP11: "1.1"}

func (p *printer) http(vs *VirtualServer, rs *RealServer, c *Checker) {
	h := c.HTTP
	p.line("http_protocol", httpProtocols[h.Protocol])
	inherited := rs.HandedOn().VirtualHost
	if inherited == "" {
		inherited = vs.VirtualHost
	}
	if h.VirtualHost != inherited || h.SNIVirtualHost != vs.VirtualHost {
		p.text("virtualhost", h.VirtualHost)
	}
	p.text("sni_name", h.SNIName)
	p.line("enable_sni", yesNo(h.SNI))
	p.line("fast_recovery", yesNo(h.FastRecovery))
	if c.Kind == SSLGet {
		p.line("tls_compliant", yesNo(h.TLSCompliant))
		p.tls(h.TLS)
	}
	for i := range h.URLs {
		p.url(c.Kind, &h.URLs[i])
	}
}

func (p *printer) url(kind CheckerKind, u *URL) {
	p.open("url")
	defer p.close()
	p.line("path", word(u.Path))
	p.text("virtualhost", u.VirtualHost)
	codes := []string{"status_code"}
	for _, r := range u.Status {
		if r.First == r.Last {
			codes = append(codes, strconv.Itoa(r.First))
		} else {
			codes = append(codes, fmt.Sprintf("%d-%d", r.First, r.Last))
		}
	}
	p.line(codes...)
	if u.HasDigest {
		p.line("digest", hex.EncodeToString(u.Digest[:]))
	}
	if kind == SSLGet {
		p.line("tls_compliant", yesNo(u.TLSCompliant))
	}
	r := u.Regex
	if r == nil {
		return
	}
	p.line("regex", `"`+escaped(r.Pattern)+`"`)
	p.flag("regex_no_match", r.NoMatch)
	if len(r.Options) > 0 {
		p.line("regex_options", strings.Join(r.Options, " "))
	}
	if r.MinOffset != 0 {
		p.line("regex_min_offset", strconv.Itoa(r.MinOffset))
	}
	if r.HasMax {
		p.line("regex_max_offset", strconv.Itoa(r.MaxOffset))
	}
}
