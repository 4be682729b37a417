package web

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

func passive(s *engine.Snapshot) *engine.Snapshot {
	s.Passive = &engine.Passive{On: true, Sources: []engine.PassiveSource{
		{Source: engine.PassiveByFile, Who: "track_file leave", Why: "it is 1", Since: time.Now()},
		{Source: engine.PassiveByCommand, Who: "ann", Since: time.Now()},
	}}
	return s
}

// TestPassiveGetsNoTraffic from the first moment, while its services still drain, and
// comes back by itself.
func TestPassiveGetsNoTraffic(t *testing.T) {
	s := newSite(t, passive(farm(1, 2)))
	s.get("/readyz").want(t, http.StatusServiceUnavailable, "passive: services are withheld, by track_file leave (it is 1) and by ann")
	s.get("/vs/shop-0000").want(t, http.StatusServiceUnavailable, "passive: this director withholds its services")
	s.get("/vs/").want(t, http.StatusOK, "503 [192.0.0.0]:tcp:80 (shop-0000) passive")
	s.get("/healthz").want(t, http.StatusOK)
	s.get("/").want(t, http.StatusOK, "<title>Passive ·", "This director is passive: services are withheld, by track_file leave (it is 1) and by ann")
	off := farm(1, 2)
	off.Passive = &engine.Passive{Sources: []engine.PassiveSource{}}
	s.set(off)
	s.get("/readyz").want(t, http.StatusOK)
	s.get("/vs/shop-0000").want(t, http.StatusOK)
	s.get("/").without(t, "Passive", "passive")
}

// TestPassiveServersAreFound: the page has a filter for them, and they are no problem.
func TestPassiveServersAreFound(t *testing.T) {
	snap := passive(farm(2, 1))
	vs := &snap.VirtualServers[0]
	vs.Withheld, vs.Services[0].Destinations = true, nil
	vs.RealServers[0].State, vs.RealServers[0].WeightWanted = engine.StatePassive, -1
	vs.VIP = &engine.VIP{Device: "vips", Follow: "quorum", Why: "withheld", Addresses: 1}
	s := newSite(t, snap)
	s.get("/?state=passive").want(t, http.StatusOK, "shop-0000", "withheld: this director is passive", `class="found">1–1 of 1`)
	s.get("/?state=passive").without(t, "shop-0001")
	s.get("/?state=problems").want(t, http.StatusOK, "Nothing matches")
}

// TestThePageTellsOfAddresses: where they are, which are missing, and which a mark
// stands for.
func TestThePageTellsOfAddresses(t *testing.T) {
	snap := farm(4, 1)
	snap.Edge = &engine.Edge{Announced: 2, Failures: []engine.EdgeFailure{{Feature: "vip_guard", Reason: "nf_tables is not in this kernel <x>"}}}
	snap.VirtualServers[0].VIP = &engine.VIP{Device: "vips", Follow: "quorum", Announced: true, Addresses: 1}
	snap.VirtualServers[1].VIP = &engine.VIP{Device: "vips", Follow: "quorum", Why: "its services are not in the table yet", Addresses: 1}
	snap.VirtualServers[2].VIP = &engine.VIP{Device: "vips", Follow: "always", Announced: true, Addresses: 1200, Missing: []engine.MissingAddress{
		{Address: "192.0.2.7", Reason: "it is on eth0 too"}, {Address: "192.0.2.8", Reason: "it is on eth0 too"}, {Address: "192.0.2.9"}, {Address: "192.0.2.10"}, {Address: "192.0.2.11"}}}
	snap.VirtualServers[3].Marked = &engine.Marked{Mark: 1000, Count: 2, Ranges: []string{"a 80", "b 80", "c 80", "d 80", "e 80"}}
	s := newSite(t, snap)
	page := s.get("/?sort=file")
	page.want(t, http.StatusOK,
		"vip_guard does not work: nf_tables is not in this kernel &lt;x&gt;", "(!) 2 problems",
		"1 address on vips, vip_follow quorum", ">⇡</span>announced",
		"The addresses of a virtual server are not announced", ">⇣</span>not announced", "Not announced on vips: its services are not in the table yet",
		"Addresses of a virtual server are not on their device", "5 of 1,200 addresses not announced", "Not on vips: 192.0.2.7: it is on eth0 too",
		"Mark 1000 stands for 2 addresses: a 80, b 80, c 80, d 80 and 1 more")
	page.without(t, "192.0.2.11")
	problems := s.get("/?state=problems")
	problems.want(t, http.StatusOK, "shop-0001", "shop-0002")
	problems.without(t, `data-key="vs-[192.0.0.0]`, `data-key="vs-[192.0.0.3]`)
}
