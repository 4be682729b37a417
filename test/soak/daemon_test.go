// Package soak runs the whole daemon in observe mode for as long as -for says and
// holds what it takes (descriptors, threads, goroutines, memory, CPU time) to what it
// took before. It needs no ip_vs. make test-long runs it for ten minutes.
package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// patience bounds every wait.
const patience = time.Minute

// build makes the daemon's program.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sluiced")
	out, err := exec.Command("go", "build", "-o", path, "../../cmd/sluiced").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// daemon is a sluiced of the test's own.
type daemon struct {
	*testing.T
	conf, socket string
	cmd          *exec.Cmd
	http         *http.Client
	// killed: the test has ended it, and waited for that.
	killed bool
}

func start(t *testing.T, config string) *daemon {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{T: t, conf: filepath.Join(dir, "sluice.conf"), socket: filepath.Join(dir, "s")}
	d.write(config)
	var log bytes.Buffer
	d.cmd = exec.Command(build(t), "--observe", "--log-level", "error", "-f", d.conf, "--socket", d.socket, "--state-dir", "")
	d.cmd.Stdout, d.cmd.Stderr = &log, &log
	d.http = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
		}}}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.killed {
			return
		}
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		err := d.cmd.Wait()
		if err != nil {
			t.Errorf("the daemon's end: %v", err)
		}
		if text := log.String(); t.Failed() && text != "" {
			t.Logf("it logged:\n%s", text[:min(len(text), 10_000)])
		}
	})
	testkit.Eventually(t, patience, func() string {
		r, err := d.http.Get("http://sluice/metrics")
		if err != nil {
			return err.Error()
		}
		r.Body.Close()
		return ""
	})
	return d
}

func (d *daemon) write(config string) {
	d.Helper()
	if err := os.WriteFile(d.conf, []byte(config), 0o644); err != nil {
		d.Fatal(err)
	}
}

// reload gives it another configuration and reports whether that was accepted.
func (d *daemon) reload(config string) bool {
	d.Helper()
	d.write(config)
	a, err := d.http.Post("http://sluice/v1/reload", "", nil)
	if err != nil {
		d.Fatal(err)
	}
	defer a.Body.Close()
	var r engine.Reload
	if err := json.NewDecoder(a.Body).Decode(&r); err != nil {
		d.Fatal(err)
	}
	return r.OK
}

// metric is the sum of the series whose name and labels begin so.
func (d *daemon) metric(prefix string) float64 {
	d.Helper()
	sums := d.metrics(prefix)
	return sums[0]
}

func (d *daemon) metrics(prefixes ...string) []float64 {
	d.Helper()
	r, err := d.http.Get("http://sluice/metrics")
	if err != nil {
		d.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		d.Fatal(err)
	}
	sums := make([]float64, len(prefixes))
	for line := range strings.Lines(string(body)) {
		for i, p := range prefixes {
			if strings.HasPrefix(line, p) {
				v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
				if err != nil {
					d.Fatal(err)
				}
				sums[i] += v
			}
		}
	}
	return sums
}

// proc is a file or folder of the daemon's in /proc.
func (d *daemon) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", d.cmd.Process.Pid, name) }

// entries counts what is in a folder of /proc.
func (d *daemon) entries(name string) int {
	d.Helper()
	all, err := os.ReadDir(d.proc(name))
	if err != nil {
		d.Fatal(err)
	}
	return len(all)
}

// field is a number in a file of "Name: value" lines.
func field(t *testing.T, path, name string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == name+":" {
			n, err := strconv.Atoi(words[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in %s", name, path)
	return 0
}

// ticks is the CPU time used, in hundredths of a second.
func (d *daemon) ticks() int {
	d.Helper()
	text, err := os.ReadFile(d.proc("stat"))
	if err != nil {
		d.Fatal(err)
	}
	// The name of the program, in brackets, may hold blanks.
	words := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	sum := 0
	for _, w := range words[11:13] {
		n, err := strconv.Atoi(w)
		if err != nil {
			d.Fatal(err)
		}
		sum += n
	}
	return sum
}

// switches are how often its threads gave up a CPU, or lost it.
func (d *daemon) switches() int {
	d.Helper()
	tasks, err := os.ReadDir(d.proc("task"))
	if err != nil {
		d.Fatal(err)
	}
	sum := 0
	for _, task := range tasks {
		path := d.proc("task/" + task.Name() + "/status")
		sum += field(d.T, path, "voluntary_ctxt_switches") + field(d.T, path, "nonvoluntary_ctxt_switches")
	}
	return sum
}

// wait lets real time pass: what is measured here is what a process does in it.
func wait(d time.Duration) { <-time.After(d) }
