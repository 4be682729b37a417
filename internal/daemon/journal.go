package daemon

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/journal"
)

// fieldPrefix begins the journal's fields that are the daemon's own.
const fieldPrefix = "SLUICE_"

// fieldNames are those of attributes that have a better one in the journal than their
// own.
var fieldNames = map[string]string{"vs": "VIRTUAL_SERVER", "rs": "REAL_SERVER", "vs_label": "LABEL", "rs_label": "LABEL"}

// journalHandler writes records with fields: MESSAGE is the line that the text log has,
// so that grep finds what it always found, and each attribute is SLUICE_NAME besides:
// SLUICE_EVENT, SLUICE_VIRTUAL_SERVER, SLUICE_REAL_SERVER, SLUICE_LABEL (once for each
// that has one), SLUICE_REASON. What the
// journal does not take at once goes the way of a line without fields.
type journalHandler struct {
	lines  *textHandler
	sender *journal.Writer
	// fields are those of WithAttrs.
	fields []journal.Field
}

func newJournalHandler(w io.Writer, level slog.Leveler, socket string) slog.Handler {
	lines := newTextHandler(w, level, true)
	sender, err := journal.Dial(socket)
	if err != nil {
		return lines
	}
	return &journalHandler{lines: lines, sender: sender,
		fields: []journal.Field{{Name: "SYSLOG_IDENTIFIER", Value: filepath.Base(os.Args[0])}}}
}

// Enabled implements slog.Handler.
func (h *journalHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.lines.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.lines = h.lines.WithAttrs(attrs).(*textHandler)
	c.fields = slices.Clone(h.fields)
	for _, a := range attrs {
		c.fields = appendField(c.fields, h.lines.prefix, a)
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *journalHandler) WithGroup(name string) slog.Handler {
	c := *h
	c.lines = h.lines.WithGroup(name).(*textHandler)
	return &c
}

// Handle implements slog.Handler.
func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	fields := append(slices.Clone(h.fields),
		journal.Field{Name: "MESSAGE", Value: string(h.lines.line(nil, r))},
		journal.Field{Name: "PRIORITY", Value: strconv.Itoa(priority(r.Level))})
	r.Attrs(func(a slog.Attr) bool {
		fields = appendField(fields, h.lines.prefix, a)
		return true
	})
	if h.sender.Send(fields...) == nil {
		return nil
	}
	return h.lines.Handle(ctx, r)
}

// appendField appends an attribute; a group becomes its members.
func appendField(fields []journal.Field, prefix string, a slog.Attr) []journal.Field {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, m := range v.Group() {
			fields = appendField(fields, prefix, m)
		}
		return fields
	}
	if a.Equal(slog.Attr{}) {
		return fields
	}
	name := prefix + a.Key
	if known := fieldNames[name]; known != "" {
		name = known
	}
	return append(fields, journal.Field{Name: journal.Name(fieldPrefix + name), Value: event.Text(v)})
}
