package dial

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// QueuedError is an error from a datagram socket's error queue: what became of a
// datagram of ours, and who said so.
type QueuedError struct {
	Errno syscall.Errno
	// Origin is one of unix.SO_EE_ORIGIN_*: ICMP, ICMPv6 or this machine.
	Origin uint8
	// Type and Code are the ICMP message's.
	Type, Code uint8
	// From sent the message, invalid where the kernel does not say. It is an
	// address of this machine when a neighbour did not answer ARP or neighbour
	// discovery.
	From netip.Addr
	// Quote is the beginning of the payload of the datagram that it is about; for
	// ICMP sockets this is the ICMP message that was sent.
	Quote []byte
}

// Unreachable says whether the message is a destination unreachable, with whatever
// code.
func (e *QueuedError) Unreachable() bool {
	return e.Origin == unix.SO_EE_ORIGIN_ICMP && e.Type == 3 || e.Origin == unix.SO_EE_ORIGIN_ICMP6 && e.Type == 1
}

// Unwrap returns the errno that the kernel translated the message to.
func (e *QueuedError) Unwrap() error { return e.Errno }

func (e *QueuedError) Error() string {
	errno := errnoText(e.Errno)
	switch e.Origin {
	case unix.SO_EE_ORIGIN_ICMP:
		return e.message("ICMP", icmpTypes, icmpUnreachable, 3) + ": " + errno
	case unix.SO_EE_ORIGIN_ICMP6:
		return e.message("ICMPv6", icmp6Types, icmp6Unreachable, 1) + ": " + errno
	}
	return errno
}

// message names the message and its sender.
func (e *QueuedError) message(protocol string, types, unreachable map[uint8]string, isUnreachable uint8) string {
	name, ok := types[e.Type]
	if e.Type == isUnreachable {
		name, ok = unreachable[e.Code]
	}
	if !ok {
		name = fmt.Sprintf("type %d code %d", e.Type, e.Code)
	}
	if e.From.IsValid() {
		name += " from " + e.From.String()
	}
	return protocol + " " + name
}

// Names of the IANA registries of ICMP and ICMPv6 parameters.
var (
	icmpTypes       = map[uint8]string{4: "source quench", 5: "redirect", 11: "time exceeded", 12: "parameter problem"}
	icmpUnreachable = map[uint8]string{
		0: "network unreachable", 1: "host unreachable", 2: "protocol unreachable", 3: "port unreachable",
		4: "fragmentation needed", 5: "source route failed", 6: "network unknown", 7: "host unknown", 8: "source host isolated",
		9: "network administratively prohibited", 10: "host administratively prohibited",
		11: "network unreachable for this type of service", 12: "host unreachable for this type of service",
		13: "communication administratively prohibited", 14: "host precedence violation", 15: "precedence cutoff",
	}
	icmp6Types       = map[uint8]string{2: "packet too big", 3: "time exceeded", 4: "parameter problem"}
	icmp6Unreachable = map[uint8]string{
		0: "no route to destination", 1: "communication administratively prohibited", 2: "beyond scope of source address",
		3: "address unreachable", 4: "port unreachable", 5: "source address failed policy", 6: "reject route",
	}
)

// queued takes one error off the queue, nil if there is none.
func queued(fd int) *QueuedError {
	var quote [64]byte
	var control [128]byte // the header, the error and the longest address are 60
	n, nc, _, _, err := unix.Recvmsg(fd, quote[:], control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(control[:nc])
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR ||
			m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR {
			if e := parseExtended(m.Data); e != nil {
				e.Quote = append(e.Quote, quote[:min(n, len(quote))]...)
				return e
			}
		}
	}
	return nil
}

// parseExtended reads a struct sock_extended_err and the offender's address behind
// it; nil if it is too short or no error.
func parseExtended(b []byte) *QueuedError {
	if len(b) < 16 {
		return nil
	}
	order := binary.NativeEndian
	e := &QueuedError{Errno: syscall.Errno(order.Uint32(b)), Origin: b[4], Type: b[5], Code: b[6]}
	if e.Errno == 0 {
		return nil
	}
	offender := b[16:]
	if len(offender) < 2 {
		return e
	}
	switch family := order.Uint16(offender); {
	case family == unix.AF_INET && len(offender) >= 8:
		e.From = netip.AddrFrom4([4]byte(offender[4:8]))
	case family == unix.AF_INET6 && len(offender) >= 24:
		e.From = netip.AddrFrom16([16]byte(offender[8:24])).Unmap()
	}
	return e
}
