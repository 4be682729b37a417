package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/host"
)

const (
	// interval is how often the kernel is looked at without a reason, retry while a
	// lane does not work or something could not be put back.
	interval = time.Minute
	retry    = 5 * time.Second
	// glance is how often it is asked how the servers are reached.
	glance = 10 * time.Second
	// calm is how long after a change of something it is looked at: the next one
	// follows closely.
	calm = 200 * time.Millisecond
)

// groups are what a change of may be one of a lane: devices, addresses, rules, and of
// routes those that are ours.
const groups = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1) |
	1<<(unix.RTNLGRP_IPV4_RULE-1) | 1<<(unix.RTNLGRP_IPV6_RULE-1) | 1<<(unix.RTNLGRP_IPV4_ROUTE-1) | 1<<(unix.RTNLGRP_IPV6_ROUTE-1)

// Run repairs lanes until the context ends: when something of them changes, and each
// minute. As long as there are none it has no socket. Lanes stay at its end. failed is
// told of what did not work as a whole, once for each reason.
func (k *Keeper) Run(ctx context.Context, failed func(error)) error {
	var ring chan struct{}
	var bell chan error
	stop := func() {}
	defer func() { stop() }()
	last, said := "", false
	timer := time.NewTimer(interval)
	defer timer.Stop()
	glances := time.NewTicker(glance)
	defer glances.Stop()
	for {
		if k.active() && bell == nil {
			watching, cancel := context.WithCancel(ctx)
			ended := make(chan struct{})
			ring, bell = make(chan struct{}, 1), make(chan error, 1)
			go func(ring chan<- struct{}, bell chan<- error) {
				defer close(ended)
				bell <- k.opts.watch(watching, ring)
			}(ring, bell)
			stop = func() { cancel(); <-ended }
		} else if !k.active() && bell != nil {
			stop()
			ring, bell, stop = nil, nil, func() {}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-k.rung: // there was a Sync
			timer.Reset(k.pause())
			continue
		case err := <-bell:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !said {
				said = true
				failed(fmt.Errorf("check_via: changes of rules and routes cannot be watched, they are looked at each minute: %w", err))
			}
			stop()
			bell = make(chan error) // not again
			stop = func() {}
		case <-ring:
			timer.Reset(calm)
			continue
		case <-glances.C:
			if !k.strayed() {
				continue
			}
		case <-timer.C:
		}
		err := k.again(ctx)
		select {
		case <-k.rung:
		default:
		}
		if now := text(err); now != last {
			if last = now; err != nil && ctx.Err() == nil {
				failed(err)
			}
		}
		timer.Reset(k.pause())
	}
}

func (k *Keeper) active() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.want) > 0
}

func (k *Keeper) pause() time.Duration {
	k.told.RLock()
	defer k.told.RUnlock()
	if k.failed {
		return retry
	}
	for _, err := range k.errs {
		if err != nil {
			return retry
		}
	}
	return interval
}

// watch rings when something may have changed.
func watch(ctx context.Context, ring chan<- struct{}) error {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: groups})
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
	for {
		messages, err := c.Receive()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, unix.ENOBUFS): // some were lost
			messages = []netlink.Message{{}}
		case err != nil:
			return err
		}
		for _, m := range messages {
			if !concerns(m) {
				continue
			}
			select {
			case ring <- struct{}{}:
			default:
			}
			break
		}
	}
}

// concerns leaves out what a routing daemon does all day: the protocol is the fifth
// octet after the type of address.
func concerns(m netlink.Message) bool {
	if m.Header.Type != unix.RTM_NEWROUTE && m.Header.Type != unix.RTM_DELROUTE {
		return true
	}
	return len(m.Data) > 5 && m.Data[5] == host.Protocol
}
