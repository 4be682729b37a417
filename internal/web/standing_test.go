package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

func TestReadyFollowsTheDaemon(t *testing.T) {
	snap := farm(1, 2)
	s := newSite(t, snap)
	s.get("/readyz").want(t, http.StatusOK, "ready")
	s.applied.Store(false)
	s.get("/readyz").want(t, http.StatusServiceUnavailable, "the table is not written yet")
	s.get("/vs/shop-0000").want(t, http.StatusServiceUnavailable, "the table is not written yet")
	s.Applied()
	broken := *snap
	broken.Kernel = engine.Kernel{Error: "operation not permitted"}
	s.set(&broken)
	s.get("/readyz").want(t, http.StatusServiceUnavailable, "the kernel's table cannot be written: operation not permitted")
	s.get("/vs/shop-0000").want(t, http.StatusOK)
	broken.Observe = true
	s.get("/readyz").want(t, http.StatusOK)
	s.Healthy = func(context.Context) error { return errors.New("the loop stands") }
	s.get("/readyz?format=json").want(t, http.StatusServiceUnavailable, `{"ready":false,"reason":"the loop stands"}`)
	s.get("/healthz").want(t, http.StatusServiceUnavailable, "the loop stands")
	s.Withdraw("stopping")
	s.get("/readyz").want(t, http.StatusServiceUnavailable, "stopping")
	s.get("/vs/shop-0000").want(t, http.StatusServiceUnavailable, "stopping")
	s.get("/healthz").want(t, http.StatusOK, "ok, stopping")
}

func TestVirtualServersByEveryName(t *testing.T) {
	snap := farm(3, 2)
	for i := range 2 {
		fail(snap, 1, i, "no answer")
	}
	dns := func(proto string, p ipvs.Protocol) engine.VirtualServer {
		k := ipvs.ServiceKey{Family: ipvs.INET, Protocol: p, Addr: snap.VirtualServers[0].Services[0].Key.Addr, Port: 53}
		return engine.VirtualServer{Name: "[dns]:0", Group: "dns", Protocol: proto, QuorumUp: true, Services: []engine.Service{{Key: k}}}
	}
	mark := ipvs.ServiceKey{FWMark: 5, Family: ipvs.INET6}
	snap.VirtualServers = append(snap.VirtualServers, dns("TCP", ipvs.TCP), dns("UDP", ipvs.UDP),
		engine.VirtualServer{Name: "FWM 5", QuorumUp: true, Services: []engine.Service{{Key: mark}}},
		engine.VirtualServer{Name: "[v6]:0", Group: "v6", Label: "Weird/name 100%", QuorumUp: true, Suspended: true})
	s := newSite(t, snap)
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/vs/shop-0000":                {200, "[192.0.0.0]:tcp:80 quorum: weight 2 alive, 1 needed"},
		"/vs/SHOP-0000":                {200, "[192.0.0.0]:tcp:80"},
		"/vs/192.0.0.0:80":             {200, "[192.0.0.0]:tcp:80"},
		"/vs/192.0.0.0:80/tcp":         {200, "[192.0.0.0]:tcp:80"},
		"/vs/192.0.0.0:80%2Ftcp":       {200, "[192.0.0.0]:tcp:80"},
		"/vs/%5B192.0.0.0%5D:tcp:80":   {200, "[192.0.0.0]:tcp:80"},
		"/vs/shop-0001":                {503, "no quorum: weight 0 alive, 1 needed"},
		"/vs/dns":                      {409, "[dns]:0/TCP, [dns]:0/UDP"},
		"/vs/dns/udp":                  {200, "[dns]:0"},
		"/vs/192.0.0.0:53":             {409, "may be any of 2"},
		"/vs/FWM%205":                  {200, "FWM 5"},
		"/vs/fwmark%205":               {200, "FWM 5"},
		"/vs/Weird%2Fname%20100%25":    {503, "suspended"},
		"/vs/192.0.0":                  {404, "there is no virtual server"},
		"/vs/":                         {200, "503 [192.0.0.1]:tcp:80 (shop-0001) no quorum"},
		"/vs/shop-0001?format=json":    {503, `"quorum_up":false`},
		"/vs/192.0.0.0:53?format=json": {409, `"candidates":["[dns]:0/TCP","[dns]:0/UDP"]`},
		"/vs/none?format=json":         {404, `"status":404`},
	} {
		s.get(path).want(t, want.code, want.text)
	}
	var all []Standing
	if err := json.Unmarshal([]byte(s.get("/vs/", "Accept", "application/json").body), &all); err != nil || len(all) != len(snap.VirtualServers) {
		t.Errorf("%d virtual servers, %v", len(all), err)
	}
	if r := s.do(http.MethodHead, "/vs/shop-0001", ""); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("HEAD: %d", r.StatusCode)
	}
}

// TestAVirtualServerThatIsNotInTheTableServesNobody, whatever its checks find.
func TestAVirtualServerThatIsNotInTheTableServesNobody(t *testing.T) {
	snap := farm(1, 2)
	s := newSite(t, snap)
	ds := snap.VirtualServers[0].Services[0].Destinations
	for i, tt := range []struct {
		kernel [2]int64
		code   int
	}{{[2]int64{-1, -1}, 503}, {[2]int64{-1, 1}, 200}, {[2]int64{0, 0}, 503}} {
		ds[0].Kernel, ds[1].Kernel = tt.kernel[0], tt.kernel[1]
		if got := s.get("/vs/shop-0000"); got.StatusCode != tt.code {
			t.Errorf("%d: %d %s", i, got.StatusCode, got.body)
		}
	}
}

// TestHealthOfVirtualServersIsCheap: thousands who ask a second read the engine four
// times, and a reload's names are found.
func TestHealthOfVirtualServersIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, farm(1000, 1))
		for range 10 {
			for range 500 {
				s.get("/vs/shop-0500").want(t, http.StatusOK)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if s.reads > 5 {
			t.Errorf("%d readings in a second", s.reads)
		}
		next := farm(1, 1)
		next.Generation++
		next.VirtualServers[0].Label = "other"
		s.set(next)
		s.get("/vs/other").want(t, http.StatusOK)
		s.get("/vs/shop-0500").want(t, http.StatusNotFound)
	})
}

func BenchmarkVirtualServer(b *testing.B) {
	snap := farm(1000, 10)
	s := &Server{Overview: func() *engine.Snapshot { return snap }}
	s.Applied()
	h := s.Handler()
	r, err := http.NewRequest(http.MethodGet, "/vs/shop-0500", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Body = http.NoBody
	for b.Loop() {
		h.ServeHTTP(nowhere{}, r)
	}
}

type nowhere struct{ discard }

func (nowhere) Header() http.Header { return http.Header{} }
func (nowhere) WriteHeader(int)     {}
