package config

import (
	"strconv"
	"time"
)

// Floor is min_alive: how many of a virtual server's configured real servers
// failures leave in service. At most one of the two is set; neither is no floor.
type Floor struct {
	// Servers is a number of real servers, Percent a share of them, 1..100,
	// rounded up.
	Servers, Percent uint32
}

// String returns the keyword's argument, "0" for no floor.
func (f Floor) String() string {
	if f.Percent != 0 {
		return strconv.FormatUint(uint64(f.Percent), 10) + "%"
	}
	return strconv.FormatUint(uint64(f.Servers), 10)
}

// Damping is flap_damping: a real server that went down Count times Within a time
// has to stay good for a while before it is back. Count 0 is off.
type Damping struct {
	Count  uint32
	Within time.Duration
}
