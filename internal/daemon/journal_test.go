package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// record reads a record as one text a field, without who wrote it.
func record(t *testing.T, j *testkit.Journal) (fields []string) {
	t.Helper()
	for _, f := range j.Next(t) {
		if f.Name != "SYSLOG_IDENTIFIER" || f.Value == "" {
			fields = append(fields, f.Name+"="+f.Value)
		}
	}
	return fields
}

func TestRecordsForTheJournal(t *testing.T) {
	j := testkit.ListenJournal(t)
	var stderr bytes.Buffer
	log := slog.New(newJournalHandler(&stderr, slog.LevelInfo, j.Path))
	log.Debug("no")
	log.Warn("Removing service [10.0.0.11]:tcp:80 from VS [192.0.2.10]:tcp:80", event.Key, event.ServerDown, "rs", "[10.0.0.11]:tcp:80", "vs", "[192.0.2.10]:tcp:80",
		"vs_label", "shop", "rs_label", "blue", "took", 2*time.Millisecond)
	log.With("script", "/s").WithGroup("g").With("a", 1).Error("foreign\nbytes", "output", "one\nMESSAGE=two\x00", "priority", 0, "err", errors.New("e"))
	for _, want := range [][]string{
		{"MESSAGE=Removing service [10.0.0.11]:tcp:80 from VS [192.0.2.10]:tcp:80 rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 vs_label=shop rs_label=blue took=2ms", "PRIORITY=4",
			"SLUICE_EVENT=server_down", "SLUICE_REAL_SERVER=[10.0.0.11]:tcp:80", "SLUICE_VIRTUAL_SERVER=[192.0.2.10]:tcp:80", "SLUICE_LABEL=shop", "SLUICE_LABEL=blue", "SLUICE_TOOK=2ms"},
		{"SLUICE_SCRIPT=/s", "SLUICE_G_A=1", `MESSAGE=foreign\nbytes script=/s g.a=1 g.output="one\nMESSAGE=two\x00" g.priority=0 g.err=e`, "PRIORITY=3",
			"SLUICE_G_OUTPUT=one\nMESSAGE=two\x00", "SLUICE_G_PRIORITY=0", "SLUICE_G_ERR=e"},
	} {
		if diff := cmp.Diff(want, record(t, j)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if stderr.Len() > 0 {
		t.Errorf("besides: %s", &stderr)
	}
}

// TestWithoutTheJournal no line is lost: it goes the way of a line without fields.
func TestWithoutTheJournal(t *testing.T) {
	var stderr bytes.Buffer
	log := slog.New(newJournalHandler(&stderr, slog.LevelInfo, filepath.Join(t.TempDir(), "none")))
	log.With("a", 1).Error("Lost quorum", event.Key, event.QuorumLost, "vs", "FWM 5")
	if got, want := stderr.String(), "<3>Lost quorum a=1 vs=\"FWM 5\"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// One that does not read is as good as none.
	j := testkit.ListenJournal(t)
	log = slog.New(newJournalHandler(&stderr, slog.LevelInfo, j.Path))
	for i := 0; stderr.Len() < 1000; i++ {
		if i > 1e6 {
			t.Fatal("a journal that does not read is never full")
		}
		log.Info(strings.Repeat("x", 500))
	}
}

// TestTheKindIsForPrograms: text leaves it out, JSON has it.
func TestTheKindIsForPrograms(t *testing.T) {
	for format, want := range map[string]string{"text": " WARN x vs=v g.event=e\n", "json": `"msg":"x","event":"server_down","vs":"v","g":{"event":"e"}}`} {
		var buf bytes.Buffer
		log, err := NewLogger(&buf, format, slog.LevelInfo)
		if err != nil {
			t.Fatal(err)
		}
		log.With(event.Key, event.ServerDown).Warn("x", "vs", "v", slog.Group("g", event.Key, "e"))
		if !strings.Contains(buf.String(), want) {
			t.Errorf("%s: %s", format, &buf)
		}
	}
}
