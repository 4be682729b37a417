package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/journal"
)

// NewLogger returns a logger that writes records of the level and above.
//
// Format "json" is slog's JSON. Format "text" is for people: time, level, the
// message as it is, then key=value. When w is the journal, records go to its own
// socket with each attribute as a field (journalHandler). Levels mean what package
// event says.
func NewLogger(w io.Writer, format string, level slog.Leveler) (*slog.Logger, error) {
	switch format {
	case "text":
		if isJournal(w, os.Getenv("JOURNAL_STREAM")) {
			return slog.New(newJournalHandler(w, level, journal.Socket)), nil
		}
		return slog.New(newTextHandler(w, level, false)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})), nil
	}
	return nil, fmt.Errorf("log format %q is not known, use text or json", format)
}

// isJournal tells whether w is the stream that systemd connected to the
// journal, which it names by device and inode in JOURNAL_STREAM.
func isJournal(w io.Writer, stream string) bool {
	f, ok := w.(*os.File)
	if !ok || stream == "" {
		return false
	}
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	return stream == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// textHandler writes lines for people. For the journal, which keeps a time and a
// priority of its own, they start with "<4>" instead (sd-daemon(3)).
type textHandler struct {
	level   slog.Leveler
	journal bool
	// attrs are those of WithAttrs, rendered; prefix the open groups, each with
	// a dot behind it.
	attrs  []byte
	prefix string

	mu *sync.Mutex
	w  io.Writer
}

func newTextHandler(w io.Writer, level slog.Leveler, journal bool) *textHandler {
	return &textHandler{level: level, journal: journal, mu: new(sync.Mutex), w: w}
}

// Enabled implements slog.Handler.
func (h *textHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// WithAttrs implements slog.Handler.
func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = bytes.Clone(h.attrs)
	for _, a := range attrs {
		c.attrs = appendAttr(c.attrs, h.prefix, a)
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *textHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.prefix += name + "."
	return &c
}

// Handle implements slog.Handler. A record is one write of one line.
func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	b := make([]byte, 0, 256)
	if h.journal {
		b = fmt.Appendf(b, "<%d>", priority(r.Level))
	} else {
		if !r.Time.IsZero() {
			b = r.Time.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z ")
		}
		b = append(append(b, r.Level.String()...), ' ')
	}
	b = append(h.line(b, r), '\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.w.Write(b)
	return err
}

// line appends the message and the attributes.
func (h *textHandler) line(b []byte, r slog.Record) []byte {
	b = appendClean(b, r.Message)
	b = append(b, h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		b = appendAttr(b, h.prefix, a)
		return true
	})
	return b
}

// priority maps a level to syslog's.
func priority(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return 3
	case l >= slog.LevelWarn:
		return 4
	case l >= slog.LevelInfo:
		return 6
	}
	return 7
}

// appendAttr appends " prefix.key=value"; a group becomes its members. The kind is for
// programs, and people have the message.
func appendAttr(b []byte, prefix string, a slog.Attr) []byte {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, m := range v.Group() {
			b = appendAttr(b, prefix, m)
		}
		return b
	}
	if a.Equal(slog.Attr{}) || prefix == "" && a.Key == event.Key {
		return b
	}
	b = append(append(append(b, ' '), prefix...), a.Key...)
	b = append(b, '=')
	s := event.Text(v)
	if needsQuotes(s) {
		return strconv.AppendQuote(b, s)
	}
	return append(b, s...)
}

func needsQuotes(s string) bool {
	if s == "" {
		return true
	}
	for _, r := range s {
		if r == ' ' || r == '"' || r == '=' || r == '\\' || r == utf8.RuneError || !unicode.IsPrint(r) {
			return true
		}
	}
	return false
}

// appendClean appends a message without what could end the line or steer a
// terminal.
func appendClean(b []byte, s string) []byte {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			q := strconv.QuoteRune(r)
			b = append(b, q[1:len(q)-1]...)
			continue
		}
		b = utf8.AppendRune(b, r)
	}
	return b
}
