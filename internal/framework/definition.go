package framework

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// asked is what of a connection says what is asked. Its text is part of Definition,
// by which saved verdicts are found again: what is added to config.Connection must
// not change it where it is not used.
type asked struct {
	Target   netip.AddrPort
	BindAddr netip.Addr
	BindPort uint16
	BindIf   string
	FWMark   uint32
	Timeout  time.Duration
}

func connectionText(c *config.Connection) string {
	s := fmt.Sprintf("%+v", asked{c.Target, c.BindAddr, c.BindPort, c.BindIf, c.FWMark, c.Timeout})
	if c.Close != config.CloseNormal {
		s += "|close=" + c.Close.String()
	}
	return s
}
