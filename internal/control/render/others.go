package render

import (
	"strings"

	"github.com/sluice-lb/sluice/internal/engine"
)

// drift lists what somebody else changed in services of ours and is not put back.
func (p *printer) drift(services []engine.Service) {
	for _, svc := range services {
		for _, d := range svc.Drift {
			where := clean(d.Destination)
			if where == "" || len(services) > 1 {
				where = strings.TrimSuffix(clean(svc.Name)+" "+where, " ")
			}
			p.line("  %s for %s: %s: %s: found %s, wanted %s", p.color(odd, "DRIFT"), p.ago(d.Since), where, clean(d.What), clean(d.Found), clean(d.Wanted))
		}
	}
}

// SelectForeign returns the foreign services whose name or a destination's address
// passes a filter; nil for nil.
func SelectForeign(f *engine.Foreign, filter string) *engine.Foreign {
	if f == nil {
		return nil
	}
	out := &engine.Foreign{Services: []engine.Service{}, Error: f.Error}
	for _, svc := range f.Services {
		shown := contains(svc.Name, filter)
		for i := range svc.Destinations {
			shown = shown || contains(svc.Destinations[i].Address, filter)
		}
		if shown {
			out.Services = append(out.Services, svc)
		}
	}
	return out
}

// foreign are the services that are not ours, if they were asked for.
func (p *printer) foreign(f *engine.Foreign) {
	if f == nil {
		return
	}
	p.line("")
	switch {
	case f.Error != "":
		p.line("foreign services: %s: %s", p.color(bad, "not known"), clean(f.Error))
	case len(f.Services) == 0:
		p.line("no foreign services in the kernel's table")
	default:
		p.line("foreign services, which are never touched: %d", len(f.Services))
	}
	for i := range f.Services {
		svc := &f.Services[i]
		p.line("")
		p.line("%s %s", p.color(bold, clean(svc.Name)), clean(svc.Scheduler))
		var rows []row
		for j := range svc.Destinations {
			d := &svc.Destinations[j]
			r := p.row(d.Address, []destination{{svc.Name, d}}, d.Wanted)
			r.cells[1], r.cells[2], r.cells[6] = "-", "foreign", "-"
			rows = append(rows, r)
		}
		p.table(rows)
	}
}
