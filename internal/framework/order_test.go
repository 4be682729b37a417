package framework

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
)

func TestOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		configured  int64
		order       Order
		dynamic     Dynamic
		file        int64
		weight      int64
		maintenance bool
	}{
		"nothing asked":                   {configured: 5, weight: 5},
		"weight 0 in the file":            {configured: 0, weight: 0},
		"drain":                           {configured: 5, order: Order{Drain: true}, weight: 0, maintenance: true},
		"drain of a configured 0":         {configured: 0, order: Order{Drain: true}, weight: 0, maintenance: true},
		"weight":                          {configured: 5, order: Order{Weight: 8, Weighed: true}, weight: 8},
		"weight 0":                        {configured: 5, order: Order{Weighed: true}, weight: 0, maintenance: true},
		"weight for a configured 0":       {configured: 0, order: Order{Weight: 8, Weighed: true}, weight: 8},
		"drain of an ordered weight":      {configured: 5, order: Order{Drain: true, Weight: 8, Weighed: true}, weight: 0, maintenance: true},
		"a file adds to it":               {configured: 5, order: Order{Weight: 8, Weighed: true}, file: -3, weight: 5},
		"a file drains it":                {configured: 0, order: Order{Weight: 8, Weighed: true}, file: -9, weight: 0, maintenance: true},
		"a check's weight is absolute":    {configured: 5, order: Order{Weight: 8, Weighed: true}, dynamic: Dynamic{20, true}, weight: 20},
		"a drain outranks check's weight": {configured: 5, order: Order{Drain: true}, dynamic: Dynamic{20, true}, weight: 0, maintenance: true},
	} {
		t.Run(name, func(t *testing.T) {
			rc := &config.RealServer{Weight: tt.configured, Checkers: []*config.Checker{{}}, TrackFiles: []config.TrackFileUse{{Name: "f", Weight: 1}}}
			vs, _ := New(&config.VirtualServer{Quorum: 1, RealServers: []*config.RealServer{rc}},
				func(*config.RealServer) bool { return true }, func(string) int64 { return tt.file })
			if _, err := vs.SetDynamic(0, 0, tt.dynamic); err != nil {
				t.Fatal(err)
			}
			if _, err := vs.SetOrder(0, tt.order); err != nil {
				t.Fatal(err)
			}
			rs := vs.Servers[0]
			if rs.Weight() != tt.weight || rs.Maintenance() != tt.maintenance {
				t.Errorf("weight %d, maintenance %t, want %d, %t", rs.Weight(), rs.Maintenance(), tt.weight, tt.maintenance)
			}
		})
	}
	if _, err := (&VirtualServer{}).SetOrder(0, Order{}); err == nil {
		t.Error("an order for no server was taken")
	}
}

// TestOrderedForetells: what Ordered says of the weight left is what SetOrder leads to,
// a quorum that stands falls exactly when it says so, and asking changes nothing.
func TestOrderedForetells(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := &config.VirtualServer{Quorum: rapid.Uint32Range(1, 12).Draw(t, "quorum"), Hysteresis: rapid.Uint32Range(0, 12).Draw(t, "hysteresis")}
		n := rapid.IntRange(1, 5).Draw(t, "servers")
		for range n {
			cfg.RealServers = append(cfg.RealServers, &config.RealServer{Weight: rapid.Int64Range(0, 5).Draw(t, "weight"), Checkers: []*config.Checker{{}}})
		}
		vs, _ := New(cfg, func(*config.RealServer) bool { return true }, nil)
		for i := range n {
			if rapid.Bool().Draw(t, "down") {
				if _, err := vs.SetVerdict(i, 0, Down); err != nil {
					t.Fatal(err)
				}
			}
		}
		orders := map[int]Order{}
		for range rapid.IntRange(1, n).Draw(t, "orders") {
			orders[rapid.IntRange(0, n-1).Draw(t, "server")] = Order{Drain: rapid.Bool().Draw(t, "drain"), Weighed: rapid.Bool().Draw(t, "weighed"), Weight: rapid.Int64Range(0, 9).Draw(t, "n")}
		}
		sum, up := vs.Sum(), vs.QuorumUp()
		left, short := vs.Ordered(orders)
		if vs.Sum() != sum || vs.QuorumUp() != up {
			t.Fatal("asking changed something")
		}
		lost := false
		for i, o := range orders {
			c, err := vs.SetOrder(i, o)
			if err != nil {
				t.Fatal(err)
			}
			lost = lost || c.Quorum == QuorumLost
		}
		if vs.Sum() != left {
			t.Fatalf("weight %d left, foretold %d", vs.Sum(), left)
		}
		if up && left < sum && short == vs.QuorumUp() && !lost {
			t.Fatalf("quorum up %t, foretold short %t", vs.QuorumUp(), short)
		}
	})
}
