package config

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
)

// SameAs tells whether two checkers are the same but for where they stand.
func (c *Checker) SameAs(o *Checker) bool {
	if c == o {
		return true
	}
	return c.Schedule == o.Schedule && c.Alpha == o.Alpha && c.LogAllFailures == o.LogAllFailures && same(c.File, o.File) && c.AsksSame(o) &&
		(c.HTTP == nil || c.HTTP.FastRecovery == o.HTTP.FastRecovery)
}

// AsksSame tells whether two checkers ask the same question of the same target.
// When and how often (fast_recovery is that too), and what a file's value weighs,
// may differ.
func (c *Checker) AsksSame(o *Checker) bool {
	if c == o {
		return true
	}
	if c.Kind != o.Kind || !c.Conn.same(&o.Conn) || (c.File == nil) != (o.File == nil) || c.File != nil && c.File.Name != o.File.Name {
		return false
	}
	return c.HTTP.asks(o.HTTP) && same(c.SMTP, o.SMTP) && same(c.DNS, o.DNS) && c.UDP.same(o.UDP) && c.Misc.same(o.Misc)
}

// both tells whether there are two values to look into; if not, equal is the answer.
func both[T any](a, b *T) (look, equal bool) {
	return a != nil && b != nil && a != b, a == b
}

func same[T comparable](a, b *T) bool {
	look, equal := both(a, b)
	return equal || look && *a == *b
}

// same looks into Via: those of two configurations are two values.
func (c *Connection) same(o *Connection) bool {
	if c.Via == nil && o.Via == nil {
		return *c == *o
	}
	a, b := *c, *o
	a.Via, b.Via = nil, nil
	return a == b && same(c.Via, o.Via)
}

func (h *HTTP) asks(o *HTTP) bool {
	look, equal := both(h, o)
	if !look {
		return equal
	}
	return h.Protocol == o.Protocol && h.VirtualHost == o.VirtualHost && h.SNI == o.SNI && h.SNIName == o.SNIName &&
		h.SNIVirtualHost == o.SNIVirtualHost && h.TLSCompliant == o.TLSCompliant && h.TLS.same(o.TLS) &&
		slices.EqualFunc(h.URLs, o.URLs, func(a, b URL) bool { return a.same(&b) })
}

func (s *TLS) same(o *TLS) bool {
	look, equal := both(s, o)
	return equal || look && s.Verify == o.Verify && s.CA == o.CA && s.ServerName == o.ServerName && s.ExpiryWarn == o.ExpiryWarn
}

func (u *URL) same(o *URL) bool {
	return u.Path == o.Path && u.VirtualHost == o.VirtualHost && slices.Equal(u.Status, o.Status) && u.Digest == o.Digest &&
		u.HasDigest == o.HasDigest && u.TLSCompliant == o.TLSCompliant && u.Regex.same(o.Regex)
}

func (r *Regex) same(o *Regex) bool {
	look, equal := both(r, o)
	if !look {
		return equal
	}
	return r.Pattern == o.Pattern && r.NoMatch == o.NoMatch && slices.Equal(r.Options, o.Options) &&
		r.MinOffset == o.MinOffset && r.MaxOffset == o.MaxOffset && r.HasMax == o.HasMax
}

func (u *Datagram) same(o *Datagram) bool {
	look, equal := both(u, o)
	if !look {
		return equal
	}
	return octets(u.Payload, o.Payload) && u.Require == o.Require && octets(u.Reply, o.Reply) && octets(u.Mask, o.Mask) &&
		u.Min == o.Min && u.Max == o.Max
}

