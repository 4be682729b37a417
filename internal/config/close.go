package config

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
