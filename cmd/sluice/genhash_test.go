package main

import (
	"crypto/md5"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
)

// page answers with what it was asked, and with a page for each way to end one.
func page(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/host":
		fmt.Fprint(w, r.Host)
	case "/gone":
		http.Error(w, "gone", http.StatusGone)
	case "/empty":
		w.WriteHeader(http.StatusOK)
	case "/query":
		fmt.Fprint(w, r.URL.RawQuery)
	case "/large":
		fmt.Fprint(w, strings.Repeat("0123456789abcdef", 1<<16))
	default:
		fmt.Fprint(w, "hello\n")
	}
}

func digest(s string) string { return fmt.Sprintf("%x", md5.Sum([]byte(s))) }

func TestGenhash(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(page))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(page))
	defer secure.Close()
	at := plain.Listener.Addr().String()
	host, port, _ := net.SplitHostPort(at)
	hello := digest("hello\n")
	for name, tt := range map[string]struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		"as keepalived's":   {[]string{"-s", host, "-p", port, "-u", "/"}, 0, hello + "\n", ""},
		"URL":               {[]string{plain.URL}, 0, hello + "\n", ""},
		"TLS":               {[]string{secure.URL + "/x"}, 0, hello + "\n", ""},
		"-S":                {[]string{"-Ss", host, "-p", secure.URL[strings.LastIndex(secure.URL, ":")+1:], "-u", "/"}, 0, hello + "\n", ""},
		"address for Host":  {[]string{plain.URL + "/host"}, 0, digest(at) + "\n", ""},
		"virtual host":      {[]string{plain.URL + "/host", "-V", "www.example"}, 0, digest("www.example") + "\n", ""},
		"name":              {[]string{"http://localhost:" + port + "/host"}, 0, digest("localhost:"+port) + "\n", ""},
		"query":             {[]string{plain.URL + "/query?a=%20b"}, 0, digest("a=%20b") + "\n", ""},
		"another status":    {[]string{plain.URL + "/gone"}, 0, digest("gone\n") + "\n", "the status is 410"},
		"empty":             {[]string{plain.URL + "/empty"}, 0, digest("") + "\n", ""},
		"old form":          {[]string{plain.URL, "--md5sum"}, 0, "MD5SUM = " + hello + "\n", ""},
		"steps":             {[]string{plain.URL, "-v"}, 0, hello + "\n", "status 200, digest of 6 bytes"},
		"block":             {[]string{plain.URL + "/gone", "-V", "w", "--conf"}, 0, digest("gone\n") + "\nurl {\n    path /gone\n    virtualhost w\n    digest " + digest("gone\n") + "\n    status_code 410\n}\n", "the status is 410"},
		"block of a 200":    {[]string{plain.URL + "/?a#b", "--conf"}, 0, hello + "\nurl {\n    path /?a\n    digest " + hello + "\n}\n", ""},
		"checked":           {[]string{plain.URL, "--check", strings.ToUpper(hello)}, 0, hello + "\n", ""},
		"checked, another":  {[]string{plain.URL, "--check", digest("")}, 2, hello + "\n", "expected " + digest("")},
		"refused":           {[]string{"http://127.0.0.1:1/x"}, 1, "", "no digest of http://127.0.0.1:1/x, it failed at stage connect: url /x: connect to 127.0.0.1:1: connection refused (ECONNREFUSED)"},
		"no TLS there":      {[]string{"https://" + at + "/"}, 1, "", "stage tls"},
		"no such name":      {[]string{"http://no-such-name.invalid/"}, 1, "", "the address of no-such-name.invalid is not found"},
		"nothing":           {nil, exitUsage, "", "which page?"},
		"half":              {[]string{"-s", host}, exitUsage, "", "which page?"},
		"both":              {[]string{plain.URL, "-p", "1"}, exitUsage, "", "either a URL"},
		"no URL of HTTP":    {[]string{"ftp://a/"}, exitUsage, "", "no URL of HTTP"},
		"secret":            {[]string{"http://u:secret@a/"}, exitUsage, "", "checks send none"},
		"request splitting": {[]string{"-s", host, "-p", port, "-u", "/ HTTP/1.0\r\nA: b"}, exitUsage, "", "no blanks"},
		"protocol":          {[]string{plain.URL, "-P", "2"}, exitUsage, "", "want 1.0, 1.0c or 1.1"},
		"no digest":         {[]string{plain.URL, "--check", "abc"}, exitUsage, "", "32 hexadecimal digits"},
		"SNI without name":  {[]string{plain.URL, "-I"}, exitUsage, "", "--use-virtualhost"},
		"no time":           {[]string{plain.URL, "-t", "0"}, exitUsage, "", "--timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := typed(append([]string{"genhash"}, tt.args...)...)
			if status != tt.status || stdout != tt.stdout || !strings.Contains(stderr, tt.stderr) || tt.stderr == "" && stderr != "" {
				t.Errorf("status %d, want %d\nstdout %q\n  want %q\nstderr %s", status, tt.status, stdout, tt.stdout, stderr)
			}
			if strings.Contains(stderr, "secret") {
				t.Error("shows a password")
			}
		})
	}
}

// TestGenhashIsKeepalived asks the same server with keepalived's program.
func TestGenhashIsKeepalived(t *testing.T) {
	program, err := exec.LookPath("genhash")
	if err != nil {
		t.Skip("keepalived's genhash is not installed")
	}
	plain := httptest.NewServer(http.HandlerFunc(page))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(page))
	defer secure.Close()
	for _, path := range []string{"/", "/host", "/gone", "/empty", "/query?x=1", "/large"} {
		for _, protocol := range []string{"1.0", "1.0c", "1.1"} {
			for server, more := range map[*httptest.Server][]string{plain: nil, secure: {"-S"}} {
				host, port, _ := net.SplitHostPort(server.Listener.Addr().String())
				for _, virtual := range [][]string{nil, {"-V", "www.example"}} {
					args := append([]string{"-s", host, "-p", port, "-u", path, "-P", protocol}, more...)
					args = append(args, virtual...)
					want, err := exec.CommandContext(t.Context(), program, args...).Output()
					if err != nil {
						t.Fatal(err)
					}
					status, stdout, stderr := typed(append([]string{"genhash"}, args...)...)
					if status != exitOK || stdout != string(want) {
						t.Errorf("%q: status %d, %q, keepalived's has %q\n%s", args, status, stdout, want, stderr)
					}
				}
			}
		}
	}
}
