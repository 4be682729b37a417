package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func sample() *State {
	return &State{
		Version: Version, Saved: noon, Generation: 7,
		Services: []Service{
			{Service: "192.0.2.1:80/tcp", Destinations: []Destination{
				{Destination: "10.0.0.1:80"},
				{Destination: "10.0.0.2:80", Drain: &Drain{Since: noon, Why: "removed from the configuration"}},
			}},
			{Service: "fwmark 5/inet6", DrainTimeout: time.Minute},
		},
		VirtualServers: []VirtualServer{{"[192.0.2.1]:tcp:80", true}},
		Verdicts:       []Verdict{{Key: Key{"[192.0.2.1]:tcp:80", "10.0.0.1:80", "ab"}, At: noon, Reason: "refused"}},
		Operator:       json.RawMessage(`{"drains":[1]}`),
	}
}

// same compares two states; the operators' part as JSON.
func same(t *testing.T, want, got *State) {
	t.Helper()
	compact := cmp.Transformer("compact", func(r json.RawMessage) string {
		var b bytes.Buffer
		if json.Compact(&b, r) != nil {
			return string(r)
		}
		return b.String()
	})
	if diff := cmp.Diff(want, got, compact); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEncodeDecode(t *testing.T) {
	b, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	same(t, sample(), got)
}

func TestDecodeRefuses(t *testing.T) {
	for text, newer := range map[string]bool{
		"":                false,
		"null":            false,
		"{}":              false,
		`{"version":0}`:   false,
		`{"version":-1}`:  false,
		`{"version":"1"}`: false,
		`{"version":1}x`:  false,
		`{"version":1,"services":[{"service":""}]}`:                                                           false,
		`{"version":1,"services":[{"service":"a"},{"service":"a"}]}`:                                          false,
		`{"version":1,"services":[{"service":"a","drain_timeout_ns":-1}]}`:                                    false,
		`{"version":1,"services":[{"service":"a","destinations":[{"destination":""}]}]}`:                      false,
		`{"version":1,"services":[{"service":"a","destinations":[{"destination":"b"},{"destination":"b"}]}]}`: false,
		`{"version":1,"verdicts":[{"virtual_server":"a","real_server":"b"}]}`:                                 false,
		`{"version":1,"verdicts":[{"virtual_server":"a","real_server":"b","checker":"c","at":"yesterday"}]}`:  false,
		`{"version":2}`: true,
		`{"version":2,"services":"another shape"}`: true,
	} {
		s, err := Decode([]byte(text))
		if err == nil || s != nil || errors.Is(err, ErrNewer) != newer {
			t.Errorf("%q: %+v, %v; want an error, newer %t", text, s, err, newer)
		}
	}
	// A field of a later release of the same format is no reason.
	if _, err := Decode([]byte(`{"version":1,"more":{}}`)); err != nil {
		t.Error(err)
	}
}

// FuzzDecode: no file makes it panic, and what it takes survives being written
// again.
func FuzzDecode(f *testing.F) {
	b, err := Encode(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte(`{"version":1,"services":null,"operator":null,"verdicts":[]}`))
	f.Add([]byte(`{"version":99}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		if err != nil {
			if s != nil {
				t.Fatal("a state with an error")
			}
			return
		}
		one, err := Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(one)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, one)
		}
		two, err := Encode(again)
		if err != nil || !bytes.Equal(one, two) {
			t.Fatalf("written twice, it differs (%v):\n%s\n%s", err, one, two)
		}
	})
}

func open(t *testing.T, path string) (*Dir, *strings.Builder) {
	t.Helper()
	log := &strings.Builder{}
	d, err := Open(path, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, log
}

func write(t *testing.T, d *Dir, s *State) {
	t.Helper()
	w := NewWriter(d, d.log)
	w.Save(s)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	d, log := open(t, path)
	if s := d.Load(); s != nil {
		t.Errorf("a new folder holds %+v", s)
	}
	write(t, d, sample())
	same(t, sample(), d.Load())
	for name, want := range map[string]os.FileMode{path: 0o700, d.File(): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %o", name, info.Mode(), err, want)
		}
	}
	if log.Len() > 0 {
		t.Error("logged:", log)
	}
	names(t, path, "lock", "state.json")
}

// names checks which files a folder holds; a trailing * stands for anything.
func names(t *testing.T, path string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil || len(entries) != len(want) {
		t.Errorf("%s holds %v, %v; want %v", path, entries, err, want)
		return
	}
	for i, e := range entries {
		if ok, _ := filepath.Match(want[i], e.Name()); !ok {
			t.Errorf("%s holds %v, want %v", path, entries, want)
		}
	}
}

// TestUselessFiles are set aside, for people to look at, and the next state is
// written all the same.
func TestUselessFiles(t *testing.T) {
	whole, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	for kind, content := range map[string][]byte{
		"damaged": whole[:len(whole)-9],
		"newer":   []byte(`{"version": 2}`),
	} {
		path := t.TempDir()
		d, log := open(t, path)
		if err := os.WriteFile(d.File(), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if s := d.Load(); s != nil {
			t.Errorf("%s: loaded %+v", kind, s)
		}
		if !strings.Contains(log.String(), "state.json."+kind+"-2") {
			t.Errorf("%s: logged %q", kind, log)
		}
		write(t, d, sample())
		same(t, sample(), d.Load())
		names(t, path, "lock", "state.json", "state.json."+kind+"-*Z")
		kept, _ := filepath.Glob(filepath.Join(path, "state.json."+kind+"-*"))
		if b, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(b, content) {
			t.Errorf("%s: what was set aside is %q, %v", kind, b, err)
		}
	}
}

// TestFolderIsForOne: until its process ends, however that is.
func TestFolderIsForOne(t *testing.T) {
	path := t.TempDir()
	d, _ := open(t, path)
	if _, err := Open(path, slog.Default()); !errors.Is(err, ErrLocked) {
		t.Errorf("a second time: %v", err)
	}
	d.Close()
	open(t, path)
}

func TestLeftoversOfACrashGo(t *testing.T) {
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "state.json.tmp-123"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, path)
	names(t, path, "lock")
}

// TestWriterUnderChurn: a thousand states in ten seconds are eleven writes at most,
// and the last one is on the disk at the end.
func TestWriterUnderChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := open(t, t.TempDir())
		w := NewWriter(d, d.log)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		seen := map[uint64]bool{}
		for i := range 1000 {
			w.Save(&State{Generation: uint64(i + 1)})
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			if s := d.Load(); s != nil {
				seen[s.Generation] = true
			}
		}
		if n := len(seen); n < 9 || n > 11 {
			t.Errorf("%d writes in 10 s", n)
		}
		w.Save(&State{Generation: 5000})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s := d.Load(); s == nil || s.Generation != 5000 {
			t.Errorf("at the end the file holds %+v", s)
		}
	})
}

// TestWriterLastStateWithoutMore: the last of a burst is written though nothing
// follows it.
func TestWriterLastStateWithoutMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := open(t, t.TempDir())
		w := NewWriter(d, d.log)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		for i := range 5 {
			w.Save(&State{Generation: uint64(i + 1)})
			synctest.Wait()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := d.Load(); s == nil || s.Generation != 5 {
			t.Errorf("the file holds %+v", s)
		}
		cancel()
		<-done
	})
}

// TestWriterFailure is logged once, retried, and told by Flush.
func TestWriterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		d, log := open(t, path)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		w := NewWriter(d, d.log)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		w.Save(&State{Generation: 1})
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := strings.Count(log.String(), "State not saved"); n != 1 {
			t.Errorf("logged %d times: %s", n, log)
		}
		if err := w.Flush(); err == nil {
			t.Error("Flush has no error")
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(again)
		synctest.Wait()
		if s := d.Load(); s == nil || s.Generation != 1 || !strings.Contains(log.String(), "saved again") {
			t.Errorf("after the repair: %+v, log %s", s, log)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestDecodeOfEveryTruncation: a file that ends early is never taken for whole.
func TestDecodeOfEveryTruncation(t *testing.T) {
	b, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(bytes.TrimSpace(b)) {
		if _, err := Decode(b[:n]); err == nil {
			t.Errorf("the first %d bytes were taken", n)
		}
	}
}
