package metrics

import (
	"slices"

	"github.com/sluice-lb/sluice/internal/engine"
)

// features are those that can fail by themselves, as engine.EdgeFailure names them.
var features = []string{"vip_device", "vip_guard", "nftables_ipvs", "check_via"}

// around writes what goes with the services on the machine.
func (e *encoder) around(s *engine.Snapshot) {
	e.single(passive, truth(s.Passive != nil && s.Passive.On))
	if s.Edge != nil {
		e.single(announced, number(s.Edge.Announced))
		e.single(aroundRepaired, number(s.Edge.Repaired))
		for _, f := range features {
			e.begin(featureUp)
			e.label("feature", f)
			e.value(truth(!slices.ContainsFunc(s.Edge.Failures, func(x engine.EdgeFailure) bool { return x.Feature == f })))
		}
	}
	e.each(s, vsAnnounced, func(vs *engine.VirtualServer) (float64, bool) {
		return truth(vs.VIP != nil && vs.VIP.Announced), vs.VIP != nil
	})
	e.each(s, vsMissing, func(vs *engine.VirtualServer) (float64, bool) {
		if vs.VIP == nil {
			return 0, false
		}
		return number(len(vs.VIP.Missing)), true
	})
}
