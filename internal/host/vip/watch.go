package vip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/host"
)

const protocol = host.Protocol

func openEvents() (*netlink.Conn, error) {
	return netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR})
}

// watch waits for what a change of ours would wait for too before it judges an event, so
// that the events of our own changes agree with what is believed.
func (v *Addresses) watch(ctx context.Context, changed func()) error {
	if err := v.events.SetReadDeadline(time.Time{}); err != nil { // an earlier watch's
		return fmt.Errorf("watch addresses and devices: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = v.events.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		events, err := v.events.Receive()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, unix.ENOBUFS): // events were lost, which says that there were some
			changed()
			continue
		case err != nil:
			return fmt.Errorf("watch addresses and devices: %w", err)
		}
		if v.contradicts(events) {
			changed()
		}
	}
}

// contradicts says whether events are of somebody else's changes to what concerns us. Other
// changes of theirs are noted: their addresses may become wanted later.
func (v *Addresses) contradicts(events []netlink.Message) (yes bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range events {
		switch m.Header.Type {
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			if a, s, ok := decodeAddress(m.Data); ok && v.heardAddress(a, s, m.Header.Type == unix.RTM_NEWADDR) {
				yes = true
			}
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			if l, ok := decodeLink(m.Data); ok && v.heardLink(l, m.Header.Type == unix.RTM_NEWLINK) {
				yes = true
			}
		}
	}
	return yes
}

func (v *Addresses) heardAddress(a netip.Addr, s spot, there bool) bool {
	switch {
	case v.m.at(a, s.index) == there:
		return false
	case v.ours(a, s):
		return true
	case there:
		v.m.add(a, s)
	default:
		v.m.drop(a, s.index)
	}
	_, wanted := v.want[a]
	return wanted
}

func (v *Addresses) heardLink(l link, there bool) bool {
	is, known := v.m.links[l.index]
	switch {
	case known == there && (!known || is == l):
		return false
	case v.uses[l.name] > 0 || known && v.uses[is.name] > 0:
		// Its counters and the like are the same event, with nothing new for us.
		return known != there || is.name != l.name || is.up() != l.up()
	case there:
		v.m.links[l.index] = l
	default:
		delete(v.m.links, l.index)
	}
	return false
}
