// Package dialtest is for the tests of the datagram checks: it sends them the ICMP
// messages that a network would. Raw sockets are needed, and so is root.
package dialtest

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Root skips the test unless it may open raw sockets and make namespaces.
func Root(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for raw sockets")
	}
}

// Send sends an ICMP or ICMPv6 message (as the family is) with the rest of its
// header and its data in body. It uses the namespace of the thread.
func Send(from, to netip.Addr, kind, code uint8, body []byte) error {
	m := icmp.Message{Type: ipv4.ICMPType(kind), Code: int(code), Body: &icmp.RawBody{Data: body}}
	family, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	if to.Is6() {
		m.Type, family, protocol = ipv6.ICMPType(kind), unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	b, err := m.Marshal(nil)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sockaddr(from)); err != nil {
		return err
	}
	return unix.Sendto(fd, b, 0, sockaddr(to))
}

// SendError sends an ICMP error, from whom it may be, about a datagram of src to dst
// whose payload began with payload. UDP's header goes before that if ports are
// given.
func SendError(from netip.Addr, src, dst netip.AddrPort, kind, code uint8, payload []byte) error {
	protocol := uint8(unix.IPPROTO_ICMP)
	if dst.Addr().Is6() {
		protocol = unix.IPPROTO_ICMPV6
	}
	if dst.Port() != 0 {
		protocol = unix.IPPROTO_UDP
		header := binary.BigEndian.AppendUint16(nil, src.Port())
		header = binary.BigEndian.AppendUint16(header, dst.Port())
		header = binary.BigEndian.AppendUint16(header, uint16(8+len(payload)))
		payload = append(append(header, 0, 0), payload...)
	}
	body := make([]byte, 4) // unused, or a pointer to octet 0
	if dst.Addr().Is6() {
		header := make([]byte, 40)
		header[0], header[6], header[7] = 0x60, protocol, 64
		binary.BigEndian.PutUint16(header[4:], uint16(len(payload)))
		copy(header[8:], src.Addr().AsSlice())
		copy(header[24:], dst.Addr().AsSlice())
		body = append(body, header...)
	} else {
		header := make([]byte, 20)
		header[0], header[8], header[9] = 0x45, 64, protocol
		binary.BigEndian.PutUint16(header[2:], uint16(20+len(payload)))
		copy(header[12:], src.Addr().AsSlice())
		copy(header[16:], dst.Addr().AsSlice())
		body = append(body, header...)
	}
	return Send(from, src.Addr(), kind, code, append(body, payload...))
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is6() {
		return &unix.SockaddrInet6{Addr: a.As16()}
	}
	return &unix.SockaddrInet4{Addr: a.As4()}
}
