package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/engine"
)

// site answers on loopback; bad is a path that answers 503, "" for none.
func site(t *testing.T, body string, bad *atomic.Value) (port int) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if bad != nil && bad.Load() == r.URL.Path {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// strange accepts and does something that no web server does; nil is nothing.
func strange(t *testing.T, do func(net.Conn)) (port int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if do == nil {
				conns = append(conns, c)
				continue
			}
			do(c)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
		for _, c := range conns {
			c.Close()
		}
	})
	return ln.Addr().(*net.TCPAddr).Port
}

// server is a real_server block with a check.
func server(port int, label, check string) string {
	return fmt.Sprintf(" real_server 127.0.0.1 %d {\n  #sluice label %s\n  %s\n }\n", port, label, check)
}

func urls(kind string, more string, paths ...string) string {
	s := kind + " {\n"
	for _, p := range paths {
		s += fmt.Sprintf("   url {\n    path %s\n    status_code 200\n%s   }\n", p, more)
	}
	return s + "  }"
}

const webHead = "virtual_server 192.0.2.10 80 {\n #sluice label web\n warmup 0\n connect_timeout 1\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n"

// explained waits until an explanation is as wanted.
func (p *process) explained(rs string, wanted func(*engine.Explanation) bool) *engine.Explanation {
	p.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); ; <-tick.C {
		x, err := control.NewClient(p.socket).Explain(p.Context(), "web", rs)
		if err != nil {
			p.Fatal(err)
		}
		if wanted(x) {
			return x
		}
		if time.Now().After(end) {
			p.Fatalf("%+v", x)
		}
	}
}

// TestO03StatusSaysWhichUrlFails: a server fails on url 2 of 3, and the status says so
// with code, time and attempt number.
func TestO03StatusSaysWhichUrlFails(t *testing.T) {
	var bad atomic.Value
	bad.Store("")
	port := site(t, "ok", &bad)
	p := launch(t, webHead+" delay_loop 1\n retry 2\n delay_before_retry 600\n"+server(port, "blue", urls("HTTP_GET", "", "/a", "/b", "/c"))+"}\n", nil)
	p.out.await(t, 0, "Check passed")
	bad.Store("/b")
	x := p.explained("blue", func(x *engine.Explanation) bool { return x.Checks[0].Failures == 1 })
	if !x.InService || !strings.Contains(x.Summary, "attempt 1 of 3: url 2") {
		t.Errorf("%s", x.Summary)
	}
	if d := x.Checks[0].Next.Sub(x.At); d < 500*time.Second || d > 600*time.Second {
		t.Errorf("the next attempt is in %v", d)
	}
	var b bytes.Buffer
	if _, err := render.Status(&b, p.status(), render.Options{Wide: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"last failed ", "s ago in ", "failure 1 of 3: url 2", "/b", "503, expected 200"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("status does not say %q:\n%s", want, &b)
		}
	}
	if status := p.stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// TestO06ExplainHasSixReasons: with real servers that fail in six ways, explain gives
// six reasons, each with its step and what was expected, and nothing secret.
func TestO06ExplainHasSixReasons(t *testing.T) {
	closed := strange(t, func(net.Conn) {})
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := gone.Addr().(*net.TCPAddr).Port
	gone.Close()
	var bad atomic.Value
	bad.Store("/")
	script := filepath.Join(t.TempDir(), "nine.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho disk full\nexit 9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	alert := strange(t, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 4096)); err == nil {
			_, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) // handshake_failure
		}
	})
	text := webHead + " delay_loop 1\n retry 0\n" +
		server(refused, "refused", urls("HTTP_GET", "", "/")) +
		server(strange(t, nil), "silent", urls("HTTP_GET", "", "/")) +
		server(alert, "alert", urls("SSL_GET", "", "/")) +
		server(site(t, "ok", &bad), "status", urls("HTTP_GET", "", "/")) +
		server(site(t, "under repair", nil), "body", urls("HTTP_GET", "    regex ok\n", "/")) +
		server(closed, "script", "MISC_CHECK {\n   misc_path \""+script+" --password s3cret\"\n   misc_timeout 5\n  }") +
		server(site(t, "ok", nil), "good", urls("HTTP_GET", "", "/")) + "}\n"
	p := launch(t, text, nil)
	p.out.await(t, 0, "Ready")
	fault := func(x *engine.Explanation) *engine.Fault {
		if n := len(x.Checks[0].History); n > 0 {
			return x.Checks[0].History[n-1].Fault
		}
		return nil
	}
	seen := map[engine.Fault]string{}
	for rs, want := range map[string]engine.Fault{
		"refused": {Stage: "connect", Errno: "ECONNREFUSED"},
		"silent":  {Stage: "reply", Timeout: true},
		"alert":   {Stage: "tls"},
		"status":  {Stage: "status", Expected: "200", Got: "503"},
		"body":    {Stage: "body"},
		"script":  {Stage: "script"},
	} {
		x := p.explained(rs, func(x *engine.Explanation) bool { return x.RealServer.State == engine.StateDown && fault(x) != nil })
		f := *fault(x)
		if f.Stage != want.Stage || f.Errno != want.Errno || f.Timeout != want.Timeout || want.Got != "" && (f.Got != want.Got || f.Expected != want.Expected) {
			t.Errorf("%s: %+v", rs, f)
		}
		f.Target = ""
		if other := seen[f]; other != "" {
			t.Errorf("%s looks like %s: %+v", rs, other, f)
		}
		seen[f] = rs
		var b bytes.Buffer
		if err := render.Explain(&b, x, false); err != nil {
			t.Fatal(err)
		}
		if s := x.Summary; x.InService || !strings.HasPrefix(s, "It is out for") || !strings.Contains(s, "It comes back after the next good check") && !strings.Contains(s, "more good checks") {
			t.Errorf("%s:\n%s", rs, &b)
		}
		if strings.Contains(b.String(), "s3cret") || strings.Contains(fmt.Sprintf("%+v", x), "s3cret") {
			t.Errorf("an argument of a script is told:\n%s", &b)
		}
	}
	p.explained("good", func(x *engine.Explanation) bool { return x.InService && x.Checks[0].Last == "ok" })
	p.tested()
	var ce *engine.CommandError
	if _, err := control.NewClient(p.socket).Explain(t.Context(), "web", "green"); !errors.As(err, &ce) || ce.Code != engine.CodeUnknown || len(ce.Candidates) != 7 {
		t.Errorf("%v", err)
	}
	p.stop()
	if strings.Contains(p.out.b.String(), "s3cret") {
		t.Error("the log has an argument of a script")
	}
}

// tested runs "sluice test" against some of them.
func (p *process) tested() {
	p.Helper()
	for rs, want := range map[string]string{"good": "ok", "refused": "failed", "script": "failed"} {
		var lines []engine.TrialLine
		if err := control.NewClient(p.socket).Test(p.Context(), "web", rs, func(l engine.TrialLine) error {
			lines = append(lines, l)
			return nil
		}); err != nil {
			p.Fatal(err)
		}
		last := lines[len(lines)-1]
		if lines[0].Line != "check" || len(lines) < 4 || last.Line != "end" || last.Result != want || last.Summary == "" {
			p.Errorf("%s: %+v", rs, lines)
		}
		if text := fmt.Sprintf("%+v", lines); strings.Contains(text, "s3cret") {
			p.Errorf("an argument of a script is told: %s", text)
		}
	}
}
