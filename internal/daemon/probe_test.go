package daemon

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

const probePatience = 10 * time.Second

// probeOf makes the probe of a check as the daemon does.
func probeOf(t *testing.T, c config.Checker) checker.Probe {
	t.Helper()
	var p probes
	made, err := p.make(&config.Config{}, &c)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func httpCheck(kind config.CheckerKind, target netip.AddrPort, path string) config.Checker {
	return config.Checker{
		Kind: kind, Conn: config.Connection{Target: target, Timeout: probePatience},
		HTTP: &config.HTTP{URLs: []config.URL{{Path: path, Status: []config.StatusRange{{First: 200, Last: 299}}}}},
	}
}

func scriptCheck(t *testing.T, body string, args ...string) config.Checker {
	t.Helper()
	path := filepath.Join(t.TempDir(), "check.sh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return config.Checker{Kind: config.MiscCheck, Misc: &config.Misc{Script: &config.Script{Argv: append([]string{path}, args...)}, Timeout: probePatience}}
}

func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func targetOf(s *httptest.Server) netip.AddrPort {
	return s.Listener.Addr().(*net.TCPAddr).AddrPort()
}

// TestO06SixReasons: refused, timeout, TLS alert, wrong status, wrong body and a
// script's exit 9 are told apart, in words and in parts, each with its target, its
// step, what was expected and what came, the errno and the time.
func TestO06SixReasons(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/down" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		io.WriteString(w, "on holiday")
	}))
	t.Cleanup(web.Close)
	silent := testkit.Serve(t, "127.0.0.1:0", func(c net.Conn) { io.Copy(io.Discard, c) })
	alert := testkit.Serve(t, "127.0.0.1:0", func(c net.Conn) {
		tls.Server(c, &tls.Config{}).Handshake() // no certificate: it ends by an alert
	})

	slow := httpCheck(config.HTTPGet, silent, "/slow")
	slow.Conn.Timeout = 100 * time.Millisecond
	body := httpCheck(config.HTTPGet, targetOf(web), "/body")
	body.HTTP.URLs[0].Regex = &config.Regex{Pattern: "open"}
	script := scriptCheck(t, "exit 9", "s3cret")
	path := script.Misc.Script.Argv[0]
	refused := closedPort(t)

	for name, tt := range map[string]struct {
		c      config.Checker
		reason string // behind it stands the time
		fault  checker.Fault
	}{
		"refused": {httpCheck(config.HTTPGet, refused, "/health"),
			"url /health: connect to " + refused.String() + ": connection refused (ECONNREFUSED) after ",
			checker.Fault{Stage: checker.StageConnect, Target: "http://" + refused.String() + "/health", Errno: syscall.ECONNREFUSED}},
		"timeout": {slow,
			"url /slow: status from " + silent.String() + ": no answer in time after ",
			checker.Fault{Stage: checker.StageReply, Target: "http://" + silent.String() + "/slow", Timeout: true}},
		"TLS alert": {httpCheck(config.SSLGet, alert, "/tls"),
			"url /tls: TLS handshake with " + alert.String() + ": remote error: tls: unrecognized name after ",
			checker.Fault{Stage: checker.StageTLS, Target: "https://" + alert.String() + "/tls", Got: "remote error: tls: unrecognized name"}},
		"wrong status": {httpCheck(config.HTTPGet, targetOf(web), "/down"),
			"url /down: status from " + targetOf(web).String() + ": 503, expected 200-299, after ",
			checker.Fault{Stage: checker.StageStatus, Target: "http://" + targetOf(web).String() + "/down", Got: "503", Want: "200-299"}},
		"wrong body": {body,
			"url /body: body from " + targetOf(web).String() + `: regex "open" does not match, expected a match, after `,
			checker.Fault{Stage: checker.StageBody, Target: "http://" + targetOf(web).String() + "/body", Got: `regex "open" does not match`, Want: "a match"}},
		"script exit 9": {script,
			"script " + path + ": exit status 9, expected 0, after ",
			checker.Fault{Stage: checker.StageScript, Target: path, Got: "exit status 9", Want: "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := probeOf(t, tt.c).Run(t.Context())
			took := strings.TrimPrefix(o.Reason, tt.reason)
			if o.Result != checker.Failed || took == o.Reason {
				t.Fatalf("%v: %q\nwant failed: %q", o.Result, o.Reason, tt.reason)
			}
			if d, err := time.ParseDuration(took); err != nil || d <= 0 || o.Took <= 0 {
				t.Errorf("the time is %q, took %v", took, o.Took)
			}
			if o.Fault == nil || *o.Fault != tt.fault {
				t.Errorf("fault %+v\nwant %+v", o.Fault, tt.fault)
			}
		})
	}
}

// transcript runs a check with every step told.
func transcript(t *testing.T, c config.Checker) (checker.Outcome, string) {
	t.Helper()
	var b strings.Builder
	o := checker.RunTraced(t.Context(), probeOf(t, c), probePatience, func(e checker.TraceEntry) {
		b.WriteString(e.Stage.String() + ": " + e.Text + "\n")
	})
	return o, b.String()
}

