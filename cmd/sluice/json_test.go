package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/daemon"
	"github.com/sluice-lb/sluice/internal/engine"
)

// observer runs a daemon that writes nothing to the kernel, and waits until it answers.
func observer(t *testing.T, text string) (file, socket string) {
	t.Helper()
	dir := t.TempDir()
	file, socket = filepath.Join(dir, "k.conf"), filepath.Join(dir, "s.sock")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- daemon.Run(ctx, daemon.Options{File: file, Socket: socket, Observe: true, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	awaitStatus(t, socket, func(*engine.Snapshot) bool { return true })
	return file, socket
}

// awaitStatus asks until the state is as wanted.
func awaitStatus(t *testing.T, socket string, wanted func(*engine.Snapshot) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := control.NewClient(socket).Status(ctx)
		if err == nil && s.Generation > 0 && wanted(s) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never as wanted: %+v, %v", s, err)
		}
	}
}

// TestJSONIsAsDescribed holds what every verb prints to its schema in docs/schema, with a
// whole daemon that has all kinds of things to tell.
func TestJSONIsAsDescribed(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer web.Close()
	_, port, _ := net.SplitHostPort(web.Listener.Addr().String())
	weights := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(weights, []byte("5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
global_defs { lvs_sync_daemon lo id 7 }
track_file weights { file %s
 weight 1 }
virtual_server_group many { 192.0.2.1-2 80 }
virtual_server group many {
 #sluice label web
 #sluice min_alive 1
 warmup 0
 delay_loop 1
 lvs_sched wrr
 lvs_method DR
 protocol TCP
 sorry_server 127.0.0.1 1
 real_server 127.0.0.1 %s {
  #sluice label good
  track_file weights weight 1
  TCP_CHECK { connect_timeout 1 }
 }
 real_server 127.0.0.2 %[2]s {
  #sluice label bad
  HTTP_GET {
   retry 0
   connect_timeout 1
   connect_ip 127.0.0.1
   url { path /
    status_code 200 }
   url { path /bad
    status_code 200 }
  }
 }
}
virtual_server 192.0.2.9 80 { lvs_sched rr
 lvs_method NAT
 protocol TCP
 sorry_server 127.0.0.1 2 }
virtual_server fwmark 9 { lvs_sched rr
 lvs_method NAT
 warmup 0
 delay_loop 1
 real_server 127.0.0.1 9 { TCP_CHECK { retry 0
 connect_timeout 1 } }
}
virtual_server fwmark 7 {
 lvs_sched rr
 lvs_method TUN
 warmup 0
 delay_loop 1
 persistence_timeout 60
 real_server 127.0.0.1 9 { inhibit_on_failure
 TCP_CHECK { retry 0
 connect_timeout 1 } }
}
`, weights, port)
	file, socket := observer(t, text)
	awaitStatus(t, socket, func(s *engine.Snapshot) bool {
		down := 0
		for i := range s.VirtualServers {
			for _, rs := range s.VirtualServers[i].RealServers {
				if rs.State == engine.StateDown || rs.State == engine.StateKept {
					down++
				}
			}
		}
		return down >= 3
	})
	other := filepath.Join(t.TempDir(), "other.conf")
	if err := os.WriteFile(other, []byte(strings.NewReplacer("wrr", "rr", "fwmark 7", "fwmark 8", "min_alive 1", "min_alive 2").Replace(text)+"nonsense\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.conf")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		schema string
		least  int // values
		has    string
		args   []string
	}{
		{"version", 1, `"schema": "v1"`, []string{"version"}},
		{"status", 1, "status from", []string{"status"}},
		{"status", 1, `"sync_daemon"`, []string{"status"}},
		{"status", 1, `"foreign"`, []string{"status", "--foreign"}},
		{"status", 1, `"virtual_servers": []`, []string{"status", "nothing"}},
		{"explain", 1, `"expected": "200"`, []string{"explain", "web", "bad"}},
		{"explain", 1, "track_file", []string{"explain", "web", "good"}},
		{"test", 6, `"stage":"status"`, []string{"test", "web", "bad"}},
		{"events", 3, "server_down", []string{"events", "-n", "100"}},
		{"plan", 1, `"changes": false`, []string{"plan"}},
		{"plan", 1, `"virtual_servers_changed": [`, []string{"plan", other}},
		{"plan", 1, `"virtual_servers_removed": [`, []string{"plan", empty}},
		{"drains", 1, `[]`, []string{"drains"}},
		{"drains", 1, `"kind": "weight"`, []string{"weight", "web", "good", "3"}},
		{"drains", 1, `"reason": "why"`, []string{"drain", "web", "good", "--force", "--reason", "why", "--until", "1h"}},
		{"plan", 1, `"comes": false`, []string{"plan", empty}},
		{"status", 1, `"overrides"`, []string{"status"}},
		{"explain", 1, `"operator_drain"`, []string{"explain", "web", "good"}},
		{"drains", 1, `"virtual_server_label": "web"`, []string{"undrain", "web", "good"}},
		{"reload", 1, `"ok": true`, []string{"reload"}},
		{"check", 1, `E101`, []string{"check", other}},
		{"check", 2, `[]`, []string{"check", other, empty}},
		{"doctor", 1, `"findings": [`, []string{"doctor", file}},
		{"genhash", 1, `"digest": "d41d8cd98f00b204e9800998ecf8427e"`, []string{"genhash", web.URL}},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			_, stdout, stderr := typed(append(tt.args, "--json", "--socket", socket)...)
			n, err := holds(tt.schema, stdout)
			if err != nil || n < tt.least || !strings.Contains(stdout, tt.has) {
				t.Errorf("%d values, %v; has %q: %v\n%s%s", n, err, tt.has, strings.Contains(stdout, tt.has), stdout, stderr)
			}
		})
	}
	// Without IPVS nobody can say what is left on them.
	if status, stdout, stderr := typed("drains", "--json", "--socket", socket); status == exitOK || !strings.Contains(stderr, "the kernel has no IPVS") {
		if _, err := holds("drains", stdout); err != nil || !strings.Contains(stdout, `"virtual_server_label": "web"`) {
			t.Errorf("drains: status %d, %v\n%s%s", status, err, stdout, stderr)
		}
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	typed("reload", "--socket", socket)
	if _, stdout, _ := typed("status", "--json", "--socket", socket); strings.Contains(stdout, "real_servers") {
		t.Error("the virtual servers are still there")
	} else if _, err := holds("status", stdout); err != nil {
		t.Errorf("status of nothing: %v\n%s", err, stdout)
	}
	if err := os.WriteFile(file, []byte("virtual_server 192.0.2.1 {\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for verb, want := range map[string]int{"reload": 1, "plan": exitInvalid} {
		status, stdout, _ := typed(verb, "--json", "--socket", socket)
		if _, err := holds(verb, stdout); err != nil || status != want || !strings.Contains(stdout, "never closed") {
			t.Errorf("%s of half a file: status %d, %v\n%s", verb, status, err, stdout)
		}
	}
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}, DisableKeepAlives: true}}
	r, err := c.Get("http://sluiced/v1/explain?vs=web&rs=nobody")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holds("refusal", string(b)); err != nil || r.StatusCode == http.StatusOK {
		t.Errorf("%d, %v: %s", r.StatusCode, err, b)
	}
}

// TestEveryVerbHasJSON, but those that have nothing to tell a program.
func TestEveryVerbHasJSON(t *testing.T) {
	without := map[string]bool{"top": true, "completion": true, "help": true}
	described := ""
	for _, d := range jsonDocuments {
		described += " " + d.verbs + ","
	}
	described = strings.NewReplacer(",", " ", "-", " ").Replace(described)
	for _, v := range newRoot(&app{stdout: io.Discard, stderr: io.Discard}).Commands() {
		has := v.Flags().Lookup("json") != nil
		if has == without[v.Name()] {
			t.Errorf("%s has --json: %v", v.Name(), has)
		}
		if has && !strings.Contains(described, " "+v.Name()+" ") {
			t.Errorf("docs/json.md does not describe %s", v.Name())
		}
	}
}

// TestSchemasSeeWhatIsWrong: the validator can fail.
func TestSchemasSeeWhatIsWrong(t *testing.T) {
	good := `{"version":"1","schema":"v1"}`
	if _, err := holds("version", good); err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string]string{
		"no field":       `{"version":"1"}`,
		"another type":   `{"version":1,"schema":"v1"}`,
		"another value":  `{"version":"1","schema":"v2"}`,
		"an extra field": `{"version":"1","schema":"v1","x":1}`,
		"null":           `null`,
		"nothing":        ``,
		"an array":       `[` + good + `]`,
	} {
		if _, err := holds("version", bad); err == nil {
			t.Errorf("%s passes", what)
		}
	}
	for _, bad := range []string{`[{"virtual_server":null}]`, `[{}]`, `{}`} {
		if _, err := holds("drains", bad); err == nil {
			t.Errorf("%s passes", bad)
		}
	}
	var s engine.Snapshot
	b, err := json.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holds("status", string(b)); err == nil || !strings.Contains(err.Error(), "virtual_servers") {
		t.Errorf("a null for a list passes: %v", err)
	}
}
