package engine

import (
	"context"
	"errors"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// StatusForeign is Status with what the kernel's table holds besides our services,
// read just now.
func (e *Engine) StatusForeign(ctx context.Context) *Snapshot {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	s := e.Status(ctx)
	s.Foreign = &Foreign{Services: []Service{}}
	services, err := e.foreign(ctx)
	if err != nil {
		s.Foreign.Error = err.Error()
	}
	s.Foreign.Services = append(s.Foreign.Services, services...)
	return s
}

func (e *Engine) foreign(ctx context.Context) (out []Service, err error) {
	if e.opts.Read == nil {
		return nil, errors.New("the kernel's table could not be read: there is none")
	}
	ours := map[ipvs.ServiceKey]bool{}
	p := e.published.Load()
	for i := range p.pieces.n {
		for _, svc := range p.pieces.at(i).services() {
			ours[svc.ServiceKey] = true
		}
	}
	for _, v := range p.leaving {
		ours[v.Service.ServiceKey] = true
	}
	err = e.reader.use(ctx, e.opts.Read, func(r Reader) error {
		out, err = foreign(ctx, r, ours)
		return err
	})
	return out, err
}

// foreign are the services that are not ours.
func foreign(ctx context.Context, r Reader, ours map[ipvs.ServiceKey]bool) (out []Service, err error) {
	all, err := r.Services(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if ours[s.ServiceKey] {
			continue
		}
		ds, err := r.Destinations(ctx, s.ServiceKey)
		if err != nil {
			return out, err
		}
		f := Service{Name: s.ServiceKey.String(), Scheduler: s.Scheduler, Destinations: []Destination{}}
		for _, d := range ds {
			// Nobody here wants another weight than the one that it has.
			f.Destinations = append(f.Destinations, Destination{Address: d.DestinationKey.String(), Wanted: int64(d.Weight), Kernel: int64(d.Weight),
				Active: d.Counters.Active, Inactive: d.Counters.Inactive, Persistent: d.Counters.Persistent})
		}
		out = append(out, f)
	}
	return out, nil
}
