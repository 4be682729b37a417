package metrics

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// TestTheStateIsToldRight.
func TestTheStateIsToldRight(t *testing.T) {
	cfg := farm(2, 3)
	cfg.VirtualServers[1].Quorum = 3
	cfg.VirtualServers[1].Sorry = &config.SorryServer{Key: config.RSKey{AddrPort: cfg.VirtualServers[0].RealServers[0].Key.AddrPort}, Forward: config.Forwarding{Method: config.NAT}}
	after(t, time.Minute, cfg, func(e *engine.Engine) {
		all := series(t, text(t, e.Snapshot(), config.MetricsServer))
		one, two := label("[192.0.0.0]:tcp:80", 0), label("[192.0.0.1]:tcp:80", 1)
		has(t, all, `sluice_build_info{version="1.0 \"quoted\\\""}`, "1")
		has(t, all, "sluice_virtual_servers", "2")
		has(t, all, "sluice_config_last_reload_successful", "1")
		has(t, all, "sluice_config_generation", "1")
		has(t, all, "sluice_kernel_up", "1")
		has(t, all, "sluice_virtual_server_real_servers{"+one+`,state="up"}`, "2")
		has(t, all, "sluice_virtual_server_real_servers{"+one+`,state="down"}`, "1")
		has(t, all, "sluice_virtual_server_real_servers{"+two+`,state="withdrawn"}`, "2")
		has(t, all, "sluice_virtual_server_alive_weight{"+one+"}", "2")
		has(t, all, "sluice_virtual_server_quorum_up{"+one+"}", "1")
		has(t, all, "sluice_virtual_server_quorum{"+two+"}", "3")
		has(t, all, "sluice_virtual_server_quorum_up{"+two+"}", "0")
		has(t, all, "sluice_virtual_server_sorry_serving{"+two+"}", "1")
		has(t, all, "sluice_virtual_server_destinations_mismatched{"+two+"}", "0")
		third := one + `,remote_address="10.0.0.2",remote_port="8080"`
		has(t, all, "sluice_real_server_up{"+third+"}", "0")
		has(t, all, "sluice_real_server_state{"+third+`,state="down"}`, "1")
		has(t, all, "sluice_real_server_weight{"+third+"}", "0")
		has(t, all, "sluice_check_up{"+third+`,checker="TCP_CHECK",position="1"}`, "0")
		has(t, all, "sluice_check_last_duration_seconds{"+third+`,checker="TCP_CHECK",position="1"}`, "0.003")
		_, address, _ := strings.Cut(one, ",")
		has(t, all, "sluice_destination_weight{"+address+`,remote_address="10.0.0.0",remote_port="8080"}`, "1")
		_, address, _ = strings.Cut(third, ",")
		if _, there := all["sluice_destination_weight{"+address+"}"]; there {
			t.Error("a destination that is not in the table has a weight")
		}
		// 6 in the first ten seconds, then 6 in each of the five that follow.
		has(t, all, `sluice_checks_total{checker="TCP_CHECK",result="ok"}`, "24")
		has(t, all, `sluice_checks_total{checker="TCP_CHECK",result="failed"}`, "12")
		if _, there := all["sluice_virtual_server_sorry_serving{"+one+"}"]; there {
			t.Error("a virtual server without a sorry server tells of one")
		}
	})
}

