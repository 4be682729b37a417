package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// addressTimeout is how long nothing of an answer is waited for; the kernel
	// answers while it is asked.
	addressTimeout = 5 * time.Second
	// addressAttempts bounds the readings of a list that changes meanwhile.
	addressAttempts = 8
	// addressPause is how long after a list that would not hold still it is read
	// again.
	addressPause = 100 * time.Millisecond
)

// WatchAddresses tells which addresses this machine has, in the network namespace
// of the calling thread, on any interface: once at the start, and whenever that
// changes, until the context ends. A tentative address, and one whose duplicate
// detection failed, does not count: nothing can be bound to it. tell may keep the
// set, which has no zones; further changes wait until it returns and then come
// as one.
//
// The error is the context's cause, or that of a kernel that cannot be asked.
func WatchAddresses(ctx context.Context, tell func(present map[netip.Addr]bool)) error {
	k, err := openAddresses()
	if err != nil {
		return fmt.Errorf("watch addresses: %w", err)
	}
	defer k.close()
	return watchAddresses(ctx, k, tell)
}

// addressSource is the kernel's end.
type addressSource interface {
	// wait returns when something may have changed since it was last called.
	wait(ctx context.Context) error
	// list reads all addresses; whole is false if they changed meanwhile.
	list() (all []rtnetlink.AddressMessage, whole bool, err error)
}

// watchAddresses takes an event as a doorbell and never for what it says: the set
// is always one whole reading that began after the last event. So a lost event, a
// repeated one (each refresh of a lifetime is one) and one that overtook a reading
// have no way to make the set wrong.
func watchAddresses(ctx context.Context, k addressSource, tell func(map[netip.Addr]bool)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	rung := make(chan struct{}, 1)
	rung <- struct{}{} // the first reading
	waiter := make(chan struct{})
	go func() {
		defer close(waiter)
		for {
			if err := k.wait(ctx); err != nil {
				cancel(fmt.Errorf("watch addresses: %w", err))
				return
			}
			select {
			case rung <- struct{}{}:
			default: // the reading that is due will see this change too
			}
		}
	}()
	defer func() { cancel(nil); <-waiter }()

	var told map[netip.Addr]bool
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-rung:
		}
		now, err := readAddresses(ctx, k)
		if err != nil {
			return err
		}
		if told == nil || !maps.Equal(now, told) {
			told = now
			tell(maps.Clone(now))
		}
	}
}

// readAddresses reads until a reading is whole.
func readAddresses(ctx context.Context, k addressSource) (map[netip.Addr]bool, error) {
	for attempt := 1; ; attempt++ {
		all, whole, err := k.list()
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		if whole {
			return present(all), nil
		}
		if attempt%addressAttempts != 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(addressPause):
		}
	}
}

// present picks the addresses that can be used. One may be on several interfaces,
// and counts if it can be used on one of them.
func present(all []rtnetlink.AddressMessage) map[netip.Addr]bool {
	set := make(map[netip.Addr]bool, len(all))
	for _, m := range all {
		if m.Attributes == nil {
			continue
		}
		flags := m.Attributes.Flags
		if flags == 0 {
			flags = uint32(m.Flags) // of a kernel before 3.14
		}
		if flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 {
			continue
		}
		// With a peer, IFA_LOCAL is this end and IFA_ADDRESS the other one. IPv6
		// has no IFA_LOCAL without a peer.
		ip := m.Attributes.Local
		if ip == nil {
			ip = m.Attributes.Address
		}
		a, ok := netip.AddrFromSlice(ip)
		switch {
		case !ok:
		case m.Family == unix.AF_INET && a.Unmap().Is4():
			set[a.Unmap()] = true
		case m.Family == unix.AF_INET6 && a.Is6():
			set[a] = true
		}
	}
	return set
}

// kernelAddresses asks rtnetlink: one socket hears events, the other one reads, so
// that neither's messages are between the other's.
type kernelAddresses struct {
	events *netlink.Conn
	reads  *Asker
}

func openAddresses() (kernelAddresses, error) {
	var k kernelAddresses
	var err error
	if k.events, err = netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR}); err != nil {
		return k, err
	}
	reads, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		_ = k.events.Close()
		return k, err
	}
	k.reads = NewAsker(reads, addressTimeout)
	return k, nil
}

func (k kernelAddresses) close() {
	_ = k.events.Close()
	_ = k.reads.Close()
}

func (k kernelAddresses) wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = k.events.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := k.events.Receive()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, unix.ENOBUFS):
		return nil // events were lost, which says that there were some
	}
	return err
}

func (k kernelAddresses) list() (all []rtnetlink.AddressMessage, whole bool, err error) {
	request, err := (&rtnetlink.AddressMessage{}).MarshalBinary()
	if err != nil {
		return nil, false, err
	}
	answer, whole, err := k.reads.List(unix.RTM_GETADDR, request)
	if err != nil {
		return nil, false, err
	}
	for _, m := range answer {
		if m.Header.Type != unix.RTM_NEWADDR {
			continue
		}
		var a rtnetlink.AddressMessage
		if err := a.UnmarshalBinary(m.Data); err != nil {
			return nil, false, err
		}
		all = append(all, a)
	}
	return all, whole, nil
}
