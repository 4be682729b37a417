package engine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// found is one real server of what is published.
type found struct {
	p      *published
	piece  *piece
	server int
}

func (f *found) config() *config.RealServer { return f.piece.of.Servers[f.server].Config }

// find finds a real server among what is published, as a command's operands do, and
// asks nothing of the loop.
func (e *Engine) find(vs, rs string) (*found, error) {
	p := e.published.Load()
	at, in, err := pool(p.operands(), vs)
	if err != nil {
		return nil, err
	}
	var piece *piece
	for i := range p.pieces.n {
		if c := p.pieces.at(i); c.of == at.vs {
			piece = c
		}
	}
	t, err := member(at, in, rs)
	if err != nil {
		return &found{p, piece, -1}, err
	}
	return &found{p, piece, t.server}, nil
}

// operands are all real servers that are published.
func (p *published) operands() []operand {
	n := 0
	for i := range p.pieces.n {
		n += len(p.pieces.at(i).of.Servers)
	}
	all := make([]operand, 0, n)
	for i := range p.pieces.n {
		vs := p.pieces.at(i).of
		for j, rs := range vs.Servers {
			all = append(all, operand{vs, j, vs.Config.Key, rs.Config.Key})
		}
	}
	return all
}

// Explain tells all there is to know of one real server's place: named by vs and rs as
// a command's operands are. A *CommandError says that nothing, or more than one, has
// that name. It asks nothing of the loop.
func (e *Engine) Explain(ctx context.Context, vs, rs string) (*Explanation, error) {
	f, err := e.find(vs, rs)
	if err != nil && (f == nil || f.piece == nil) {
		return nil, err
	}
	x := &Explanation{At: time.Now(), VirtualServer: f.piece.vs.Name, VSLabel: f.piece.vs.Label, Observe: e.opts.Observe, Pool: f.pool()}
	if err != nil {
		// It may be on its way out.
		if !f.leaving(x, rs) {
			return nil, err
		}
		e.readAgain(ctx, f, x)
		x.Summary = x.sayLeaving()
		return x, nil
	}
	x.Configured = true
	x.RealServer = f.piece.server(f.server, f.p.config, x.At)
	x.Services = f.services()
	x.Checks = f.checks(e.started)
	x.Orders = f.orders()
	x.Weight = f.weight(x)
	e.readAgain(ctx, f, x)
	x.InService = x.serves()
	x.Summary = x.say(e.kernelTrouble(f.p))
	return x, nil
}

// kernelTrouble is what keeps the table from being as wanted, "" for nothing.
func (e *Engine) kernelTrouble(p *published) string {
	if p.head.Kernel.OK {
		return ""
	}
	return p.head.Kernel.Error
}

func (f *found) pool() *Pool {
	vs := f.piece.vs
	c := f.piece.counts()
	p := &Pool{
		Alive: vs.Alive, Quorum: vs.Quorum, Hysteresis: vs.Hysteresis, QuorumUp: vs.QuorumUp, Since: vs.Since,
		Threshold: int64(vs.Quorum) + int64(vs.Hysteresis), Servers: f.piece.situations.n,
		Up: c.Of(StateUp) + c.Of(StateKept) + c.Of(StateHeld), MinAlive: vs.MinAlive, AtFloor: vs.AtFloor,
		SorryServing: vs.SorryServing, Sorry: vs.Sorry, Suspended: vs.Suspended,
		Withheld: vs.Withheld, Passive: f.p.head.Passive, VIP: f.piece.withMissing(&f.p.report), Marked: vs.Marked,
		Hold: f.piece.hold.view(f.piece.of, func(i int) bool {
			return f.piece.situations.at(i).proven(len(f.piece.of.Servers[i].Config.Checkers))
		}),
	}
	if vs.QuorumUp {
		p.Threshold = max(int64(vs.Quorum)-int64(vs.Hysteresis), 1)
	}
	return p
}