// TestMarksAndDrains: what needs a snapshot made by hand.
func TestMarksAndDrains(t *testing.T) {
	now := time.Unix(1e9, 0)
	mark := func(f ipvs.Family) engine.VirtualServer {
		k := ipvs.ServiceKey{FWMark: 31, Family: f}
		return engine.VirtualServer{Name: "FWM 31", Services: []engine.Service{{Name: k.String(), Key: k, Destinations: []engine.Destination{
			{Address: "[2001:db8::1]:0", Wanted: -1, Active: 3, Inactive: 4, Drain: &engine.Drain{Since: now.Add(-90 * time.Second)}},
			{Address: "[2001:db8::2]:0", Wanted: 5, Kernel: 4},
		}}}}
	}
	group := engine.VirtualServer{Name: "[web]:0", Group: "web", Protocol: "UDP", Services: make([]engine.Service, 3)} // one service, three times
	s := &engine.Snapshot{At: now, Reload: engine.Reload{At: now, Error: "refused"}, VirtualServers: []engine.VirtualServer{mark(ipvs.INET), mark(ipvs.INET6), group},
		Leaving: []engine.Service{{Destinations: []engine.Destination{{Address: "10.0.0.1:80", Kernel: 0, Wanted: -1, Active: 10, Drain: &engine.Drain{Since: now.Add(-2500 * time.Millisecond)}}}}}}
	exposition := text(t, s, config.MetricsServer)
	lint(t, exposition)
	all := series(t, exposition)
	four := `virtual_server="FWM 31",local_port="0",local_mark="0000001F",proto="FWM",family="inet"`
	has(t, all, "sluice_virtual_server_drains{"+four+"}", "1")
	has(t, all, "sluice_virtual_server_destinations_mismatched{"+four+"}", "1")
	has(t, all, "sluice_virtual_server_drains{"+strings.Replace(four, `inet"`, `inet6"`, 1)+"}", "1")
	has(t, all, `sluice_virtual_server_drains{virtual_server="[web]:0",proto="UDP"}`, "0")
	has(t, all, `sluice_destination_weight{local_port="0",local_mark="0000001F",proto="FWM",family="inet",remote_address="2001:db8::2",remote_port="0"}`, "4")
	has(t, all, "sluice_drains", "3")
	has(t, all, "sluice_drain_oldest_seconds", "90")
	has(t, all, `sluice_drain_connections{state="active"}`, "16")
	has(t, all, `sluice_drain_connections{state="inactive"}`, "8")
	has(t, all, "sluice_config_last_reload_successful", "0")
	has(t, all, "sluice_config_last_reload_timestamp_seconds", "1000000000")
	has(t, all, "sluice_config_last_reload_success_timestamp_seconds", "0")
}

// TestSyncDaemonsAreTold: each half by itself, with figures only where it runs.
func TestSyncDaemonsAreTold(t *testing.T) {
	s := &engine.Snapshot{Sync: &engine.Sync{Undecided: true, Halves: []engine.SyncHalf{
		{State: "master", Wanted: true, Error: "no such interface"},
		{State: "backup", Running: true, Traffic: &engine.SyncTraffic{Sockets: 2, Queue: 1 << 40, Drops: 7}},
	}}}
	exposition := text(t, s, config.MetricsService)
	lint(t, exposition)
	all := series(t, exposition)
	has(t, all, `sluice_sync_daemon_wanted{state="master"}`, "1")
	has(t, all, `sluice_sync_daemon_up{state="master"}`, "0")
	has(t, all, `sluice_sync_daemon_wanted{state="backup"}`, "0")
	has(t, all, `sluice_sync_daemon_up{state="backup"}`, "1")
	has(t, all, "sluice_sync_daemon_undecided", "1")
	has(t, all, `sluice_sync_daemon_queue_bytes{state="backup"}`, "1099511627776")
	has(t, all, `sluice_sync_daemon_receive_drops_total{state="backup"}`, "7")
	if _, there := all[`sluice_sync_daemon_receive_drops_total{state="master"}`]; there {
		t.Error("a half that does not run has figures")
	}
	if got := text(t, &engine.Snapshot{}, config.MetricsServer); strings.Contains(got, "sluice_sync") {
		t.Error("it is told of without lvs_sync_daemon")
	}
}

// TestNoScriptArgumentIsTold: they may be secret.
func TestNoScriptArgumentIsTold(t *testing.T) {
	cfg := farm(1, 1)
	c := cfg.VirtualServers[0].RealServers[0].Checkers[0]
	c.Kind, c.Misc = config.MiscCheck, &config.Misc{Script: &config.Script{Argv: []string{"/bin/check", "--password", "hunter2"}}, Timeout: time.Second}
	after(t, time.Minute, cfg, func(e *engine.Engine) {
		if got := text(t, e.Snapshot(), config.MetricsServer); strings.Contains(got, "hunter2") || !strings.Contains(got, "MISC_CHECK") {
			t.Errorf("a scrape tells:\n%s", got)
		}
	})
}

