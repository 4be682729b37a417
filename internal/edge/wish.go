package edge

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Wish is what one virtual server wants of the machine. It is not changed once it was
// handed over.
type Wish struct {
	// Device is where its addresses go, "" for nowhere.
	Device string
	// Addresses are its virtual addresses, sorted.
	Addresses []netip.Addr
	// Announce: the addresses are on the device.
	Announce bool
	// Local: something of it is in the table, so that what still arrives for an address
	// that is announced no more is taken in and not sent on.
	Local bool
	// Guard: what is no service is refused at its addresses.
	Guard bool
	// Services are what the guard lets in: those that take new connections, and of UDP and
	// SCTP also those that leave.
	Services []ipvs.ServiceKey
	// Mark carries Mapped, 0 for none.
	Mark   uint32
	Mapped []Mapped
}

// Mapped is an address and port that a mark is given to. Port 0 is every port.
type Mapped struct {
	Protocol ipvs.Protocol
	Addr     netip.AddrPort
}

// Service is the key of the service that it would be without a mark.
func (m Mapped) Service() ipvs.ServiceKey {
	k := ipvs.ServiceKey{Family: ipvs.INET, Protocol: m.Protocol, Addr: m.Addr.Addr(), Port: m.Addr.Port()}
	if k.Addr.Is6() {
		k.Family = ipvs.INET6
	}
	return k
}

// Wishes is what the engine hands over after a turn. A nil wish is that of a virtual
// server that is no more.
type Wishes struct {
	// Turn counts them, and Report names the last that it is about.
	Turn    uint64
	Changed map[config.VSKey]*Wish
	// NFTables is nftables_ipvs as it is now, nil for none.
	NFTables *config.NFTables
	// Anew: what fails is tried again at once. Somebody may have mended it.
	Anew bool
}

// Report is how the machine is after the wishes of a turn were worked on.
type Report struct {
	Turn uint64
	// Missing are the addresses that should be on their device and are not, with why.
	Missing map[netip.Addr]string
	// Announced is how many addresses are on their devices.
	Announced int
	// Repaired counts what somebody else took away and was put back, since the start.
	Repaired uint64
	// Failures are the features that do not work, with why and what now.
	Failures []Failure
}

// Failure is a feature that does not work for now. The rest of the daemon does.
type Failure struct {
	// Feature is the keyword that asked for it: "vip_device", "vip_guard",
	// "nftables_ipvs", "check_via".
	Feature string
	Reason  string
	Since   time.Time
}

// Addresses puts addresses on devices (package host/vip).
type Addresses interface {
	// Sync reads the kernel and makes all that is ours what is wanted. It returns how
	// many things somebody else had changed, and what could not be done, by address.
	Sync(want map[netip.Addr]Place) (repaired int, missing map[netip.Addr]error, err error)
	// Change is Sync for some addresses, without reading the kernel.
	Change(want map[netip.Addr]Place) (missing map[netip.Addr]error, err error)
	// Watch calls changed when somebody may have changed an address or a device, until the
	// context ends.
	Watch(ctx context.Context, changed func()) error
	// Close lets go of the kernel and leaves everything as it is.
	Close() error
}

// Place is where an address should be. The zero value is nowhere.
type Place struct {
	// Device is where it may come to be: as long as any address names a device of ours it
	// stays, whether anything is on it or not. What looks at it (a routing daemon, settings
	// of the device) need not begin anew with each quorum.
	Device string
	// Announce: on the device. Local: taken in without being there.
	Announce, Local bool
}

// Filter writes our tables of nftables (package host/filter).
type Filter interface {
	// Guard makes the guard's table what is wanted, nil for no table.
	Guard(want *Guard) (repaired int, err error)
	// Marks makes the table of nftables_ipvs what is wanted, nil for no table. name is the
	// table of a configuration before, "" for none, that goes.
	Marks(want *Marking) (repaired int, err error)
	Close() error
}

// Guard is what the guard should hold.
type Guard struct {
	Addresses []netip.Addr
	Services  []ipvs.ServiceKey
}

// Marking is what the table of nftables_ipvs should hold.
type Marking struct {
	config.NFTables
	Marks map[Mapped]uint32
}
