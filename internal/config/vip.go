package config

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// VIPFollow is vip_follow: when a virtual address is on its device.
type VIPFollow uint8

// What vip_follow can say.
const (
	// VIPAlways: as long as the virtual server is configured and served here.
	VIPAlways VIPFollow = iota
	// VIPQuorum: while the virtual server has its quorum besides.
	VIPQuorum
)

// String returns the keyword's argument.
func (f VIPFollow) String() string {
	if f == VIPQuorum {
		return "quorum"
	}
	return "always"
}

// VIP is what becomes of a virtual server's addresses on this host. The zero value
// leaves them alone.
type VIP struct {
	// Device is vip_device, "" for none: nothing is put anywhere.
	Device string
	Follow VIPFollow
	// Guard is vip_guard: new connections to ports that are no service are refused.
	Guard bool
}

// DefaultVIPDelay is how long after a withdrawn address its services go on untouched.
const DefaultVIPDelay = time.Second

// NFTables is nftables_ipvs: the addresses of groups are carried by firewall marks,
// which a table of nftables gives to packets.
type NFTables struct {
	Pos diag.Pos
	// Table is its name, "keepalived_ipvs" by default.
	Table string
	// Priority is that of the chain, -1 by default, FirstMark where marks begin, 1000 by
	// default.
	Priority  int32
	FirstMark uint32
	Counters  bool
}

// Passive is the switch that withholds all services from the table.
type Passive struct {
	// On is what the file says.
	On bool
	// File is a track file that says it too: passive unless its value is 0. nil for none.
	File *TrackFileUse
}

// Via is check_via vip: the check asks the virtual address, through one real server.
// Equal ones of a configuration are one value.
type Via struct {
	// Server is the real server that packets go through.
	Server netip.Addr
	// Forward is how the kernel's table would send them there: DR or TUN.
	Forward Forwarding
	// Mark is the socket's mark that leads there, unique for Server and Forward. It is
	// Assign's, 0 before.
	Mark uint32
}

// String says for people how a check gets to the virtual address.
func (v *Via) String() string {
	if v.Mark == 0 { // of a file that nobody runs
		return "through " + v.Server.String()
	}
	return fmt.Sprintf("through %s (mark %#x)", v.Server, v.Mark)
}

// MarkKey is what one mark of nftables_ipvs stands for.
type MarkKey struct {
	Group    string
	Protocol Protocol
}

// ViaKey is what one mark of check_via stands for.
type ViaKey struct {
	Server  netip.Addr
	Forward Forwarding
}

// Marks are the firewall marks that a configuration was given: an earlier one's are
// kept by the next, or packets would change their service in a reload.
type Marks struct {
	Groups map[MarkKey]uint32
	Via    map[ViaKey]uint32
}

// ViaMark and ViaMask are the range of marks that check_via uses unless check_via_mark
// says otherwise.
const (
	ViaMark uint32 = 0x53000000
	ViaMask uint32 = 0xffff0000
)

// Addresses returns the virtual addresses of a virtual server, sorted, each once: those
// of its entries, and the listed ones of its marks.
func (vs *VirtualServer) Addresses() []netip.Addr {
	list := make([]netip.Addr, 0, len(vs.Entries)+len(vs.VIPAddresses))
	for _, e := range vs.Entries {
		if e.Addr.IsValid() {
			list = append(list, e.Addr.Addr().Unmap().WithZone(""))
		}
	}
	list = append(list, vs.VIPAddresses...)
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}
