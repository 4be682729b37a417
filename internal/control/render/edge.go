package render

import (
	"fmt"
	"strings"

	"github.com/sluice-lb/sluice/internal/engine"
)

// edge writes whether this director is passive, and what of the machine around the
// table does not work.
func (p *printer) edge(s *engine.Snapshot) {
	if s.Passive != nil && s.Passive.On {
		for i := range s.Passive.Sources {
			src := &s.Passive.Sources[i]
			why := ""
			if src.Why != "" {
				why = ": " + clean(src.Why)
			}
			p.line("%s for %s, services are withheld, by %s%s", p.color(odd, "PASSIVE"), p.ago(src.Since), clean(src.Who), why)
		}
	}
	if s.Edge == nil {
		return
	}
	for i := range s.Edge.Failures {
		f := &s.Edge.Failures[i]
		p.line("%s for %s: %s", p.color(bad, clean(f.Feature)+" does not work"), p.ago(f.Since), clean(f.Reason))
	}
	if n := s.Edge.Repaired; n > 0 {
		p.line("put back around the table since the start: %s that somebody else made, see the log", Count(n, "change"))
	}
}

// rangesShown are the ranges of a mark that are listed unless all are asked for.
const rangesShown = 4

// marked writes which addresses a mark stands for: the kernel's services do not say it.
func (p *printer) marked(m *engine.Marked) {
	if m == nil {
		return
	}
	what := "1 address"
	if m.Count != 1 {
		what = fmt.Sprintf("%d addresses", m.Count)
	}
	shown, more := m.Ranges, ""
	if n := len(shown); n > rangesShown && !p.o.Wide {
		shown, more = shown[:rangesShown], fmt.Sprintf(", and %s more", Count(uint64(n-rangesShown), "range"))
	}
	ranges := make([]string, len(shown))
	for i, r := range shown {
		ranges[i] = clean(r)
	}
	p.line("  mark %d (nftables_ipvs): %s: %s%s", m.Mark, what, strings.Join(ranges, ", "), more)
}

// vip writes where a virtual server's addresses are.
func (p *printer) vip(v *engine.VIP) {
	if v == nil {
		return
	}
	what := "address"
	if v.Addresses != 1 {
		what = fmt.Sprintf("%d addresses", v.Addresses)
	}
	switch {
	case !v.Announced:
		p.line("  %s: %s on %s: %s", p.color(odd, "NOT ANNOUNCED"), what, clean(v.Device), clean(v.Why))
	case len(v.Missing) > 0:
		if v.Addresses != 1 {
			what = fmt.Sprintf("%d of %s", len(v.Missing), what)
		}
		p.line("  %s: %s on %s (vip_follow %s)", p.color(bad, "NOT ANNOUNCED"), what, clean(v.Device), clean(v.Follow))
		for i, m := range v.Missing {
			if i == 8 && !p.o.Wide {
				p.line("    and %d more", len(v.Missing)-i)
				break
			}
			p.line("    %s: %s", clean(m.Address), clean(m.Reason))
		}
	default:
		p.line("  announced: %s on %s (vip_follow %s)", what, clean(v.Device), clean(v.Follow))
	}
}
