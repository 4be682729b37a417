package ipvs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
)

// SyncState is what a synchronisation daemon does, as in <linux/ip_vs.h>.
type SyncState uint32

// The two daemons of a network namespace; each runs at most once.
const (
	// SyncMaster sends this director's connections.
	SyncMaster SyncState = 1
	// SyncBackup takes in those of another.
	SyncBackup SyncState = 2
)

// String returns "master" or "backup".
func (s SyncState) String() string {
	switch s {
	case SyncMaster:
		return "master"
	case SyncBackup:
		return "backup"
	}
	return "state-" + strconv.Itoa(int(s))
}

// The kernel's choice for what SyncDaemon leaves at zero.
const (
	DefaultSyncPort = 8848
	DefaultSyncTTL  = 1
)

// DefaultSyncGroup is the multicast group that the kernel uses without another.
var DefaultSyncGroup = netip.AddrFrom4([4]byte{224, 0, 0, 81})

// maxInterface is IFNAMSIZ without its NUL.
const maxInterface = 15

// SyncDaemon is one of the kernel's two threads that keep the connections of
// several directors in step.
type SyncDaemon struct {
	State SyncState
	// Interface is what the multicast leaves by or comes in by.
	Interface string
	// SyncID, 0..255, tells groups of directors apart; a backup with 0 takes in
	// all. What another tool wrote can be more, which no message carries.
	SyncID uint32
	// MaxLen is the longest message in octets. 0 is what fits an Ethernet frame,
	// or for a backup the interface if that takes more. A length beyond what the
	// kernel can do is cut to that; a backup takes in no less than 1024.
	MaxLen uint16
	// Port is the first UDP port (there is one for each of the sysctl's
	// sync_ports), TTL the hop limit, Group the multicast group; zero is the default.
	Port  uint16
	TTL   uint8
	Group netip.Addr
}

// String returns "master on eth0".
func (d SyncDaemon) String() string {
	if d.Interface == "" {
		return d.State.String()
	}
	return d.State.String() + " on " + d.Interface
}

// Canonical returns the daemon as the kernel reports it, but for MaxLen: its
// default depends on the interface, and stays 0.
func (d SyncDaemon) Canonical() SyncDaemon {
	d.Group = d.Group.Unmap().WithZone("")
	if !d.Group.IsValid() {
		d.Group = DefaultSyncGroup
	}
	if d.Port == 0 {
		d.Port = DefaultSyncPort
	}
	if d.TTL == 0 {
		d.TTL = DefaultSyncTTL
	}
	return d
}

// check refuses what the kernel would cut off and then take for another.
func (d SyncDaemon) check() error {
	switch {
	case len(d.Interface) > maxInterface, strings.ContainsRune(d.Interface, 0):
		return fmt.Errorf("%q is no name of an interface: %w", d.Interface, syscall.EINVAL)
	case d.SyncID > math.MaxUint8:
		return fmt.Errorf("syncid %d is above 255: %w", d.SyncID, syscall.EINVAL)
	case d.Group.Zone() != "":
		return fmt.Errorf("group %s has a zone, which is what Interface is for: %w", d.Group, syscall.EINVAL)
	}
	return nil
}

// StartSyncDaemon starts a synchronisation daemon. One of that state that runs
// gives fs.ErrExist and is left as it is, whatever its parameters: stop it first
// to change them. An interface that is not there gives ENODEV.
func (cl *Client) StartSyncDaemon(ctx context.Context, d SyncDaemon) error {
	if err := d.check(); err != nil {
		return syncError(startSync, d, err)
	}
	return syncError(startSync, d, cl.ask(ctx, cmdNewDaemon, func(b []byte) []byte { return appendDaemon(b, d) }))
}

// StopSyncDaemon stops the daemon of a state, whoever started it. One that does
// not run gives fs.ErrNotExist.
func (cl *Client) StopSyncDaemon(ctx context.Context, s SyncState) error {
	return syncError(stopSync, SyncDaemon{State: s}, cl.exchange(ctx, func() (bool, error) {
		return cl.c.stopDaemon(ctx, s)
	}))
}

// stopDaemon asks for the stop and, in the same send, for something that is
// always answered. A thread that has not come to run yet ends with EINTR, which is
// the one result that netlink answers with silence, although the daemon is
// stopped: so silence before the second answer is success, and nobody has to wait
// for what will not come.
func (c *conn) stopDaemon(ctx context.Context, s SyncState) (sent bool, err error) {
	end, err := c.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	stop := c.sequence(2)
	last := stop + 1
	c.out = beginMessage(c.out[:0], c.fam, flagRequest|flagAck, stop, cmdDelDaemon)
	nest := len(c.out)
	c.out = appendUint32(beginNested(c.out, attrDaemon), daemonState, uint32(s))
	endNested(c.out, nest)
	endMessage(c.out, 0)
	second := len(c.out)
	c.out = beginMessage(c.out, c.fam, flagRequest|flagAck, last, cmdGetInfo)
	endMessage(c.out, second)
	if err := c.sock.send(c.out); err != nil {
		return false, fmt.Errorf("send: %w", err)
	}
	var done, answered bool
	var result error
	take := func(h header, data []byte) {
		if h.typ != msgError || h.seq != stop && h.seq != last || done {
			return
		}
		errno, message, err := status(h, data)
		if err == nil && errno != 0 {
			err = &kernelError{errno, message}
		}
		if done = h.seq == last; !done || !answered {
			result = err
		}
		answered = true
	}
	for !done {
		if err := c.wait(ctx, take); err != nil {
			c.dirty = true
			return true, err
		}
	}
	return true, result
}

