package journal

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"took": "TOOK", "retry_in": "RETRY_IN", "a.b-c": "A_B_C", "_pid": "PID", "9lives": "LIVES", "": "", "__": "", "é1x": "X",
		strings.Repeat("a", 70): strings.Repeat("A", 64), "\xff": "",
	} {
		if got := Name(in); got != want {
			t.Errorf("Name(%q) is %q, want %q", in, got, want)
		}
	}
}

// receive reads one record.
func receive(t *testing.T, j *testkit.Journal) (fields []Field) {
	t.Helper()
	for _, f := range j.Next(t) {
		fields = append(fields, Field(f))
	}
	return fields
}

func dial(t *testing.T, path string) *Writer {
	t.Helper()
	w, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func TestRecordsArriveWhole(t *testing.T) {
	j := testkit.ListenJournal(t)
	path := j.Path
	w := dial(t, path)
	for name, fields := range map[string][]Field{
		"plain":    {{"MESSAGE", "Lost quorum"}, {"PRIORITY", "4"}},
		"newlines": {{"MESSAGE", "one\ntwo\nMESSAGE=forged\n"}, {"SLUICE_ERR", "\n"}, {"EMPTY", ""}},
		"binary":   {{"MESSAGE", "\x00\xff=\n\x01"}},
		// More than a datagram takes.
		"big": {{"MESSAGE", "x"}, {"SLUICE_OUTPUT", strings.Repeat("line\n", 4<<20)}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := w.Send(fields...); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fields, receive(t, j)); diff != "" {
				t.Errorf("(-want +got):\n%.2000s", diff)
			}
		})
	}
}

// TestAJournalThatDoesNotRead: a sender is told at once, and goes on when it reads
// again, or when another one is there.
func TestAJournalThatDoesNotRead(t *testing.T) {
	j := testkit.ListenJournal(t)
	path := j.Path
	w := dial(t, path)
	sent := 0
	var err error
	for ; err == nil; sent++ {
		if sent > 1e6 {
			t.Fatal("a socket that nobody reads is never full")
		}
		err = w.Send(Field{"MESSAGE", strings.Repeat("x", 1000)})
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Errorf("full: %v", err)
	}
	receive(t, j)
	if err := w.Send(Field{"MESSAGE", "again"}); err != nil {
		t.Errorf("after one was read: %v", err)
	}
	j.Close()
	if err := w.Send(Field{"MESSAGE", "x"}); err == nil {
		t.Error("without a journal nothing failed")
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := w.Send(Field{"MESSAGE", "x"}); !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), path) {
		t.Errorf("without its socket: %v", err)
	}
	j = testkit.ListenJournalAt(t, path)
	if err := w.Send(Field{"MESSAGE", "new"}); err != nil {
		t.Error(err)
	}
	if got := receive(t, j); got[0].Value != "new" {
		t.Errorf("got %v", got)
	}
}

func FuzzEncode(f *testing.F) {
	f.Add("MESSAGE", "text", "sluice.vs", "a\nb")
	f.Add("", "=", "_X", "\n")
	f.Add("A=B", "\x00\xff", "A\nB", "x\n")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		want := []Field{}
		all := []Field{{Name(k1), v1}, {Name(k2), v2}, {k1, v1}, {k2, v2}}
		for _, f := range all {
			if f.Name != "" && f.Name == Name(f.Name) {
				want = append(want, f)
			}
		}
		decoded, err := testkit.DecodeJournal(Encode(nil, all...))
		if err != nil {
			t.Fatal(err)
		}
		got := []Field{}
		for _, f := range decoded {
			got = append(got, Field(f))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
