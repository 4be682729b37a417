package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/control"
)

// scrape reads /metrics through a connection to the given address.
func scrape(t *testing.T, network, address, path string) string {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}}
	r, err := c.Get("http://sluice" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%d %v: %s", r.StatusCode, err, body)
	}
	return string(body)
}

// TestMetricsFollowTheConfiguration: on the socket always, over HTTP where and how
// the running configuration says.
func TestMetricsFollowTheConfiguration(t *testing.T) {
	port, _ := backend(t)
	free, l := backend(t)
	l.Close()
	p := launch(t, confText(port), nil)
	defer p.stop()
	p.out.await(t, 0, "Ready")
	got := scrape(t, "unix", p.socket, "/metrics")
	if !strings.Contains(got, "\nsluice_virtual_servers 1\n") || !strings.Contains(got, "sluice_virtual_server_quorum_up{") || strings.Contains(got, "sluice_real_server_up{") {
		t.Errorf("the socket tells:\n%s", got)
	}
	if !strings.Contains(got, `sluice_events_total{level="info"} `) || strings.Contains(got, `sluice_events_total{level="info"} 0`) || !strings.Contains(got, "\nsluice_log_lines_suppressed_total 0\n") {
		t.Errorf("of the log the socket tells:\n%s", got)
	}
	listen := fmt.Sprintf("global_defs {\n #sluice http_listen 127.0.0.1:%d\n #sluice metrics_detail server\n}\n", free)
	p.write(listen + confText(port))
	if r, err := control.NewClient(p.socket).Reload(t.Context()); err != nil || !r.OK {
		t.Fatalf("%+v %v", r, err)
	}
	p.out.await(t, 0, "served over HTTP")
	address := fmt.Sprintf("127.0.0.1:%d", free)
	got = scrape(t, "tcp", address, "/metrics")
	if !strings.Contains(got, "sluice_real_server_up{") || !strings.Contains(got, "\nsluice_config_generation 2\n") {
		t.Errorf("over HTTP:\n%s", got)
	}
	if got := scrape(t, "tcp", address, "/healthz"); got != "ok\n" {
		t.Errorf("/healthz says %q", got)
	}
	// A refused reload shows, and changes nothing else.
	p.write("virtual_server 192.0.2.10 80 {\n real_server 127.0.0.1\n")
	if r, err := control.NewClient(p.socket).Reload(t.Context()); err != nil || r.OK {
		t.Errorf("reload of half a file: %+v %v", r, err)
	}
	if !strings.Contains(scrape(t, "tcp", address, "/metrics"), "\nsluice_config_last_reload_successful 0\n") {
		t.Error("a refused reload does not show")
	}
}

// TestAnOperatorDrainsOverHTTP once http_admin names a token, which each reload reads.
func TestAnOperatorDrainsOverHTTP(t *testing.T) {
	one, _ := backend(t)
	two, _ := backend(t)
	free, l := backend(t)
	l.Close()
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("the-first-token-of-them", 0o644)
	p := launch(t, fmt.Sprintf("global_defs {\n #sluice http_listen 127.0.0.1:%d\n #sluice http_admin %s\n}\n", free, file)+confText(one, two), nil)
	defer p.stop()
	p.out.await(t, 0, "everybody may read it")
	p.out.await(t, 0, "served over HTTP")
	drain := func(token string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/admin/drain", free),
			strings.NewReader(fmt.Sprintf("vs=192.0.2.10:80&rs=127.0.0.1:%d&reason=disk", one)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Authorization", "Bearer "+token)
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		a, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		return a.StatusCode
	}
	reload := func() {
		t.Helper()
		if r, err := control.NewClient(p.socket).Reload(t.Context()); err != nil || !r.OK {
			t.Fatalf("%+v %v", r, err)
		}
	}
	if code := drain("the-first-token-of-them"); code != http.StatusNotFound {
		t.Errorf("with a token that everybody can read: %d", code)
	}
	write("a-second-token-of-them", 0o600)
	reload()
	if code := drain("the-first-token-of-them"); code != http.StatusUnauthorized {
		t.Errorf("with the wrong token: %d", code)
	}
	if code := drain("a-second-token-of-them"); code != http.StatusOK {
		t.Errorf("with the token: %d", code)
	}
	if o := p.status().Overrides; len(o) != 1 || o[0].Who != "http:127.0.0.1" || o[0].Reason != "disk" {
		t.Errorf("orders %+v", o)
	}
	address := fmt.Sprintf("127.0.0.1:%d", free)
	if page := scrape(t, "tcp", address, "/"); !strings.Contains(page, "drained by http:127.0.0.1") || strings.Contains(page, "token-of-them") {
		t.Errorf("the page says\n%s", page)
	}
}