// services are those of the kernel with the server's destination alone.
func (f *found) services() []Service {
	out := []Service{}
	for i, s := range f.piece.services() {
		dk, ok := f.piece.kernel.Destination(f.config().Key, s.ServiceKey)
		if !ok {
			continue
		}
		wanted := int64(f.piece.situations.at(f.server).wanted)
		d := Destination{Address: dk.String(), Wanted: wanted, Kernel: wanted}
		if f.piece.views != nil && f.piece.views[i] != nil {
			d.Wanted, d.Kernel = -1, -1
			all := serviceOf(f.piece.views[i].ServiceView).Destinations
			if j := slices.IndexFunc(all, func(o Destination) bool { return o.Address == d.Address }); j >= 0 {
				d = all[j]
			}
		}
		out = append(out, Service{Name: s.String(), Key: s.ServiceKey, Destinations: []Destination{d}})
	}
	return out
}

// leaving looks for a destination that is no longer configured and still drains.
func (f *found) leaving(x *Explanation, text string) bool {
	text, _ = canonical(text)
	address := ""
	for i, s := range f.piece.services() {
		if f.piece.views == nil || f.piece.views[i] == nil {
			continue
		}
		for _, d := range serviceOf(f.piece.views[i].ServiceView).Destinations {
			if d.Drain != nil && (d.Address == text || strings.HasPrefix(d.Address, text+":") || strings.HasPrefix(d.Address, "["+text+"]:")) && (address == "" || address == d.Address) {
				address = d.Address
				x.Services = append(x.Services, Service{Name: s.String(), Key: s.ServiceKey, Destinations: []Destination{d}})
			}
		}
	}
	x.RealServer = RealServer{Address: address, WeightWanted: -1}
	return address != ""
}

// readAgain replaces what is believed of the table by what is in it.
func (e *Engine) readAgain(ctx context.Context, f *found, x *Explanation) {
	if e.opts.Read == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	err := e.reader.use(ctx, e.opts.Read, func(r Reader) error {
		for i := range x.Services {
			s := &x.Services[i]
			ds, err := r.Destinations(ctx, s.Key)
			if err != nil {
				return err
			}
			d := &s.Destinations[0]
			d.Kernel = -1
			for _, k := range ds {
				if k.DestinationKey.String() == d.Address {
					d.found(k)
				}
			}
		}
		return nil
	})
	if err != nil {
		x.KernelError = err.Error()
	}
}

// found takes up what the table holds.
func (d *Destination) found(k ipvs.DestinationInfo) {
	d.Kernel = int64(k.Weight)
	d.Active, d.Inactive, d.Persistent = k.Counters.Active, k.Counters.Inactive, k.Counters.Persistent
	if d.Drain == nil {
		return
	}
	drain := *d.Drain
	drain.WaitsFor = apply.WaitsFor(k.Counters)
	if k.Counters.Active > 0 {
		drain.EndsBy = time.Time{}
	}
	d.Drain = &drain
}

// checks are the server's checkers.
func (f *found) checks(started time.Time) []Check {
	rc := f.config()
	out := make([]Check, len(rc.Checkers))
	for k, c := range rc.Checkers {
		if t := f.piece.of.tasks[f.server][k]; t != nil {
			out[k] = t.inDepth(started)
			continue
		}
		out[k].Checker = Checker{Kind: c.Kind.String(), Target: targetOf(c), Verdict: f.piece.situations.at(f.server).verdict(k).String()}
	}
	return out
}

// inDepth is all there is to know of a task.
func (t *task) inDepth(started time.Time) Check {
	c := Check{Checker: t.status()}
	t.mu.Lock()
	_, _, k := t.config()
	c.Missing = t.machine.Missing(t.rules.Rules)
	c.Every, c.Retry, c.Timeout = k.DelayLoop, k.DelayBeforeRetry, timeout(k)
	if t.since != 0 {
		c.Since = started.Add(time.Duration(t.since-1) * time.Second)
	}
	r := t.run
	t.mu.Unlock()
	if k.Misc != nil {
		c.Timeout = k.Misc.Timeout
	}
	if r == nil {
		return c
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.History = r.past.told()
	return c
}

// orders are what operators asked of the server.
func (f *found) orders() []Override {
	var out []Override
	for i, o := range f.p.orders {
		if o.VS == f.piece.of.Config.Key && o.RS == f.config().Key {
			out = append(out, f.p.head.Overrides[i])
		}
	}
	return out
}

// serves reports whether new connections go to the server. What others do to the table
// in observe mode says nothing of us.
func (x *Explanation) serves() bool {
	if x.RealServer.WeightWanted <= 0 {
		return false
	}
	return x.Observe || slices.ContainsFunc(x.Services, func(s Service) bool { return s.Destinations[0].Kernel > 0 })
}
