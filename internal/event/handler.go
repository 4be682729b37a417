package event

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Attributes that are no mere detail of an event: whom it is about.
const (
	attrVS = "vs"
	attrRS = "rs"
)

// Handler returns a handler that remembers what is an event and passes every record
// on.
func (l *Log) Handler(next slog.Handler) slog.Handler { return &handler{log: l, next: next} }

type handler struct {
	log  *Log
	next slog.Handler
	// with are the attributes of WithAttrs; prefix the open groups, each with a dot
	// behind it.
	with   details
	prefix string
}

// Enabled implements slog.Handler: an event is remembered though the log is not told.
func (h *handler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.next.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		h.remember(r)
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

func (h *handler) remember(r slog.Record) {
	d := h.with
	d.attrs = slices.Clone(d.attrs)
	r.Attrs(func(a slog.Attr) bool { d.add(h.prefix, a); return true })
	if d.kind == "" {
		if r.Level < slog.LevelWarn {
			return
		}
		d.kind = Note
	}
	e := Event{Time: r.Time, Kind: d.kind, Level: levelName(r.Level), Message: cut(r.Message, maxMessage), VirtualServer: d.vs, RealServer: d.rs}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	// Without the monotonic reading: it is shown, and compared over processes.
	e.Time = e.Time.Round(0)
	h.log.add(stored{e, slices.Clip(d.attrs)})
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.next = h.next.WithAttrs(attrs)
	c.with.attrs = slices.Clone(h.with.attrs)
	for _, a := range attrs {
		c.with.add(h.prefix, a)
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.next = h.next.WithGroup(name)
	c.prefix += name + "."
	return &c
}

func levelName(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "error"
	case l >= slog.LevelWarn:
		return "warn"
	}
	return "info"
}

// details are the attributes of one event.
type details struct {
	kind   Kind
	vs, rs string
	attrs  []string
}

// add takes one attribute; a group becomes its members.
func (d *details) add(prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, m := range v.Group() {
			d.add(prefix, m)
		}
		return
	}
	if a.Equal(slog.Attr{}) {
		return
	}
	switch key, text := prefix+a.Key, cut(Text(v), maxText); {
	case key == Key:
		d.kind = Kind(text)
	case key == attrVS:
		d.vs = text
	case key == attrRS:
		d.rs = text
	case len(d.attrs) < 2*maxAttrs:
		d.attrs = append(d.attrs, cut(key, maxText), text)
	}
}

// Text is a value as the text log and events show it, before it is quoted.
func Text(v slog.Value) string {
	v = v.Resolve()
	if v.Kind() == slog.KindTime {
		return v.Time().UTC().Format(time.RFC3339Nano)
	}
	return v.String()
}

// cut shortens a text, between characters, and frees what it was a part of.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	s = s[:limit-len("…")]
	for len(s) > 0 && !utf8.ValidString(s[max(0, len(s)-utf8.UTFMax):]) {
		r, n := utf8.DecodeLastRuneInString(s)
		if r != utf8.RuneError || n > 1 {
			break
		}
		s = s[:len(s)-1]
	}
	return strings.Clone(s) + "…"
}
