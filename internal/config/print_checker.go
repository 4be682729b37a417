package config

import (
	"encoding/hex"
	"time"
)

func (p *printer) checker(vs *VirtualServer, rs *RealServer, c *Checker) {
	p.open(c.Kind.String())
	defer p.close()
	if c.File != nil {
		p.line("track_file", word(c.File.Name))
		p.line("weight", number(c.File.Weight), reverse(c.File.Reverse))
		return
	}
	if c.Misc == nil {
		p.connection(&c.Conn)
	}
	p.line("delay_loop", timer(c.DelayLoop))
	p.line("delay_before_retry", timer(c.DelayBeforeRetry))
	p.line("retry", number(c.Retry))
	p.ext("rise", number(c.Rise))
	p.line("warmup", timer(c.Warmup))
	p.line("alpha", yesNo(c.Alpha))
	p.line("log_all_failures", yesNo(c.LogAllFailures))
	switch {
	case c.HTTP != nil:
		p.http(vs, rs, c)
	case c.SMTP != nil:
		p.line("helo_name", word(c.SMTP.Helo))
	case c.DNS != nil:
		p.line("type", c.DNS.Type)
		p.text("name", c.DNS.Name)
	case c.UDP != nil:
		p.datagram(c.UDP)
	case c.Misc != nil:
		p.misc(c.Misc)
	}
}

func (p *printer) connection(c *Connection) {
	if c.Via == nil { // else it is a virtual address, which check_via says
		p.line("connect_ip", c.Target.Addr().String())
	}
	if c.Target.Port() != 0 {
		p.line("connect_port", number(c.Target.Port()))
	}
	if c.BindAddr.IsValid() {
		p.line("bindto", c.BindAddr.String())
	}
	if c.BindPort != 0 {
		p.line("bind_port", number(c.BindPort))
	}
	p.text("bind_if", c.BindIf)
	if c.FWMark != 0 && c.Via == nil {
		p.line("fwmark", number(c.FWMark))
	}
	p.line("connect_timeout", timer(c.Timeout))
	p.end(c)
}

func (p *printer) datagram(u *Datagram) {
	if len(u.Payload) > 0 {
		p.line("payload", hex.EncodeToString(u.Payload))
	}
	if !u.Require {
		p.lengths(u)
		return
	}
	digits := []byte(hex.EncodeToString(u.Reply))
	for i := range digits {
		if half := u.Mask[i/2] >> (4 * (1 - i%2)) & 0xf; half == 0 {
			digits[i] = 'x'
		}
	}
	p.line(append([]string{"require_reply"}, optional(string(digits))...)...)
	p.lengths(u)
}

func (p *printer) lengths(u *Datagram) {
	p.line("min_reply_length", number(u.Min))
	p.line("max_reply_length", number(u.Max))
}

// optional is a word that may be missing.
func optional(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// maxMiscTimeout is the longest misc_timeout.
const maxMiscTimeout = 4294 * time.Second

// says tells whether misc_timeout can say a time; it is in whole seconds.
func says(d time.Duration) bool { return d%time.Second == 0 && d <= maxMiscTimeout }

// miscLoop prints the virtual server's delay_loop where it is the timeout of a
// MISC_CHECK and misc_timeout cannot say it. All else that inherits it has its
// own line.
func (p *printer) miscLoop(vs *VirtualServer) {
	for _, rs := range vs.RealServers {
		for _, c := range rs.Checkers {
			if c.Misc != nil && !says(c.Misc.Timeout) {
				p.line("delay_loop", timer(c.Misc.Timeout))
				return
			}
		}
	}
}

func (p *printer) misc(m *Misc) {
	p.line("misc_path", command(m.Script))
	if u := m.Script.User; u != "" {
		line := []string{"user", word(u)}
		if g := m.Script.Group; g != "" {
			line = append(line, word(g))
		}
		p.line(line...)
	}
	if says(m.Timeout) {
		p.whole("misc_timeout", m.Timeout)
	}
	p.flag("misc_dynamic", m.Dynamic)
}
