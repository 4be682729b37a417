package engine

import (
	"slices"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/config"
)

// plan is the difference between two configurations, with all that can be made of the
// new one beforehand. Both are immutable, so that it is made beside the loop, which
// then does no more than what changed.
type plan struct {
	// from is the configuration that it holds for, to the one that shall run: what it
	// has in common with from is from's very own.
	from, to *config.Config
	// steps are for to's virtual servers, in their order.
	steps []step
	gone  []*config.VirtualServer
	// files, ssl, share: the track files, the client side of SSL_GET or share_checks
	// are others.
	files, ssl, share bool
	labels            labels
}

// step is what becomes of one virtual server.
type step struct {
	// was is nil for a new one, and vc itself for one that stays.
	was, vc *config.VirtualServer
	// kernel is vc in the kernel's words, nil for one that stays.
	kernel *apply.VirtualServer
}

// planned compares. from is nil for nothing.
func planned(from, to *config.Config) *plan {
	if from == nil {
		from = &config.Config{}
	}
	merged := *to
	merged.VirtualServers = slices.Clone(to.VirtualServers)
	p := &plan{
		from: from, to: &merged, steps: make([]step, len(to.VirtualServers)),
		files: !slices.EqualFunc(from.TrackFiles, to.TrackFiles, config.SameTrackFile),
		ssl:   !config.SameSSL(from.SSL, to.SSL),
		share: from.Global.ShareChecks != to.Global.ShareChecks,

		labels: labelsOf(from.VirtualServers, to.VirtualServers),
	}
	old := make(map[config.VSKey]*config.VirtualServer, len(from.VirtualServers))
	for _, vc := range from.VirtualServers {
		old[vc.Key] = vc
	}
	for i, vc := range to.VirtualServers {
		was := old[vc.Key]
		delete(old, vc.Key)
		if was != nil && config.SameVirtualServer(was, vc) {
			merged.VirtualServers[i], p.steps[i] = was, step{was: was, vc: was}
			continue
		}
		if was != nil {
			vc = inherit(was, vc)
			merged.VirtualServers[i] = vc
		}
		p.steps[i] = step{was, vc, apply.Translate(vc)}
	}
	for _, vc := range from.VirtualServers {
		if old[vc.Key] != nil {
			p.gone = append(p.gone, vc)
		}
	}
	return p
}

// counts are the numbers of virtual servers that it is about.
func (p *plan) counts() Reloaded {
	r := Reloaded{Removed: len(p.gone)}
	for _, s := range p.steps {
		switch {
		case s.was == nil:
			r.Added++
		case s.was != s.vc:
			r.Changed++
		}
	}
	return r
}

// inherit is a virtual server with those of its real servers that stay as they were
// in the very place where they were: a pointer tells that then.
func inherit(was, vc *config.VirtualServer) *config.VirtualServer {
	places := placesOf(was)
	with := *vc
	with.RealServers = slices.Clone(vc.RealServers)
	for i, rc := range vc.RealServers {
		if j := places.of(rc.Key, i); j >= 0 && config.SameRealServer(was.RealServers[j], rc) {
			with.RealServers[i] = was.RealServers[j]
		}
	}
	return &with
}

// places finds real servers by their keys. In most reloads they stand where they
// stood, and the index is not made.
type places struct {
	in    []*config.RealServer
	index map[config.RSKey]int
}

func placesOf(vc *config.VirtualServer) *places { return &places{in: vc.RealServers} }

// of returns the index of a key, which is looked for near first; -1 for none.
func (p *places) of(k config.RSKey, near int) int {
	for _, i := range [...]int{near, near - 1, near + 1} {
		if i >= 0 && i < len(p.in) && p.in[i].Key == k {
			return i
		}
	}
	if p.index == nil {
		p.index = make(map[config.RSKey]int, len(p.in))
		for i, rc := range p.in {
			p.index[rc.Key] = i
		}
	}
	if i, ok := p.index[k]; ok {
		return i
	}
	return -1
}
