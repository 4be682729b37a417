package engine

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
)

// vsName is keepalived's name of a virtual server, which operators grep for:
// "[192.0.2.1]:tcp:80", "FWM 5" or "[group]:0".
func vsName(vs *config.VirtualServer) string {
	switch k := vs.Key; {
	case k.Group != "":
		return fmt.Sprintf("[%s]:%d", k.Group, k.Ordinal)
	case k.FWMark != 0:
		return fmt.Sprintf("FWM %d", k.FWMark)
	default:
		return fmt.Sprintf("[%s]:%s:%d", k.Addr.Addr(), strings.ToLower(k.Protocol.String()), k.Addr.Port())
	}
}

// rsName is keepalived's name of a real server: the protocol is its virtual
// server's.
func rsName(rs config.RSKey, vs *config.VirtualServer) string {
	b := append(make([]byte, 0, 64), '[')
	b = append(rs.Addr().AppendTo(b), "]:"...)
	b = append(append(b, lower(vs.Protocol)...), ':')
	return string(strconv.AppendUint(b, uint64(rs.Port()), 10))
}

func lower(p config.Protocol) string {
	switch p {
	case config.TCP:
		return "tcp"
	case config.UDP:
		return "udp"
	}
	return strings.ToLower(p.String())
}
