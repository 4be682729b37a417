package engine

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/sluice-lb/sluice/internal/config"
)

// labels are what people call virtual servers and their real servers, by all names
// that the log has for them. It is immutable and nil for none.
type labels map[labelled]string

// labelled names a virtual server, or one of its real servers.
type labelled struct{ vs, rs string }

// labelsOf are the labels of a configuration, and those of what is in it no more, but
// was in the one before: it may be on its way out.
func labelsOf(before, now []*config.VirtualServer) labels {
	all := labels{}
	for _, vcs := range [][]*config.VirtualServer{before, now} {
		for _, vc := range vcs {
			all.put(vc, "", "", vc.Label)
			for _, rc := range vc.RealServers {
				if rc.Label != "" || len(all) > 0 {
					all.put(vc, rsName(rc.Key, vc), rc.Key.String(), rc.Label)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// put takes up a label by both names that something has, or forgets the one before.
func (l labels) put(vc *config.VirtualServer, name, key, label string) {
	if label == "" && len(l) == 0 {
		return
	}
	for _, vs := range [...]string{vsName(vc), vc.Key.String()} {
		for _, rs := range [...]string{name, key} {
			if label == "" {
				delete(l, labelled{vs, rs})
			} else {
				l[labelled{vs, rs}] = label
			}
		}
	}
}

// labelsFor are the labels of what an order is for.
func (e *Engine) labelsFor(o Order) (vs, rs string) {
	at := e.byKey[o.VS]
	if at == nil {
		return "", ""
	}
	for _, rc := range at.Config.RealServers {
		if rc.Key == o.RS {
			return at.Config.Label, rc.Label
		}
	}
	return at.Config.Label, ""
}

// named are a name's attributes, with its label if it has one.
func named(key, name, label string) []any {
	if label == "" {
		return []any{key, name}
	}
	return []any{key, name, key + "_label", label}
}

// labelHandler adds to each record that names a virtual or a real server the label that
// it has, so that no line of the log and no event can forget it.
type labelHandler struct {
	slog.Handler
	of *atomic.Pointer[labels]
}

func (h labelHandler) Handle(ctx context.Context, r slog.Record) error {
	of := h.of.Load()
	if of == nil || len(*of) == 0 {
		return h.Handler.Handle(ctx, r)
	}
	var at labelled
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "vs":
			at.vs = a.Value.String()
		case "rs":
			at.rs = a.Value.String()
		}
		return true
	})
	var add []slog.Attr
	if l := (*of)[labelled{vs: at.vs}]; l != "" {
		add = append(add, slog.String("vs_label", l))
	}
	if l := (*of)[at]; l != "" && at.rs != "" {
		add = append(add, slog.String("rs_label", l))
	}
	if len(add) > 0 {
		r = r.Clone()
		r.AddAttrs(slices.Clip(add)...)
	}
	return h.Handler.Handle(ctx, r)
}

func (h labelHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return labelHandler{h.Handler.WithAttrs(as), h.of}
}

func (h labelHandler) WithGroup(name string) slog.Handler {
	return labelHandler{h.Handler.WithGroup(name), h.of}
}