// TestTranscripts: each kind of check tells its steps, those that otherwise run in
// the reactor too.
func TestTranscripts(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Set-Cookie", "session=s3cret")
		io.WriteString(w, strings.Repeat("a", 1000))
	})
	web, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(web.Close)
	t.Cleanup(secure.Close)
	mail := testkit.Serve(t, "127.0.0.1:0", func(c net.Conn) {
		io.WriteString(c, "220 mx ready\r\n250 hello\r\n221 bye\r\n")
		io.Copy(io.Discard, c)
	})
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close() })
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := udp.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			buf[2] |= 0x80 // a DNS answer, for who asked for one
			udp.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	datagram := config.Connection{Target: udp.LocalAddr().(*net.UDPAddr).AddrPort(), Timeout: probePatience}
	tcp := config.Checker{Kind: config.TCPCheck, Conn: config.Connection{Target: targetOf(web), Timeout: probePatience, BindAddr: netip.MustParseAddr("127.0.0.9")}}
	two := httpCheck(config.HTTPGet, targetOf(web), "/one")
	two.HTTP.URLs = append(two.HTTP.URLs, two.HTTP.URLs[0])
	two.HTTP.URLs[1].Path = "/two"

	for name, tt := range map[string]struct {
		c    config.Checker
		want []string
	}{
		"TCP_CHECK": {tcp, []string{`prepare: TCP socket from 127\.0\.0\.9 for TARGET, deadline in `, `connect: connected to TARGET from 127\.0\.0\.9:\d+ in `, `ok: connected`}},
		"HTTP_GET": {two, []string{`connect: connected`, `send: sent \d+ bytes: "GET /one HTTP/1\.0`, `reply: the answer begins`,
			`reply: received \d+ bytes: "HTTP/1\.0 200 OK.*Set-Cookie: \(hidden\).*\.\.\.`, `reply: url 1 /one: status 200`, `"GET /two`, `reply: url 2 /two: status 200`, `ok: status 200`}},
		"SSL_GET": {httpCheck(config.SSLGet, targetOf(secure), "/"), []string{`tls: TLS 1\.3, TLS_AES_128_GCM_SHA256`,
			`tls: certificate of O=Acme Co, issued by O=Acme Co, ends 2084-01-29T16:00:00Z`, `tls: the certificate is not verified`, `send: sent`, `ok: status 200`}},
		"SMTP_CHECK": {config.Checker{Kind: config.SMTPCheck, Conn: config.Connection{Target: mail, Timeout: probePatience}},
			[]string{`reply: banner: 220 "mx ready"`, `send: sent "HELO `, `reply: answer to HELO: 250 "hello"`, `send: sent "QUIT`, `reply: answer to QUIT: "221 bye"`}},
		"DNS_CHECK": {config.Checker{Kind: config.DNSCheck, Conn: datagram, DNS: &config.DNS{Type: "SOA", Name: "example.com"}},
			[]string{`prepare: UDP socket for TARGET`, `send: asked for SOA example\.com\., identifier \d+, \d+ octets`, `reply: received \d+ octets: rcode 0 \(NOERROR\)`}},
		"UDP_CHECK": {config.Checker{Kind: config.UDPCheck, Conn: datagram, UDP: &config.Datagram{Payload: []byte("ping"), Require: true}},
			[]string{`send: sent 4 octets: "ping"`, `reply: received 4 octets`}},
		"MISC_CHECK": {scriptCheck(t, "echo fine", "s3cret"), []string{`script: script /\S*check\.sh: exit status 0 after `, `script: it printed "fine"`, `ok: exit status 0: fine`}},
	} {
		t.Run(name, func(t *testing.T) {
			o, got := transcript(t, tt.c)
			if o.Result != checker.OK || strings.Contains(got, "s3cret") {
				t.Errorf("%+v", o)
			}
			target := regexp.QuoteMeta(tt.c.Conn.Target.String())
			rest := got
			for _, w := range append([]string{`^prepare: begin, to end within 10s`}, tt.want...) {
				at := regexp.MustCompile(strings.ReplaceAll(w, "TARGET", target)).FindStringIndex(rest)
				if at == nil {
					t.Fatalf("no %q in the rest of\n%s", w, got)
				}
				rest = rest[at[1]:]
			}
		})
	}
}

// TestX06CAFindings: a tls_ca that cannot be read is found where it stands, and
// nothing is run from the file; the one of a check that verifies nothing is not read.
func TestX06CAFindings(t *testing.T) {
	for name, tt := range map[string]struct {
		lines string
		want  string // "" for none
	}{
		"missing":   {"#sluice tls_verify on\n#sluice tls_ca /no/such/ca.pem", ":8:9: fatal: the certificate of real_server 10.0.0.1:443 cannot be verified: read tls_ca: open /no/such/ca.pem: no such file or directory"},
		"not a CA":  {"#sluice tls_verify on\n#sluice tls_ca /dev/null", "read tls_ca /dev/null: no certificate in it"},
		"system's":  {"#sluice tls_verify on", ""},
		"no verify": {"#sluice tls_ca /no/such/ca.pem", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := configFile(t, "tls.conf", "virtual_server 192.0.2.10 443 {\nprotocol TCP\nlvs_sched rr\nlvs_method NAT\nreal_server 10.0.0.1 443 {\nSSL_GET {\n"+tt.lines+"\nurl {\npath /\n}\n}\n}\n}\n")
			var out strings.Builder
			status := Check(&out, file, CheckOptions{})
			if tt.want == "" {
				if strings.Contains(out.String(), "cannot be verified") {
					t.Errorf("status %d:\n%s", status, &out)
				}
				return
			}
			if status != 4 || !strings.Contains(out.String(), tt.want) {
				t.Errorf("status %d:\n%s\nwant 4: %q", status, &out, tt.want)
			}
		})
	}
}
