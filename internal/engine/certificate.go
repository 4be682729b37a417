package engine

import (
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// tls reports whether some checks of a virtual server see certificates.
func (vs *server) tls() bool {
	for _, rs := range vs.Servers {
		for _, c := range rs.Config.Checkers {
			if c.Kind == config.SSLGet {
				return true
			}
		}
	}
	return false
}

// certificateEnds is when the first certificate does that the checks have seen. It asks
// the checks that see any, and looks at no other virtual server.
func (p *piece) certificateEnds() time.Time {
	if !p.tls {
		return time.Time{}
	}
	first := int64(0)
	for _, tasks := range p.of.tasks {
		for _, t := range tasks {
			if t == nil {
				continue
			}
			if ends := t.certificateEnds(); ends != 0 && (first == 0 || ends < first) {
				first = ends
			}
		}
	}
	if first == 0 {
		return time.Time{}
	}
	return time.Unix(first, 0)
}
