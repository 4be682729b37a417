package host

import (
	"fmt"
	"net/netip"
	"strings"
)

// Facts are what Machine.Facts found. What could not be read is unknown, with the
// reason, and never a default: a doctor that guesses does harm.
type Facts struct {
	// Kernel is the running kernel's release: "6.1.0-57-amd64".
	Kernel string
	// Root: whoever gathered this may see everything.
	Root bool
	// Container: there is no kernel of its own here, and modules are the host's.
	Container bool
	Modules   Modules
	Table     Table
	// Settings are the sysctls by their names.
	Settings map[string]Setting
	// Devices is the network; DevicesUnknown says why there is none.
	Devices        []Device
	DevicesUnknown string
	// Routes say how the addresses of the query are reached.
	Routes map[netip.Addr]Route
	// Rules are those of policy routing, in the kernel's order, if they were asked for.
	Rules        []Rule
	RulesUnknown string
	// Chains are the base chains of nftables, if they were asked for.
	Chains        []Chain
	ChainsUnknown string
	// Answers are what neighbours said to the questions of the query.
	Answers map[Question]Answer
	// Writers are the processes that write IPVS tables, or keep addresses.
	Writers        []Writer
	WritersUnknown string
	// Daemon is sluiced's process, else this one.
	Daemon Credentials
	// Paths are the files of the query.
	Paths map[string]Path
}

// Setting is a sysctl's value.
type Setting struct {
	Value string
	// Absent: the kernel has no such setting.
	Absent bool
	// Unknown is why it could not be read.
	Unknown string
}

// Modules is what the kernel has, and could load. Names have underscores.
type Modules struct {
	Loaded        map[string]bool
	LoadedUnknown string
	// Builtin are in the kernel itself, OnDisk are files of the running release.
	Builtin, OnDisk map[string]bool
	// NoTree: there is no folder of the running release.
	NoTree      bool
	DiskUnknown string
}

// Table is the kernel's IPVS as /proc tells of it.
type Table struct {
	// Present: ip_vs is in the kernel.
	Present bool
	// Size is the number of hash buckets for connections.
	Size int
	// Connections is the sum over all destinations.
	Connections uint64
	Unknown     string
}

// Device is a network device.
type Device struct {
	Name     string
	Loopback bool
	// Dummy: it has no wire either.
	Dummy bool
	// Kind is the driver's for a device that was made ("dummy", "vlan"), "" for hardware.
	Kind string
	Up   bool
	// Multicast: it can send and receive that.
	Multicast bool
	MTU       uint32
	Addresses []Address
}

// Address is an address of a device with the length of its network.
type Address struct {
	netip.Prefix
	// Secondary: it is not the first of its network.
	Secondary bool
	// Unusable: tentative, or found to be another machine's.
	Unusable bool
}

// Route is how an address is reached.
type Route struct {
	// Local: it is this machine itself.
	Local   bool
	Device  string
	Gateway netip.Addr
	// Source is the address that packets to it have, invalid if the kernel did not say.
	Source netip.Addr
	// MTU is the route's own, or what was learned of the path; 0 is the device's.
	MTU uint32
	// None is the kernel's refusal: there is no route, or one that forbids.
	None string
	// Unknown is why the kernel could not be asked.
	Unknown string
}

// Rule is a rule of policy routing.
type Rule struct {
	Six      bool
	Priority uint32
	// Mark and Mask are what a packet's mark is held to; Mask 0 is any.
	Mark, Mask uint32
	// Not: it takes in what does not fit.
	Not   bool
	Table uint32
	// Ours: it has our originator (Protocol).
	Ours bool
}

// Takes says whether it takes in a mark from low to high.
func (r Rule) Takes(low, high uint32) bool {
	// Going up by the bits that the mask leaves free finds the next mark that fits.
	free := ^r.Mask
	m := r.Mark & r.Mask
	if m|free < low {
		return false
	}
	// The lowest mark that fits and is not below low.
	for bit := 31; bit >= 0; bit-- {
		b := uint32(1) << bit
		if free&b != 0 && m|(free&(b-1)) < low {
			m |= b
		}
	}
	return m >= low && m <= high
}

// String names it as ip-rule(8) does: "100: fwmark 0x1/0xff lookup 7".
func (r Rule) String() string {
	mark := ""
	if r.Not {
		mark = " not"
	}
	switch {
	case r.Mask == ^uint32(0):
		mark += fmt.Sprintf(" fwmark %#x", r.Mark)
	case r.Mask != 0:
		mark += fmt.Sprintf(" fwmark %#x/%#x", r.Mark, r.Mask)
	}
	return fmt.Sprintf("%d:%s lookup %d", r.Priority, mark, r.Table)
}

// Chain is a base chain of nftables. What iptables-nft made is among them, what
// iptables-legacy did is not.
type Chain struct {
	// Family is that of its table: "ip", "ip6", "inet".
	Family, Table, Name string
	// Hook is "prerouting", "input", "forward", "output", "postrouting" or "" for
	// another.
	Hook     string
	Priority int32
	// Drop is its policy.
	Drop bool
}

// Question asks a server whether an address is its own, as ARP or Neighbour
// Discovery tells it.
type Question struct{ Server, Addr netip.Addr }

// Answer is what came back.
type Answer struct {
	// Yes: it answered for the address.
	Yes bool
	// Unknown is why it could not be asked.
	Unknown string
}

// Writer is a process that other tools than sluice start.
type Writer struct {
	PID  int
	Name string
	Args []string
	// Elsewhere: it is in another network namespace.
	Elsewhere bool
}

// Credentials are what a process may do.
type Credentials struct {
	PID int
	// Unknown is why the rest was not read.
	Unknown      string
	UID, GID     int
	Groups       []int
	Effective    uint64
	Files        uint64
	FilesHard    uint64
	FilesUnknown string
}

// Path is a file or folder.
type Path struct {
	Absent   bool
	Unknown  string
	Mode     uint32
	UID, GID int
}

// Lacks returns the capabilities that the process lacks for the needs.
func (c Credentials) Lacks(needs ...Need) []Missing { return missing(c.Effective, needs) }

// Has says whether the process has a capability, by its number.
func (c Credentials) Has(capability uint) bool { return c.Effective&(1<<capability) != 0 }

// Query is what has to be asked for by name.
type Query struct {
	// Routes are the addresses whose routes count.
	Routes []netip.Addr
	// Rules and Chains have them read, too.
	Rules, Chains bool
	// Questions are put to neighbours. Each is a packet or a few to that neighbour alone.
	Questions []Question
	// Settings are sysctls; "*" stands for each device, all and default.
	Settings []string
	// PID is the daemon's, 0 for this process.
	PID int
	// Paths are files and folders.
	Paths []string
}

// Blind makes everything that belongs to a network namespace unknown.
func (f *Facts) Blind(why string) {
	f.Table = Table{Present: true, Unknown: why}
	f.Devices, f.DevicesUnknown = nil, why
	f.Rules, f.RulesUnknown = nil, why
	f.Chains, f.ChainsUnknown = nil, why
	for q := range f.Answers {
		f.Answers[q] = Answer{Unknown: why}
	}
	f.WritersUnknown = why
	for name, s := range f.Settings {
		if strings.HasPrefix(name, "net.") {
			s = Setting{Unknown: why}
		}
		f.Settings[name] = s
	}
	for a := range f.Routes {
		f.Routes[a] = Route{Unknown: why}
	}
}