// octets compares where nil is not the same as none.
func octets(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func (m *Misc) same(o *Misc) bool {
	look, equal := both(m, o)
	if !look {
		return equal
	}
	return m.Timeout == o.Timeout && m.Dynamic == o.Dynamic && m.Script.same(o.Script)
}

func (s *Script) same(o *Script) bool {
	look, equal := both(s, o)
	if !look {
		return equal
	}
	return slices.Equal(s.Argv, o.Argv) && s.User == o.User && s.Group == o.Group
}

// AppendQuestion appends octets that are equal for two checkers exactly when
// AsksSame says so. They are for maps and hashes and the same in every process of
// one version.
func (c *Checker) AppendQuestion(b []byte) []byte {
	made := question(b)
	q := &made
	q.number(int64(c.Kind))
	q.addr(c.Conn.Target.Addr())
	q.addr(c.Conn.BindAddr)
	q.number(int64(c.Conn.Target.Port()), int64(c.Conn.BindPort), int64(c.Conn.FWMark), int64(c.Conn.Timeout), int64(c.Conn.Close))
	q.text(c.Conn.BindIf)
	if v := c.Conn.Via; q.there(v != nil) {
		q.addr(v.Server)
		q.number(int64(v.Forward.Method), int64(v.Forward.Tunnel), int64(v.Forward.Checksum), int64(v.Forward.Port), int64(v.Mark))
	}
	if q.there(c.File != nil) {
		q.text(c.File.Name)
	}
	if h := c.HTTP; q.there(h != nil) {
		q.number(int64(h.Protocol), int64(len(h.URLs)))
		q.text(h.VirtualHost, h.SNIName, h.SNIVirtualHost)
		q.flag(h.SNI, h.TLSCompliant)
		if q.there(h.TLS != nil) {
			q.flag(h.TLS.Verify)
			q.text(h.TLS.CA, h.TLS.ServerName)
			q.number(int64(h.TLS.ExpiryWarn))
		}
		for i := range h.URLs {
			q.url(&h.URLs[i])
		}
	}
	if q.there(c.SMTP != nil) {
		q.text(c.SMTP.Helo)
	}
	if q.there(c.DNS != nil) {
		q.text(c.DNS.Type, c.DNS.Name)
	}
	if u := c.UDP; q.there(u != nil) {
		for _, o := range [][]byte{u.Payload, u.Reply, u.Mask} {
			if q.there(o != nil) {
				*q = append(binary.AppendUvarint(*q, uint64(len(o))), o...)
			}
		}
		q.flag(u.Require)
		q.number(int64(u.Min), int64(u.Max))
	}
	if m := c.Misc; q.there(m != nil) {
		q.number(int64(m.Timeout))
		q.flag(m.Dynamic)
		if s := m.Script; q.there(s != nil) {
			q.number(int64(len(s.Argv)))
			q.text(s.Argv...)
			q.text(s.User, s.Group)
		}
	}
	return made
}

// question is the octets so far.
type question []byte

func (q *question) number(numbers ...int64) {
	for _, n := range numbers {
		*q = binary.AppendVarint(*q, n)
	}
}

func (q *question) text(texts ...string) {
	for _, s := range texts {
		*q = append(binary.AppendUvarint(*q, uint64(len(s))), s...)
	}
}

func (q *question) flag(flags ...bool) {
	for _, f := range flags {
		q.there(f)
	}
}

// there appends whether something is there, and returns it.
func (q *question) there(is bool) bool {
	if is {
		*q = append(*q, 1)
	} else {
		*q = append(*q, 0)
	}
	return is
}

func (q *question) addr(a netip.Addr) {
	var octets [16]byte
	if a.IsValid() {
		octets = a.As16()
	}
	*q = append(append(*q, byte(a.BitLen())), octets[:]...)
	q.text(a.Zone())
}

func (q *question) url(u *URL) {
	q.text(u.Path, u.VirtualHost)
	q.number(int64(len(u.Status)))
	for _, s := range u.Status {
		q.number(int64(s.First), int64(s.Last))
	}
	*q = append(*q, u.Digest[:]...)
	q.flag(u.HasDigest, u.TLSCompliant)
	if r := u.Regex; q.there(r != nil) {
		q.text(r.Pattern)
		q.flag(r.NoMatch, r.HasMax)
		q.number(int64(len(r.Options)), int64(r.MinOffset), int64(r.MaxOffset))
		q.text(r.Options...)
	}
}
