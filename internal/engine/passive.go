package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
)

// Passive is whether this director withholds its services: it goes on checking, and
// nothing is in its table.
type Passive struct {
	On bool `json:"on"` // any of the sources says so
	// Sources are who wants it so: any of them is enough.
	Sources []PassiveSource `json:"sources"`
}

// PassiveSource is one of what makes a director passive.
type PassiveSource struct {
	Source string    `json:"source"`        // "configuration", "track_file" or "command"
	Who    string    `json:"who"`           // "the configuration", the track file, or the user who asked
	Why    string    `json:"why,omitempty"` // what the file says, or the reason that an operator gave
	Since  time.Time `json:"since"`         // when it was seen first
}

// Sources of passive.
const (
	PassiveByConfiguration = "configuration"
	PassiveByFile          = "track_file"
	PassiveByCommand       = "command"
)

// PassiveChange is what a command about passive came to.
type PassiveChange struct {
	// Passive is how it is now: with off, others may still want it.
	Passive Passive `json:"passive"`
	// Services are how many services of the kernel it is about.
	Services int `json:"services"`
}

// said is why the director is passive, for people.
func (s *PassiveSource) said() string {
	if s.Why == "" {
		return "by " + s.Who
	}
	return "by " + s.Who + ": " + s.Why
}

// passivity is what is known of passive. The order of an operator is kept with those
// for real servers, as one of its own kind for none.
type passivity struct {
	on      bool
	sources []PassiveSource
	command *Order
}

// verbPassive is the kind of the order that makes a director passive.
const verbPassive Verb = "passive"

// SetPassive has this director withhold its services, or ends an earlier such order. It
// survives a restart and is never refused: who says it knows of the other directors.
func (e *Engine) SetPassive(ctx context.Context, on bool, who, reason string) (PassiveChange, error) {
	var done PassiveChange
	err := e.call(ctx, func(e *Engine) {
		now := time.Now()
		reason = strings.Join(strings.Fields(reason), " ")
		if len(reason) > maxReason {
			reason = strings.ToValidUTF8(reason[:maxReason], "")
		}
		o := Order{Kind: verbPassive, Who: cmp.Or(who, "unknown"), Reason: reason, Since: now}
		if on {
			e.log.Info("An operator has this director withhold its services", event.Key, event.PassiveAsked, "who", o.Who, "reason", o.Reason)
		} else {
			e.log.Info("An operator has this director withhold its services no longer", event.Key, event.PassiveAsked, "who", o.Who, "reason", o.Reason)
		}
		if e.passive.command = nil; on {
			e.passive.command = &o
		}
		e.ordersDue, e.headTouched = true, true
		e.lookPassive(now)
		done = PassiveChange{Passive: *e.passive.told(), Services: e.countServices()}
	})
	return done, err
}

func (p *passivity) told() *Passive {
	if len(p.sources) == 0 {
		return &Passive{Sources: []PassiveSource{}}
	}
	return &Passive{p.on, slices.Clone(p.sources)}
}

func (e *Engine) countServices() (n int) {
	for _, vc := range e.config.VirtualServers {
		if kernel := e.applier.Lookup(vc.Key); kernel != nil {
			n += len(kernel.Services)
		}
	}
	return n
}

// passiveSources are those that want it now.
func (e *Engine) passiveSources(now time.Time) (all []PassiveSource) {
	add := func(s PassiveSource) {
		for _, was := range e.passive.sources {
			if was.Source == s.Source && was.Who == s.Who && was.Source != PassiveByCommand {
				s.Since = was.Since
			}
		}
		all = append(all, s)
	}
	p := e.config.Global.Passive
	if p.On {
		add(PassiveSource{PassiveByConfiguration, "the configuration", "passive on", now})
	}
	if p.File != nil && e.values[p.File.Name] != 0 {
		add(PassiveSource{PassiveByFile, "track_file " + p.File.Name, fmt.Sprintf("it is %d", e.values[p.File.Name]), now})
	}
	if o := e.passive.command; o != nil {
		add(PassiveSource{PassiveByCommand, o.Who, o.Reason, o.Since})
	}
	return all
}

// lookPassive finds out whether the director is passive, and acts on a change.
func (e *Engine) lookPassive(now time.Time) {
	p := &e.passive
	was := p.on
	sources := e.passiveSources(now)
	if slices.Equal(sources, p.sources) {
		return
	}
	since := now
	if len(p.sources) > 0 {
		since = p.sources[0].Since
	}
	p.sources, p.on = sources, len(sources) > 0
	e.headTouched = true
	if p.on == was {
		// Who it is by stands in every reason.
		e.allTouched = true
		return
	}
	if p.on {
		s := &p.sources[0]
		e.log.Warn("This director is passive, its services are withheld", event.Key, event.PassiveOn, "source", s.Source, "who", s.Who, "reason", s.Why, "services", e.countServices())
	} else {
		e.log.Info("This director is no longer passive, its services come back", event.Key, event.PassiveOff, "after", now.Sub(since).Round(time.Second), "services", e.countServices())
	}
	for _, vs := range e.vss {
		e.touched[vs] = true
		e.redress(vs)
	}
	e.settlePassive(e.vss, now)
}

// settlePassive has virtual servers withheld, or not, as they should be: at once, or when
// their addresses are gone.
func (e *Engine) settlePassive(vss []*server, now time.Time) {
	var on []*server
	var off []config.VSKey
	for _, vs := range vss {
		switch {
		case vs.withheld == e.passive.on:
			if !vs.withheld && vs.vip != nil {
				vs.vip.stays = false
			}
		case !e.passive.on:
			vs.withheld = false
			if vs.vip != nil {
				vs.vip.stays = false
			}
			off = append(off, vs.Config.Key)
		case vs.vip.addressed(now):
			e.edge.waiting[vs] = true
		default:
			on = append(on, vs)
		}
	}
	e.withhold(on)
	if len(off) > 0 {
		e.must(e.applier.Withhold(false, off...))
	}
}

// withhold tells apply of virtual servers that leave the table.
func (e *Engine) withhold(vss []*server) {
	if len(vss) == 0 {
		return
	}
	keys := make([]config.VSKey, len(vss))
	for i, vs := range vss {
		vs.withheld = true
		keys[i] = vs.Config.Key
		e.touched[vs] = true
		e.redress(vs)
	}
	e.must(e.applier.Withhold(true, keys...))
}

// withheldReason is why a virtual server is not served.
func (e *Engine) withheldReason() string {
	if !e.passive.on {
		return "withheld"
	}
	s := &e.passive.sources[0]
	return fmt.Sprintf("withheld: this director is passive since %s %s", s.Since.Format(time.DateTime), s.said())
}
