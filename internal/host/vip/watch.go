package vip

import (
	"context"
	"errors"
	"fmt"
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

func (v *Addresses) contradicts(events []netlink.Message) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range events {
		switch m.Header.Type {
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			a, s, ok := decodeAddress(m.Data)
			if !ok || v.m.at(a, s.index) == (m.Header.Type == unix.RTM_NEWADDR) {
				continue
			}
			if _, ok := v.want[a]; ok || v.ours(a, s) {
				return true
			}
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			l, ok := decodeLink(m.Data)
			if !ok || v.uses[l.name] == 0 {
				continue
			}
			is, known := v.m.links[l.index]
			if known != (m.Header.Type == unix.RTM_NEWLINK) || known && (is.name != l.name || is.up() != l.up()) {
				return true
			}
		}
	}
	return false
}
