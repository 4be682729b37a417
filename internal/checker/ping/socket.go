package ping

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// opener is dial.ICMP, or a test's.
type opener func(ctx context.Context, c *config.Connection, raw bool) (*dial.Datagram, error)

// open tries a datagram socket, then a raw one.
func open(ctx context.Context, c *config.Connection, try opener) (sock *dial.Datagram, raw bool, err error) {
	sock, err = try(ctx, c, false)
	if err == nil || !refused(err) {
		return sock, false, err
	}
	sock, rawErr := try(ctx, c, true)
	if rawErr != nil && refused(rawErr) {
		rawErr = &socketError{datagram: err, raw: rawErr}
	}
	return sock, true, rawErr
}

var refusals = []syscall.Errno{unix.EACCES, unix.EPERM, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT, unix.EPROTOTYPE}

// refused tells whether this kind of socket is not to be had by this process, as
// opposed to a want of descriptors or a missing interface.
func refused(err error) bool {
	e, ok := errors.AsType[*dial.Error](err)
	if !ok || e.Op != "socket" {
		return false
	}
	return slices.ContainsFunc(refusals, func(errno syscall.Errno) bool { return errors.Is(e.Err, errno) })
}

// socketError says that neither kind of socket is to be had, and what to do.
type socketError struct{ datagram, raw error }

func (e *socketError) Error() string {
	return fmt.Sprintf("this process may not send pings: a datagram socket needs its group in net.ipv4.ping_group_range (%s), a raw socket needs CAP_NET_RAW (%s)",
		errnoName(e.datagram), errnoName(e.raw))
}

// Unwrap leads to the *dial.Error, by which the fault is this machine's.
func (e *socketError) Unwrap() error { return e.raw }

func errnoName(err error) string {
	errno, _ := errors.AsType[syscall.Errno](err)
	return unix.ErrnoName(errno)
}

// Usable says why no PING_CHECK can work in this process, nil if one can. It sends
// nothing.
func Usable(ctx context.Context) error { return usable(ctx, dial.ICMP) }

func usable(ctx context.Context, try opener) error {
	loopback := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	sock, _, err := open(ctx, &config.Connection{Target: loopback, Timeout: time.Second}, try)
	if err == nil {
		return sock.Close()
	}
	if e, ok := errors.AsType[*socketError](err); ok {
		return e
	}
	return nil // a want that may pass; each check says it by itself
}
