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
	// CloseNormal ends it with a FIN, which no server takes for a fault.
	CloseNormal Close = iota
	// CloseReset ends it with a RST and uses the socket again.
	CloseReset
)

// String returns the keyword's argument.
func (c Close) String() string {
	if c == CloseReset {
		return "reset"
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
