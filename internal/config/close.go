package config

// DefaultCheckerThreads is that of global_defs' checker_threads, and MaxCheckerThreads
// its bound.
const (
	DefaultCheckerThreads = 1
	MaxCheckerThreads     = 64
)

// Close is checker_close: how a check ends its TCP connection.
type Close uint8

// Ends of a connection.
const (
	// CloseNormal ends it with a FIN, which no server takes for a fault. The last
	// packet of the handshake is spared: what follows acknowledges as well.
	CloseNormal Close = iota
	// CloseReset ends it with a RST and uses the socket again.
	CloseReset
	// CloseFull ends it with a FIN after a handshake of three packets, as keepalived.
	CloseFull
)

// String returns the keyword's argument.
func (c Close) String() string {
	switch c {
	case CloseReset:
		return "reset"
	case CloseFull:
		return "full"
	}
	return "normal"
}

// threads prints checker_threads where it is not the default.
func (p *printer) threads(g *Global) {
	if g.CheckerThreads > DefaultCheckerThreads {
		p.ext("checker_threads", number(g.CheckerThreads))
	}
}

// end prints how a check's connection ends where that is not the default.
func (p *printer) end(c *Connection) {
	if c.Close != CloseNormal {
		p.ext("checker_close", c.Close.String())
	}
}
