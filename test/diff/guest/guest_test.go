package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/diff/scenario"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestCutMessage(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]string{
		"":                         {""},
		"RS a b UP\n\x00":          {`RS a b UP\0`, ""},
		"RS a b UP\nVS b UP\n":     {"RS a b UP", "VS b UP", ""},
		"VS b UP\n\x00VS b DOWN\n": {`VS b UP\0`, "VS b DOWN", ""},
		"VS\x00b\n\x00\x00":        {`VS\0b\0`, "\x00"},
		"RS a":                     {"RS a"},
	} {
		var got []string
		rest := []byte(in)
		for {
			message, left, whole := cutMessage(rest)
			if !whole {
				break
			}
			got, rest = append(got, message), left
		}
		if diff := cmp.Diff(want, append(got, string(rest))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	}
}

// The daemon makes the pipe after the reader looks for it, and may remove and make
// it again; it writes and goes without waiting for anyone.
func TestFifo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	f := newFifo("f", path)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); f.follow(done) }()
	defer func() { close(done); <-ended }()
	if got := f.take(); got != "" {
		t.Errorf("without a pipe: %q", got)
	}
	for _, message := range []string{"VS a UP\n\x00", "VS a DOWN\n\x00"} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(message); err != nil {
			t.Fatal(err)
		}
		// The reader has it open before the daemon ends.
		testkit.Eventually(t, 10*time.Second, func() string {
			f.mu.Lock()
			defer f.mu.Unlock()
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil || f.fd < 0 || f.inode != st.Ino {
				return "not open"
			}
			return ""
		})
		if _, err := w.WriteString("VS b UP\n"); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		want := "fifo f: " + strings.ReplaceAll(message, "\n\x00", `\0`) + "\nfifo f: VS b UP\n"
		if got := f.take(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := f.take(); got != "" {
		t.Errorf("taken twice: %q", got)
	}
}

func TestEventsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	e, err := newEventsFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "a UP\n", "b UP\nb DOWN\n"} {
		w, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(text); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if got, err := e.take(); err != nil || got != text {
			t.Errorf("got %q, error %v, want %q", got, err, text)
		}
	}
}

func testRun(t *testing.T, daemon, text string) *run {
	t.Helper()
	s, err := scenario.Parse("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &run{Stage: &testkit.Stage{}, s: s, d: Daemon{Name: daemon, Command: []string{"prog", "arg"}}, dir: "/run/tmp/d1", id: "d1"}
}

const addresses = `title T
sluice-args --observe $RUN
keepalived-args -i $DIR
addr add 192.0.2.1
addr del 192.0.2.1
addr del 192.0.2.2
addr add 192.0.2.2
backend 192.0.2.3:80 tcp
backend 192.0.2.3:81 tcp
backend [2001:db8::3]:80 tcp
backend 127.0.0.5:80 tcp
backend 192.0.2.1:80 tcp
test a
-- a --
`

func TestNetwork(t *testing.T) {
	t.Parallel()
	var got []string
	for _, c := range testRun(t, Sluice, addresses).network() {
		if strings.HasPrefix(c, "address") && !strings.Contains(c, "198.18.") && !strings.Contains(c, "2001:2:") {
			got = append(got, c)
		}
	}
	want := []string{"address add 192.0.2.2/32 dev net0", "address add 192.0.2.3/32 dev net0", "address add 2001:db8::3/128 dev net0 nodad"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	want := []string{"prog", "arg", "-f", "/run/tmp/d1/a.conf", "--socket", "/run/tmp/d1/sluice.sock", "--state-dir", "/run/tmp/d1/state", "--state-dir=", "--observe", "d1"}
	if diff := cmp.Diff(want, testRun(t, Sluice, addresses).argv("a.conf")); diff != "" {
		t.Errorf("sluice (-want +got):\n%s", diff)
	}
	want = []string{"prog", "arg", "-C", "-n", "-l", "-D", "-f", "/run/tmp/d1/a.conf",
		"-p", "/run/tmp/d1/pid-p", "-c", "/run/tmp/d1/pid-c", "-r", "/run/tmp/d1/pid-r", "-b", "/run/tmp/d1/pid-b", "-i", "/run/tmp/d1"}
	if diff := cmp.Diff(want, testRun(t, "keepalived", addresses).argv("a.conf")); diff != "" {
		t.Errorf("keepalived (-want +got):\n%s", diff)
	}
}

func TestNamesArePutBack(t *testing.T) {
	t.Parallel()
	r := testRun(t, Sluice, addresses)
	const text = "$DIR/$RUN.sh $RUN"
	filled := r.fill(text)
	if want := "/run/tmp/d1/d1.sh d1"; filled != want {
		t.Errorf("filled %q, want %q", filled, want)
	}
	if got := r.clean(filled); got != text {
		t.Errorf("cleaned %q, want %q", got, text)
	}
}

func TestPassed(t *testing.T) {
	t.Parallel()
	s := testRun(t, Sluice, addresses).s
	of := func(daemon, status string) scenario.Run {
		return scenario.Run{Scenario: "x", Daemon: daemon, Records: map[string]string{"test:a": status}}
	}
	for _, tt := range []struct {
		name string
		runs []scenario.Run
		want bool
	}{
		{"all agree", []scenario.Run{of("a", "0"), of("b", "0"), of(Sluice, "0")}, true},
		{"one does not", []scenario.Run{of("a", "0"), of("b", "5"), of(Sluice, "0")}, false},
		{"sluice does not", []scenario.Run{of("a", "0"), of(Sluice, "5")}, false},
		{"sluice did not run", []scenario.Run{of("a", "0")}, false},
	} {
		if got := passed(s, tt.runs); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
