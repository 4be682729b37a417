package engine

import (
	"net/netip"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
)

// addresses are those of this host; nil of them means that they cannot be known.
type addresses struct{ set map[netip.Addr]bool }

type addressEvent struct{ addresses }

// Addresses tells the engine which addresses this host has, for ha_suspend. nil says
// that they cannot be known: everything is checked then, since a check too many
// harms nobody. Until the first call the checks under ha_suspend wait.
func (e *Engine) Addresses(present map[netip.Addr]bool) {
	e.inbox.send(addressEvent{addresses{present}})
}

func (ev addressEvent) handle(e *Engine) {
	e.local = &ev.addresses
	for _, vs := range e.vss {
		was := vs.suspended
		if vs.suspended = e.away(vs.Config); vs.suspended == was {
			continue
		}
		e.touched[vs] = true
		if vs.suspended {
			e.log.Info("Checks suspended, the address of the virtual server is not on this host", event.Key, event.Suspended, "vs", vs.name, "why", "ha_suspend")
		} else {
			e.log.Info("Checks resumed, the address of the virtual server is on this host", event.Key, event.Resumed, "vs", vs.name, "why", "ha_suspend")
		}
		for _, ts := range vs.tasks {
			for _, t := range ts {
				switch {
				case t == nil:
				case vs.suspended:
					e.suspend(t)
				default:
					e.enlist(t, 0)
				}
			}
		}
	}
}

// away reports whether ha_suspend keeps a virtual server from being checked: none of
// its addresses is on this host. States and the table stay as they are (facts 5.7).
// Of a group one address is enough; keepalived never finds a group's.
func (e *Engine) away(vc *config.VirtualServer) bool {
	if !vc.HASuspend || e.local != nil && e.local.set == nil {
		return false
	}
	if e.local == nil {
		return true
	}
	for _, en := range vc.Entries {
		if en.Addr.IsValid() && e.local.set[en.Addr.Addr().Unmap()] {
			return false
		}
	}
	return true
}