// TestS06SeriesOfFiveThousandDestinations: by default their number is that of the
// services, not of the servers.
func TestS06SeriesOfFiveThousandDestinations(t *testing.T) {
	const constant = 200
	for _, shape := range [][2]int{{50, 100}, {1000, 5}, {1, 1000}} {
		after(t, 10*time.Second, farm(shape[0], shape[1]), func(e *engine.Engine) { sizes(t, e, constant, shape) })
	}
}

func sizes(t *testing.T, e *engine.Engine, constant int, shape [2]int) {
	exposition := text(t, e.Overview(), config.MetricsService)
	lint(t, exposition)
	got := len(series(t, exposition))
	t.Logf("%d services of %d servers: %d series, %d bytes", shape[0], shape[1], got, len(exposition))
	if most := constant + 12*shape[0]; got > most {
		t.Errorf("%d services of %d servers: %d series, want %d at most", shape[0], shape[1], got, most)
	}
	if allocs := testing.AllocsPerRun(5, func() { scrape(t, e, config.MetricsService) }); allocs > 20 {
		t.Errorf("%d services of %d servers: a scrape allocates %v times", shape[0], shape[1], allocs)
	}
}

func scrape(t testing.TB, e *engine.Engine, detail config.MetricsDetail) {
	s := e.Overview()
	if detail == config.MetricsServer {
		s = e.Snapshot()
	}
	if err := Write(io.Discard, Reading{Snapshot: s, Detail: detail}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestAScrapeDoesNotAskTheLoop: the engine here has none that runs.
func TestAScrapeDoesNotAskTheLoop(t *testing.T) {
	e, _ := served(t, farm(1, 1))
	h := Handler(func() Reading { return Reading{Snapshot: e.Overview(), Detail: config.MetricsService} })
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != ContentType || !strings.Contains(w.Body.String(), "sluice_virtual_servers 1\n") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	lint(t, w.Body.String())
}

// TestTooManyScrapesAreRefused and do not pile up.
func TestTooManyScrapesAreRefused(t *testing.T) {
	s, goOn, begun := &engine.Snapshot{}, make(chan struct{}), make(chan struct{})
	h := Handler(func() Reading {
		begun <- struct{}{}
		<-goOn
		return Reading{Snapshot: s, Detail: config.MetricsService}
	})
	get := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Code
	}
	codes := make(chan int)
	for range atOnce {
		go func() { codes <- get() }()
		<-begun
	}
	if c := get(); c != http.StatusServiceUnavailable {
		t.Errorf("one too many got %d", c)
	}
	close(goOn)
	for range atOnce {
		if c := <-codes; c != http.StatusOK {
			t.Errorf("a scrape got %d", c)
		}
	}
	go func() { <-begun }()
	if c := get(); c != http.StatusOK {
		t.Errorf("after them a scrape got %d", c)
	}
}

// TestAWriterThatFailsEndsTheScrape with its error.
func TestAWriterThatFailsEndsTheScrape(t *testing.T) {
	e, _ := served(t, farm(100, 5))
	r, w := io.Pipe()
	r.Close()
	if err := Write(w, Reading{Snapshot: e.Overview(), Detail: config.MetricsServer}, nil); err == nil {
		t.Error("no error")
	}
}

func benchmarkScrape(b *testing.B, detail config.MetricsDetail) {
	e := written(b, farm(100, 100))
	var size bytes.Buffer
	if err := Write(&size, Reading{Snapshot: e.Snapshot(), Detail: detail}, nil); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ReportMetric(float64(size.Len()), "bytes/scrape")
	for b.Loop() {
		scrape(b, e, detail)
	}
}

// BenchmarkScrape10000 is what a scrape of 100 services with 100 real servers each
// costs; without detail, and with all of it.
func BenchmarkScrape10000(b *testing.B) {
	b.Run("service", func(b *testing.B) { benchmarkScrape(b, config.MetricsService) })
	b.Run("server", func(b *testing.B) { benchmarkScrape(b, config.MetricsServer) })
}
