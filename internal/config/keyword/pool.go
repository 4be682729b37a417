package keyword

import (
	"encoding/binary"
	"reflect"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
)

// pool holds what stays of a configuration when the file is forgotten: each text
// once, copied out of the line that it stood in, and each of the parts that ten
// thousand checkers may have alike once. It is dropped after the load.
type pool struct {
	texts  map[string]string
	handed shared[config.Handed]
	smtp   shared[config.SMTP]
	dns    shared[config.DNS]
	uses   shared[config.TrackFileUse]
	via    shared[config.Via]
	https  map[string]*config.HTTP
	key    []byte
}

// shared finds the one pointer to a value.
type shared[T comparable] map[T]*T

func (s *shared[T]) of(v T) *T {
	if p := (*s)[v]; p != nil {
		return p
	}
	if *s == nil {
		*s = shared[T]{}
	}
	(*s)[v] = &v
	return &v
}

// text returns the kept copy of a text.
func (p *pool) text(s string) string {
	if s == "" {
		return ""
	}
	if kept, ok := p.texts[s]; ok {
		return kept
	}
	if p.texts == nil {
		p.texts = map[string]string{}
	}
	s = strings.Clone(s)
	p.texts[s] = s
	return s
}

func (p *pool) list(texts []string) []string {
	for i := range texts {
		texts[i] = p.text(texts[i])
	}
	return texts
}

// handedOn returns nil for nothing.
func (p *pool) handedOn(h config.Handed) *config.Handed {
	if h == (config.Handed{}) {
		return nil
	}
	h.VirtualHost, h.SNMPName = p.text(h.VirtualHost), p.text(h.SNMPName)
	return p.handed.of(h)
}

// http returns the one that is kept of equal HTTP checks. One with a regex is kept
// for itself: a mistake in that is found later and has to name its own place.
func (p *pool) http(h config.HTTP) *config.HTTP {
	p.key = p.key[:0]
	add := func(words ...string) {
		for _, w := range words {
			p.key = binary.AppendUvarint(p.key, uint64(len(w)))
			p.key = append(p.key, w...)
		}
	}
	number := func(n int) { p.key = binary.AppendUvarint(p.key, uint64(n)) }
	flag := func(flags ...bool) {
		for _, f := range flags {
			if f {
				p.key = append(p.key, 1)
			} else {
				p.key = append(p.key, 0)
			}
		}
	}
	number(int(h.Protocol))
	add(h.VirtualHost, h.SNIName, h.SNIVirtualHost)
	flag(h.SNI, h.FastRecovery, h.TLSCompliant)
	alone := h.TLS != nil
	for i := range h.URLs {
		u := &h.URLs[i]
		alone = alone || u.Regex != nil
		add(u.Path, u.VirtualHost)
		flag(u.HasDigest, u.TLSCompliant)
		p.key = append(p.key, u.Digest[:]...)
		number(len(u.Status))
		for _, s := range u.Status {
			number(s.First)
			number(s.Last)
		}
	}
	if kept := p.https[string(p.key)]; kept != nil && !alone {
		return kept
	}
	h.VirtualHost, h.SNIName, h.SNIVirtualHost = p.text(h.VirtualHost), p.text(h.SNIName), p.text(h.SNIVirtualHost)
	for i := range h.URLs {
		u := &h.URLs[i]
		u.Path, u.VirtualHost = p.text(u.Path), p.text(u.VirtualHost)
		if r := u.Regex; r != nil {
			r.Pattern, r.Options = p.text(r.Pattern), p.list(r.Options)
		}
	}
	if !alone {
		if p.https == nil {
			p.https = map[string]*config.HTTP{}
		}
		p.https[string(p.key)] = &h
	}
	return &h
}

// script copies the texts of a script.
func (p *pool) script(s *config.Script) {
	if s != nil {
		s.Argv, s.User, s.Group = p.list(s.Argv), p.text(s.User), p.text(s.Group)
	}
}

// own copies the texts that are there once for a configuration or a service.
func (p *pool) own(c *config.Config) {
	p.walk(reflect.ValueOf(&c.Global))
	p.walk(reflect.ValueOf(c.SSL))
	p.walk(reflect.ValueOf(c.TrackFiles))
	p.walk(reflect.ValueOf(c.Files))
	for _, vs := range c.VirtualServers {
		vs.Key.Group = p.text(vs.Key.Group)
		vs.Scheduler, vs.Engine = p.text(vs.Scheduler), p.text(vs.Engine)
		vs.VirtualHost, vs.SNMPName = p.text(vs.VirtualHost), p.text(vs.SNMPName)
		p.script(vs.QuorumUp)
		p.script(vs.QuorumDown)
		for _, rs := range vs.RealServers {
			p.script(rs.NotifyUp)
			p.script(rs.NotifyDown)
			for i := range rs.TrackFiles {
				rs.TrackFiles[i].Name = p.text(rs.TrackFiles[i].Name)
			}
			for _, c := range rs.Checkers {
				c.Conn.BindIf = p.text(c.Conn.BindIf)
				if c.Misc != nil {
					p.script(c.Misc.Script)
				}
			}
		}
	}
}

// walk copies every text that can be reached by exported fields.
func (p *pool) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(p.text(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			p.walk(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			p.walk(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				p.walk(v.Field(i))
			}
		}
	}
}
