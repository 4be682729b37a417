package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
)

func typed(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(args, &out, &errs)
	return status, out.String(), errs.String()
}

// serve answers as a daemon with the given state would.
func serve(t *testing.T, s *engine.Snapshot, r engine.Reload) (socket string) {
	t.Helper()
	return serveState(t, func() *engine.Snapshot { return s }, r)
}

// serveEach answers with another state each time.
func serveEach(t *testing.T, state func() *engine.Snapshot) (socket string) {
	t.Helper()
	return serveState(t, state, engine.Reload{})
}

// listening is a control socket that answers once serve was called, until the test ends.
func listening(t *testing.T) (srv *control.Server, socket string, serve func()) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s.sock")
	srv, err := control.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	return srv, socket, func() {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- srv.Serve(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func serveState(t *testing.T, state func() *engine.Snapshot, r engine.Reload) (socket string) {
	t.Helper()
	srv, socket, serve := listening(t)
	srv.Status = func(context.Context) *engine.Snapshot { return state() }
	srv.Reload = func(context.Context) engine.Reload { return r }
	serve()
	return socket
}

func snapshot(quorum bool) *engine.Snapshot {
	at := time.Now()
	return &engine.Snapshot{
		Version: "1.2.3", Started: at, At: at, ConfigFile: "/etc/k.conf", Generation: 1,
		Reload: engine.Reload{At: at, OK: true}, Kernel: engine.Kernel{OK: true, Since: at},
		VirtualServers: []engine.VirtualServer{{
			Name: "[192.0.2.1]:tcp:80", Scheduler: "rr", Quorum: 1, QuorumUp: quorum, Since: at,
			RealServers: []engine.RealServer{{Address: "10.0.0.1:80", State: engine.StateDown, Reason: "TCP_CHECK: refused", Since: at, WeightWanted: -1}},
		}},
	}
}

func TestStatus(t *testing.T) {
	good, bad := serve(t, snapshot(true), engine.Reload{}), serve(t, snapshot(false), engine.Reload{})
	for name, tt := range map[string]struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		"quorum":       {[]string{"--socket", good}, 0, "TCP_CHECK: refused", ""},
		"no quorum":    {[]string{"--socket", bad}, 1, "[192.0.2.1]:tcp:80", ""},
		"filter":       {[]string{"--socket", bad, "--vs", "10.0.0.1"}, 1, "10.0.0.1:80", ""},
		"no match":     {[]string{"--socket", good, "--vs", "nothing"}, 2, "", `no virtual server matches "nothing"`},
		"no daemon":    {[]string{"--socket", "/nonexistent/s.sock"}, 3, "", "is sluiced running?"},
		"unknown flag": {[]string{"--jsn"}, exitUsage, "", "try: sluice status --help"},
		"operand":      {[]string{"10.0.0.1", "--socket", bad}, 1, "10.0.0.1:80", ""},
		"operands":     {[]string{"a", "b"}, exitUsage, "", `unexpected argument "b"`},
		"help":         {[]string{"--help"}, 0, "Exit statuses", ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := typed(append([]string{"status"}, tt.args...)...)
			if status != tt.status || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("status %d, want %d\nstdout %s\nstderr %s", status, tt.status, stdout, stderr)
			}
			if strings.Contains(stdout, "\x1b[") {
				t.Error("colours where there is no terminal")
			}
		})
	}
}

func TestStatusJSON(t *testing.T) {
	status, stdout, _ := typed("status", "--json", "--socket", serve(t, snapshot(false), engine.Reload{}))
	var s engine.Snapshot
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || status != 1 {
		t.Fatalf("status %d, %v in %s", status, err, stdout)
	}
	if s.VirtualServers[0].RealServers[0].Reason != "TCP_CHECK: refused" {
		t.Errorf("%+v", s)
	}
}

func TestReload(t *testing.T) {
	if status, stdout, _ := typed("reload", "--socket", serve(t, nil, engine.Reload{OK: true})); status != 0 || stdout != "reloaded\n" {
		t.Errorf("status %d, %s", status, stdout)
	}
	status, _, stderr := typed("reload", "--socket", serve(t, nil, engine.Reload{Error: "k.conf:3:1: nonsense"}))
	if status != 1 || !strings.Contains(stderr, "k.conf:3:1: nonsense") {
		t.Errorf("status %d, %s", status, stderr)
	}
	if status, _, stderr := typed("reload", "--socket", "/nonexistent/s.sock"); status != exitUnreachable || stderr == "" {
		t.Errorf("status %d, %s", status, stderr)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	good := write("good.conf", "virtual_server 192.0.2.1 80 {\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n real_server 10.0.0.1 80 {\n weight 3\n }\n}\n")
	typo := write("typo.conf", "virtual_server 192.0.2.1 80 {\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n real_server 10.0.0.1 80 {\n weigth 3\n }\n}\n")
	open := write("open.conf", "virtual_server 192.0.2.1 80 {\n")
	for name, tt := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"good":      {[]string{good}, 0, "nothing to report"},
		"typo":      {[]string{typo}, 5, `did you mean "weight"?`},
		"both":      {[]string{typo, good}, 5, "nothing to report"},
		"unclosed":  {[]string{open}, 5, "never closed"},
		"missing":   {[]string{dir + "/none.conf"}, 4, "no such file"},
		"effective": {[]string{"--effective", good}, 0, "weight 3"},
		"json":      {[]string{"--json", typo}, 5, `"code":"E101"`},
		"nothing":   {nil, exitUsage, "which file?"},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := typed(append([]string{"check"}, tt.args...)...)
			if status != tt.status || !strings.Contains(stdout+stderr, tt.want) {
				t.Errorf("status %d, want %d and %q\nstdout %s\nstderr %s", status, tt.status, tt.want, stdout, stderr)
			}
		})
	}
}

func TestVerbs(t *testing.T) {
	for name, tt := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"none":    {nil, exitUsage, "Usage: sluice VERB [options]"},
		"help":    {[]string{"help"}, 0, "Usage: sluice VERB [options]"},
		"typo":    {[]string{"stauts"}, exitUsage, "did you mean: sluice status"},
		"unknown": {[]string{"frobnicate"}, exitUsage, "sluice help"},
		"version": {[]string{"version"}, 0, "sluice "},
		"-v":      {[]string{"-v"}, 0, "sluice "},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := typed(tt.args...)
			if status != tt.status || !strings.Contains(stdout+stderr, tt.want) {
				t.Errorf("status %d, want %d and %q\n%s%s", status, tt.status, tt.want, stdout, stderr)
			}
		})
	}
}
