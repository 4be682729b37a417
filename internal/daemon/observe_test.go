package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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
