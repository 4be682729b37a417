package dial

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// tellSocket tells a socket and all that was set on it.
func (s *start) tellSocket(kind string, c *config.Connection) {
	if s.trace == nil {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s socket", kind)
	if from := source(c); from != "" {
		fmt.Fprintf(&b, " from %s", from)
	}
	if c.BindIf != "" {
		fmt.Fprintf(&b, " interface %s", c.BindIf)
	}
	if c.FWMark != 0 && c.Via == nil {
		fmt.Fprintf(&b, " mark %d", c.FWMark)
	}
	to := s.target.String()
	if s.target.Port() == 0 {
		to = s.target.Addr().String()
	}
	if c.Via != nil {
		to += " " + c.Via.String()
	}
	fmt.Fprintf(&b, " for %s, deadline in %s", to, checker.Elapsed(time.Until(s.deadline)))
	s.trace.Tell(checker.StagePrepare, "%s", b.String())
}

// tellConnected tells that a connection stands, and from where.
func (s *start) tellConnected(fd int) {
	if s.trace == nil {
		return
	}
	from := "an unknown address"
	if sa, err := unix.Getsockname(fd); err == nil {
		switch sa := sa.(type) {
		case *unix.SockaddrInet4:
			from = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)).String()
		case *unix.SockaddrInet6:
			from = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)).String()
		}
	}
	s.trace.Tell(checker.StageConnect, "connected to %s from %s in %s", s.target, from, checker.Elapsed(time.Since(s.began)))
}

// protocolName is how transcripts call a datagram socket.
func protocolName(kind, protocol int) string {
	name := map[int]string{unix.IPPROTO_UDP: "UDP", unix.IPPROTO_ICMP: "ICMP", unix.IPPROTO_ICMPV6: "ICMPv6"}[protocol]
	if kind == unix.SOCK_RAW {
		return "raw " + name
	}
	return name
}
