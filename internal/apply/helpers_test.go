package apply

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func rsKey(n int) config.RSKey {
	return config.RSKey{AddrPort: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:80", n))}
}

func destKey(n int) ipvs.DestinationKey {
	return ipvs.DestinationKey{Addr: rsKey(n).Addr(), Port: 80}
}

var vip = netip.MustParseAddrPort("192.0.2.1:80")

func svcKey() ipvs.ServiceKey {
	return ipvs.ServiceKey{Family: ipvs.INET, Protocol: ipvs.TCP, Addr: vip.Addr(), Port: vip.Port()}
}

// vsOf makes a TCP virtual server of NAT servers with weight 1 and one checker.
func vsOf(servers ...int) *config.VirtualServer {
	vs := &config.VirtualServer{
		Key:       config.VSKey{Protocol: config.TCP, Addr: vip},
		Entries:   []config.Entry{{Addr: vip, Family: config.IPv4}},
		Protocol:  config.TCP,
		Scheduler: "rr",
		Quorum:    1,
	}
	for _, n := range servers {
		vs.RealServers = append(vs.RealServers, &config.RealServer{
			Key: rsKey(n), Weight: 1, Forward: config.Forwarding{Method: config.NAT},
			Checkers: []*config.Checker{{Kind: config.TCPCheck, Conn: config.Connection{Target: rsKey(n).AddrPort}}},
		})
	}
	return vs
}

func withSorry(vs *config.VirtualServer, n int, inhibit bool) *config.VirtualServer {
	vs.Sorry = &config.SorryServer{Key: rsKey(n), Inhibit: inhibit, Forward: config.Forwarding{Method: config.NAT}}
	return vs
}

// rig is an applier over a table in memory, driven by the framework.
type rig struct {
	t     testing.TB
	table *ipvstest.Table
	a     *Applier
	vss   map[config.VSKey]*framework.VirtualServer
	now   time.Time
}

func trust(*config.RealServer) bool    { return true }
func distrust(*config.RealServer) bool { return false }
func noFiles(string) int64             { return 0 }

func newRig(t testing.TB, how framework.Trust, cfgs ...*config.VirtualServer) *rig {
	t.Helper()
	r := &rig{t: t, table: ipvstest.New(), now: epoch}
	r.start(how, cfgs...)
	return r
}

func (r *rig) start(how framework.Trust, cfgs ...*config.VirtualServer) {
	r.t.Helper()
	var vss []*VirtualServer
	for _, c := range cfgs {
		vss = append(vss, Translate(c))
	}
	r.a = New(r.table, vss, nil)
	r.must(r.a.Adopt(r.t.Context()))
	r.vss = map[config.VSKey]*framework.VirtualServer{}
	for _, c := range cfgs {
		f, _ := framework.New(c, how, noFiles)
		r.vss[c.Key] = f
		r.must(r.a.Init(f))
	}
	r.flush()
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) flush() {
	r.t.Helper()
	r.must(r.a.Flush(r.t.Context(), r.now))
}

func (r *rig) tick(after time.Duration) {
	r.t.Helper()
	r.now = r.now.Add(after)
	r.must(r.a.Tick(r.t.Context(), r.now))
}

// hand passes what the framework changed on, as the engine does.
func (r *rig) hand(f *framework.VirtualServer, c framework.Change) {
	r.t.Helper()
	for _, s := range c.Servers {
		rs := f.Servers[s.Index]
		if s.AliveChanged {
			r.must(r.a.SetAlive(f.Config.Key, rs.Config.Key, rs.Alive()))
		}
		if s.WeightChanged {
			r.must(r.a.SetWeight(f.Config.Key, rs.Config.Key, rs.Weight()))
		}
	}
	r.must(r.a.Quorum(f.Config.Key, c.Quorum))
}

func (r *rig) only() *framework.VirtualServer {
	for _, f := range r.vss {
		return f
	}
	return nil
}

func (r *rig) verdict(server int, v framework.Verdict) {
	r.t.Helper()
	f := r.only()
	c, err := f.SetVerdict(server, 0, v)
	r.must(err)
	r.hand(f, c)
}

func (r *rig) reload(how framework.Trust, cfgs ...*config.VirtualServer) {
	r.t.Helper()
	var vss []*VirtualServer
	next := map[config.VSKey]*framework.VirtualServer{}
	for _, c := range cfgs {
		vss = append(vss, Translate(c))
		if was := r.vss[c.Key]; was != nil {
			next[c.Key], _ = framework.Next(was, c, how, noFiles)
		} else {
			next[c.Key], _ = framework.New(c, how, noFiles)
		}
	}
	r.a.Replace(vss)
	r.vss = next
	for _, f := range next {
		r.must(r.a.Init(f))
	}
	r.flush()
}

func (r *rig) connections(n int, active, inactive uint32) {
	r.t.Helper()
	r.must(r.table.SetCounters(svcKey(), destKey(n), ipvs.Counters{Active: active, Inactive: inactive}))
}

// weights lists the table's content as "1:1 2:0".
func (r *rig) weights() string {
	r.t.Helper()
	ds, err := r.table.Destinations(r.t.Context(), svcKey())
	r.must(err)
	by := map[byte]uint32{}
	for _, d := range ds {
		by[d.Addr.As4()[3]] = d.Weight
	}
	out := ""
	for n := range 256 {
		if w, ok := by[byte(n)]; ok {
			out += fmt.Sprintf(" %d:%d", n, w)
		}
	}
	return out
}

func (r *rig) want(weights string) {
	r.t.Helper()
	if got := r.weights(); got != weights {
		r.t.Errorf("table holds%q, want%q", got, weights)
	}
}

// ops returns the log as short words and empties it.
func (r *rig) ops() []string {
	var out []string
	for _, o := range r.table.Log() {
		word := map[ipvs.OpKind]string{
			ipvs.OpAddService: "add service", ipvs.OpSetService: "set service", ipvs.OpDelService: "del service",
		}[o.Kind]
		if word == "" {
			n := o.Destination.Addr.As4()[3]
			switch o.Kind {
			case ipvs.OpAddDest:
				word = fmt.Sprintf("add %d:%d", n, o.Destination.Weight)
			case ipvs.OpSetDest:
				word = fmt.Sprintf("set %d:%d", n, o.Destination.Weight)
			case ipvs.OpDelDest:
				word = fmt.Sprintf("del %d", n)
			}
		}
		out = append(out, word)
	}
	r.table.ResetLog()
	return out
}

func (r *rig) wantOps(want ...string) {
	r.t.Helper()
	got := r.ops()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Errorf("operations %q, want %q", got, want)
	}
}

// wants are the destinations that a target wants.
func (t *target) wants() map[ipvs.DestinationKey]ipvs.Destination {
	ws := map[ipvs.DestinationKey]ipvs.Destination{}
	for _, d := range t.dests {
		if d.fate == wanted {
			ws[d.dest.DestinationKey] = d.dest
		}
	}
	return ws
}

func (t *target) usable() bool {
	for _, d := range t.wants() {
		if d.Weight > 0 {
			return true
		}
	}
	return false
}
