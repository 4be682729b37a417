package config

import (
	"fmt"
	"strings"
)

// String returns keepalived's name of a virtual server, which people look for
// in logs: "[192.0.2.10]:tcp:80", "FWM 5" or "[group]:0", where 0 is the
// ordinal.
func (k VSKey) String() string {
	switch {
	case k.Group != "":
		return fmt.Sprintf("[%s]:%d", k.Group, k.Ordinal)
	case k.FWMark != 0 && k.Family == IPv6:
		return fmt.Sprintf("FWM %d inet6", k.FWMark)
	case k.FWMark != 0:
		return fmt.Sprintf("FWM %d", k.FWMark)
	}
	return fmt.Sprintf("[%s]:%s:%d", k.Addr.Addr(), strings.ToLower(k.Protocol.String()), k.Addr.Port())
}
