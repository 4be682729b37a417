package vip

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/host"
)

const (
	// portion is how many messages are one send: as many failures as fit in the room that
	// a socket has by default.
	portion = 64
	// answerTime is how long nothing of an answer is waited for; the kernel answers while it is asked.
	answerTime = 10 * time.Second
	// readings bounds how often a list is read that changes meanwhile.
	readings = 16
)

// errUnknown is the result of an op whose answer was lost.
var errUnknown = errors.New("the kernel's answer was lost")

// rtnl asks the kernel. Reads and writes have a socket each, so that an answer that was
// given up is not between the other's.
type rtnl struct {
	reads  *host.Asker
	writes *netlink.Conn
	// dirty: of the last writes there are answers that nobody read.
	dirty bool
}

func openKernel() (*rtnl, error) {
	reads, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, err
	}
	// Without strict checking (before 4.20) the kernel lists all routes there are.
	_ = reads.SetOption(netlink.GetStrictCheck, true)
	writes, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		_ = reads.Close()
		return nil, err
	}
	_ = writes.SetOption(netlink.ExtendedAcknowledge, true)
	return &rtnl{reads: host.NewAsker(reads, answerTime), writes: writes}, nil
}

func (k *rtnl) close() error { return errors.Join(k.reads.Close(), k.writes.Close()) }

// write sends a portion at a time. An op of two messages fails with either.
func (k *rtnl) write(ops []op) []error {
	errs := make([]error, len(ops))
	var messages []netlink.Message
	var about []int
	flush := func() {
		if len(messages) == 0 {
			return
		}
		k.send(messages, func(n int, err error) {
			if errs[about[n]] == nil {
				errs[about[n]] = err
			}
		})
		messages, about = messages[:0], about[:0]
	}
	for i, o := range ops {
		list, err := encode(o)
		if err != nil {
			errs[i] = err
			continue
		}
		for _, m := range list {
			messages, about = append(messages, m), append(about, i)
		}
		if len(messages) >= portion {
			flush()
		}
	}
	flush()
	return errs
}

// send is one send and its answers; failed hears of each message that was not done.
func (k *rtnl) send(messages []netlink.Message, failed func(n int, err error)) {
	last := len(messages) - 1
	messages[last].Header.Flags |= netlink.Acknowledge
	answered := make([]bool, len(messages))
	unknown := func(err error) {
		k.dirty = true
		for n, done := range answered {
			if !done {
				failed(n, fmt.Errorf("%w: %w", errUnknown, err))
			}
		}
	}
	// As long as one is there the kernel drops new ones, once it has dropped one.
	if k.dirty {
		if err := host.Drain(k.writes); err != nil {
			unknown(err)
			return
		}
		k.dirty = false
	}
	sent, err := k.writes.SendMessages(messages)
	if err != nil {
		unknown(err)
		return
	}
	if err := k.writes.SetReadDeadline(time.Now().Add(answerTime)); err != nil {
		unknown(err)
		return
	}
	first := sent[0].Header.Sequence
	for !answered[last] {
		answers, err := k.writes.Receive()
		var oe *netlink.OpError
		switch {
		case err == nil:
			for _, m := range answers {
				if n := m.Header.Sequence - first; n <= uint32(last) {
					answered[n] = true
				}
			}
		case errors.As(err, &oe) && oe.Sequence != 0:
			if n := oe.Sequence - first; n <= uint32(last) {
				answered[n] = true
				failed(int(n), told(oe))
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
			unknown(fmt.Errorf("no answer from the kernel in %v: %w", answerTime, err))
			return
		default: // ENOBUFS: answers were lost
			unknown(err)
			return
		}
	}
}

// told is an answer's errno and what the kernel said to it.
func told(oe *netlink.OpError) error {
	if oe.Message == "" {
		return oe.Err
	}
	return fmt.Errorf("%w (%s)", oe.Err, strings.TrimSuffix(oe.Message, "."))
}

// dump lists until a list is whole.
func (k *rtnl) dump(request netlink.HeaderType, body []byte, take func([]byte), begin func()) error {
	for range readings {
		begin()
		answer, whole, err := k.reads.List(uint16(request), body)
		if err != nil {
			return err
		}
		for _, m := range answer {
			// The answers to RTM_GET* are RTM_NEW*, two less.
			if m.Header.Type == request-2 {
				take(m.Data)
			}
		}
		if whole {
			return nil
		}
	}
	return fmt.Errorf("the list changed during each of %d readings", readings)
}

func (k *rtnl) readLinks() (map[uint32]link, error) {
	var links map[uint32]link
	err := k.dump(unix.RTM_GETLINK, make([]byte, sizeLink), func(b []byte) {
		if l, ok := decodeLink(b); ok {
			links[l.index] = l
		}
	}, func() { links = map[uint32]link{} })
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	return links, nil
}

func (k *rtnl) read() (m machine, err error) {
	m = newMachine()
	// Addresses first: one whose device is gone since is on none.
	err = k.dump(unix.RTM_GETADDR, make([]byte, sizeAddress), func(b []byte) {
		if a, s, ok := decodeAddress(b); ok {
			m.addrs[a] = append(m.addrs[a], s)
			m.marks = m.marks || s.proto != 0
		}
	}, func() { clear(m.addrs) })
	if err != nil {
		return m, fmt.Errorf("list addresses: %w", err)
	}
	m.marks = m.marks || keepsOriginators()
	if m.links, err = k.readLinks(); err != nil {
		return m, err
	}
	for _, f := range []uint8{unix.AF_INET, unix.AF_INET6} {
		body := make([]byte, sizeRoute)
		body[0], body[4], body[5], body[7] = f, unix.RT_TABLE_LOCAL, host.Protocol, unix.RTN_LOCAL
		found := map[netip.Addr]bool{}
		err := k.dump(unix.RTM_GETROUTE, body, func(b []byte) {
			if a, ok := decodeRoute(b); ok {
				found[a] = true
			}
		}, func() { clear(found) })
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EOPNOTSUPP) { // no such table, or no IPv6
			return m, fmt.Errorf("list routes: %w", err)
		}
		maps.Copy(m.routes, found)
	}
	return m, nil
}

// keepsOriginators says that the kernel's version has IFA_PROTO; an older one may have it
// too, which its answers show.
func keepsOriginators() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	return versionKeepsOriginators(unix.ByteSliceToString(u.Release[:]))
}

func versionKeepsOriginators(release string) bool {
	major, rest, _ := strings.Cut(release, ".")
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		rest = rest[:end]
	}
	a, err := strconv.Atoi(major)
	b, _ := strconv.Atoi(rest)
	return err == nil && (a > 5 || a == 5 && b >= 18)
}
