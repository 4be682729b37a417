package state

// Mark is a firewall mark that a configuration was given, by the texts of what it
// stands for: a group and protocol, or a real server and how packets go to it. The next
// process gives the same, or packets would change their service.
type Mark struct {
	Group    string `json:"group,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	// Server is an address, Forward the method with its tunnel.
	Server  string `json:"server,omitempty"`
	Forward string `json:"forward,omitempty"`
	Mark    uint32 `json:"mark"`
}
