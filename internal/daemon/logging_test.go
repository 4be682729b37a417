package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"golang.org/x/sys/unix"
)

func TestTextForPeople(t *testing.T) {
	at := time.Date(2026, 11, 30, 11, 2, 11, 123456789, time.FixedZone("CET", 3600))
	for _, tc := range []struct {
		name    string
		journal bool
		level   slog.Level
		msg     string
		attrs   []any
		want    string
	}{
		{"a removal", false, slog.LevelWarn, "Removing service [10.0.0.11]:tcp:80 from VS [192.0.2.10]:tcp:80",
			[]any{"checker", "HTTP_GET", "reason", "status 503, want 200", "attempt", 4, "took", 212 * time.Millisecond},
			`2026-11-30T10:02:11.123Z WARN Removing service [10.0.0.11]:tcp:80 from VS [192.0.2.10]:tcp:80 checker=HTTP_GET reason="status 503, want 200" attempt=4 took=212ms`},
		{"for the journal", true, slog.LevelWarn, "Lost quorum", []any{"vs", "FWM 5"}, `<4>Lost quorum vs="FWM 5"`},
		{"error", true, slog.LevelError, "x", nil, "<3>x"},
		{"info", true, slog.LevelInfo, "x", nil, "<6>x"},
		{"debug", true, slog.LevelDebug, "x", nil, "<7>x"},
		{"groups", false, slog.LevelInfo, "x", []any{slog.Group("a", "b", 1, slog.Group("c", "d", true))},
			"2026-11-30T10:02:11.123Z INFO x a.b=1 a.c.d=true"},
		{"quotes", false, slog.LevelInfo, "x", []any{"empty", "", "eq", "a=b", "q", `say "hi"`, "err", errors.New("a b")},
			`2026-11-30T10:02:11.123Z INFO x empty="" eq="a=b" q="say \"hi\"" err="a b"`},
		{"times are UTC", false, slog.LevelInfo, "x", []any{"since", at}, "2026-11-30T10:02:11.123Z INFO x since=2026-11-30T10:02:11.123456789Z"},
		{"foreign bytes cannot forge a line", true, slog.LevelInfo, "a\n<0>b\x1b[31m\xff", []any{"r", "c\n<0>d\x1b"},
			`<6>a\n<0>b\x1b[31m� r="c\n<0>d\x1b"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var buf bytes.Buffer
			h := newTextHandler(&buf, slog.LevelDebug, tc.journal)
			r := slog.NewRecord(at, tc.level, tc.msg, 0)
			r.Add(tc.attrs...)
			if err := h.Handle(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if got := buf.String(); got != tc.want+"\n" {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// slog's own conformance suite, over the text form read back.
func TestTextHandlerConforms(t *testing.T) {
	var buf bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		buf.Reset()
		return newTextHandler(&buf, slog.LevelInfo, false)
	}, func(t *testing.T) map[string]any { return parseLine(t, buf.String()) })
}

// parseLine reads what textHandler writes for messages of one word.
func parseLine(t *testing.T, line string) map[string]any {
	m := map[string]any{}
	rest := strings.TrimSuffix(line, "\n")
	word, more, _ := strings.Cut(rest, " ")
	if at, err := time.Parse(time.RFC3339, word); err == nil {
		m[slog.TimeKey] = at
		word, more, _ = strings.Cut(more, " ")
	}
	m[slog.LevelKey] = word
	m[slog.MessageKey], more, _ = strings.Cut(more, " ")
	for more != "" {
		key, value, ok := strings.Cut(more, "=")
		if !ok {
			t.Fatalf("no key=value in %q of %q", more, line)
		}
		if q, err := strconv.QuotedPrefix(value); err == nil {
			more = strings.TrimPrefix(value[len(q):], " ")
			value, _ = strconv.Unquote(q)
		} else {
			value, more, _ = strings.Cut(value, " ")
		}
		in := m
		path := strings.Split(key, ".")
		for _, g := range path[:len(path)-1] {
			if _, ok := in[g]; !ok {
				in[g] = map[string]any{}
			}
			in = in[g].(map[string]any)
		}
		in[path[len(path)-1]] = value
	}
	return m
}

func TestNewLogger(t *testing.T) {
	var buf bytes.Buffer
	log, err := NewLogger(&buf, "json", slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("no")
	log.Info("Ready", "virtual_servers", 2)
	var got map[string]any
	if err := json.Unmarshal(buf.Bytes(), &got); err != nil || got["msg"] != "Ready" || got["virtual_servers"] != 2.0 {
		t.Errorf("json %q, %v", buf.String(), err)
	}
	buf.Reset()
	log, err = NewLogger(&buf, "text", slog.LevelWarn)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("no")
	log.Warn("yes")
	if !strings.HasSuffix(buf.String(), "Z WARN yes\n") || strings.Contains(buf.String(), "no") {
		t.Errorf("text %q", buf.String())
	}
	if _, err := NewLogger(&buf, "xml", slog.LevelInfo); err == nil || !strings.Contains(err.Error(), `"xml"`) {
		t.Errorf("format xml: %v", err)
	}
}

func TestIsJournal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	this := fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	if !isJournal(f, this) {
		t.Error("the stream itself was not recognised")
	}
	if isJournal(f, fmt.Sprintf("%d:%d", st.Dev, st.Ino+1)) || isJournal(f, "") || isJournal(&bytes.Buffer{}, this) {
		t.Error("something else was taken for the journal")
	}
}
