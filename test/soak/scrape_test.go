package soak

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// generation is a configuration of which n is told by every scrape: there are n virtual
// servers, and n is the quorum of each. A drain from one to the next would be in the way.
func generation(n int, listen string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "global_defs {\n #sluice departure_hold 0\n #sluice http_listen %s\n #sluice metrics_detail server\n}\n", listen)
	for i := range n {
		fmt.Fprintf(&s, "virtual_server 192.0.2.1 %d {\n delay_loop 3600\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n quorum %d\n", i+1, n)
		for j := range n {
			fmt.Fprintf(&s, " real_server 127.0.1.%d %d {\n  weight %d\n  TCP_CHECK {\n   retry 0\n  }\n }\n", j+1, i+1, n)
		}
		s.WriteString("}\n")
	}
	return s.String()
}

// told is what one scrape says of the configuration.
type told struct {
	generation, start, servers float64
	quorums, weights           map[float64]int
	complete                   bool
}

func read(body string) told {
	r := told{quorums: map[float64]int{}, weights: map[float64]int{}, complete: strings.HasSuffix(body, "\n")}
	for line := range strings.Lines(body) {
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if err != nil {
			continue
		}
		switch name, _, _ := strings.Cut(line[:at], "{"); name {
		case "sluice_config_generation":
			r.generation = v
		case "process_start_time_seconds":
			r.start = v
		case "sluice_virtual_servers":
			r.servers = v
		case "sluice_virtual_server_quorum":
			r.quorums[v]++
		case "sluice_real_server_weight":
			r.weights[v]++
		}
	}
	return r
}

// wrong says what is not of one configuration: of n virtual servers there are n quorums
// of n, and n times n weights that are n or, with a check that failed, 0.
func (r told) wrong() string {
	n := int(r.servers)
	weights := r.weights[r.servers] + r.weights[0]
	if !r.complete || n == 0 || len(r.quorums) != 1 || r.quorums[r.servers] != n || weights != n*n || r.generation == 0 || r.start == 0 {
		return fmt.Sprintf("%+v", r)
	}
	return ""
}

// free is an address of this host on which nothing listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestO01ScrapeDuringReloads: each scrape, by the socket and by HTTP, tells of one
// configuration, whose number only grows; and once the daemon is killed there is
// nothing that could be taken for it.
func TestO01ScrapeDuringReloads(t *testing.T) {
	listen := free(t)
	d := start(t, generation(1, listen))
	tcp := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	scrape := func(c *http.Client, host string) (told, error) {
		resp, err := c.Get("http://" + host + "/metrics")
		if err != nil {
			return told{}, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %s", resp.Status)
		}
		return read(string(body)), err
	}
	testkit.Eventually(t, patience, func() string {
		if _, err := scrape(tcp, listen); err != nil {
			return err.Error()
		}
		return ""
	})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	seen := make([]map[float64]bool, 2)
	for i, by := range []struct {
		c    *http.Client
		host string
	}{{d.http, "sluice"}, {tcp, listen}} {
		seen[i] = map[float64]bool{}
		wg.Go(func() {
			var last told
			for n := 0; ctx.Err() == nil; n++ {
				r, err := scrape(by.c, by.host)
				if err != nil {
					t.Errorf("scrape %d of %s: %v", n, by.host, err)
					return
				}
				if w := r.wrong(); w != "" {
					t.Errorf("scrape %d of %s: %s", n, by.host, w)
					return
				}
				if last.start != 0 && (r.start != last.start || r.generation < last.generation) {
					t.Errorf("after %+v came %+v", last, r)
				}
				last = r
				seen[i][r.generation] = true
			}
		})
	}
	const reloads = 40
	for n := range reloads {
		if !d.reload(generation(1+n%7, listen)) {
			t.Fatal("a reload was refused")
		}
		wait(25 * time.Millisecond)
	}
	stop()
	wg.Wait()
	for i := range seen {
		if len(seen[i]) < reloads/2 {
			t.Errorf("of %d reloads scrapes saw %d", reloads, len(seen[i]))
		}
	}

	if err := d.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.killed = true
	_ = d.cmd.Wait()
	for _, by := range []struct {
		c    *http.Client
		host string
	}{{d.http, "sluice"}, {tcp, listen}} {
		if r, err := scrape(by.c, by.host); err == nil {
			t.Errorf("%s still answers: %+v", by.host, r)
		}
	}
}