// SyncDaemons lists the daemons that run, the master first.
func (cl *Client) SyncDaemons(ctx context.Context) ([]SyncDaemon, error) {
	got, err := read(ctx, cl, func() ([]SyncDaemon, error) {
		return list(ctx, cl.c, []SyncDaemon{}, cmdGetDaemon, nil, decodeDaemon,
			func(x, y *SyncDaemon) int { return cmp.Compare(x.State, y.State) })
	})
	if err != nil {
		return nil, readError("list sync daemons", ServiceKey{}, err)
	}
	return got, nil
}

// appendDaemon appends the attributes of cmdNewDaemon; a zero is left out.
func appendDaemon(b []byte, d SyncDaemon) []byte {
	start := len(b)
	b = beginNested(b, attrDaemon)
	b = appendUint32(b, daemonState, uint32(d.State))
	b = appendString(b, daemonIfName, d.Interface)
	b = appendUint32(b, daemonSyncID, d.SyncID)
	if d.MaxLen != 0 {
		b = appendUint16(b, daemonMaxLen, d.MaxLen)
	}
	switch g := d.Group.Unmap(); {
	case g.Is4():
		b = appendBytes(b, daemonGroup, g.AsSlice())
	case g.Is6():
		b = appendBytes(b, daemonGroup6, g.AsSlice())
	}
	if d.Port != 0 {
		b = appendUint16(b, daemonPort, d.Port) // not in network order, unlike a service's
	}
	if d.TTL != 0 {
		b = appendUint8(b, daemonTTL, d.TTL)
	}
	endNested(b, start)
	return b
}

// decodeDaemon reads one message of a dump of daemons. A kernel before 4.3 says
// nothing but state, interface and syncid; it had the defaults of today.
func decodeDaemon(data []byte) (SyncDaemon, error) {
	var d SyncDaemon
	b, err := body(data)
	if err != nil {
		return d, err
	}
	if b, err = nested(b, attrDaemon); err != nil {
		return d, err
	}
	hasName := false
	a := attrs{b: b}
	for a.next() {
		switch a.typ {
		case daemonState:
			d.State = SyncState(a.uint32())
		case daemonIfName:
			d.Interface, hasName = a.string(), true
		case daemonSyncID:
			d.SyncID = a.uint32()
		case daemonMaxLen:
			d.MaxLen = a.uint16()
		case daemonGroup:
			if a.sized(4) {
				d.Group = netip.AddrFrom4([4]byte(a.data))
			}
		case daemonGroup6:
			if a.sized(16) {
				d.Group = netip.AddrFrom16([16]byte(a.data))
			}
		case daemonPort:
			d.Port = a.uint16()
		case daemonTTL:
			d.TTL = a.uint8()
		}
	}
	switch {
	case a.err != nil:
		return SyncDaemon{}, a.err
	case !hasName || d.State == 0:
		return SyncDaemon{}, errIncomplete
	}
	return d.Canonical(), nil
}

const (
	startSync = "start sync daemon"
	stopSync  = "stop sync daemon"
)

// NewSyncError returns the error of a start, or else a stop, that the kernel
// answers with errno: what the client and the table in memory have in common.
func NewSyncError(start bool, d SyncDaemon, errno syscall.Errno) *Error {
	op := stopSync
	if start {
		op = startSync
	}
	return &Error{Op: op, Object: d.String(), Errno: errno, Hint: syncHint(start, d, errno)}
}

// syncError wraps the failure of a start or a stop; nil stays nil.
func syncError(op string, d SyncDaemon, err error) error {
	if err == nil {
		return nil
	}
	if ke, ok := errors.AsType[*kernelError](err); ok {
		e := NewSyncError(op == startSync, d, ke.errno)
		e.Message = ke.message
		return e
	}
	return &Error{Op: op, Object: d.String(), Err: err}
}

func syncHint(start bool, d SyncDaemon, errno syscall.Errno) string {
	group := d.Canonical().Group
	switch {
	case errno == syscall.EPERM:
		return hint(Op{}, errno)
	case !start && errno == syscall.ESRCH:
		return "no " + d.State.String() + " runs here"
	case errno == syscall.EINVAL && d.State != SyncMaster && d.State != SyncBackup:
		return "a daemon is a master or a backup"
	case !start:
	case errno == syscall.EEXIST:
		return "a " + d.State.String() + " runs already; stop it to change it"
	case errno == syscall.ENODEV:
		return "no such interface in this network namespace, or it takes no multicast"
	case errno == syscall.EADDRINUSE:
		return "another program uses UDP port " + strconv.Itoa(int(d.Canonical().Port))
	case errno == syscall.ENETUNREACH, errno == syscall.EADDRNOTAVAIL:
		return "the interface must be up and have an address"
	case errno == syscall.EINVAL && !group.IsMulticast():
		return group.String() + " is no multicast group"
	case errno == syscall.EINVAL:
		return "IPVS synchronisation and destinations of another family exclude each other"
	}
	return ""
}
