package apply

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// ErrUnknown is returned for a virtual or real server that the applier was not
// configured with.
var ErrUnknown = errors.New("apply: unknown virtual or real server")

// IPVS is what apply needs of a table. The kernel client and the table in memory
// both are one.
type IPVS interface {
	AddService(context.Context, ipvs.Service) error
	SetService(context.Context, ipvs.Service) error
	DelService(context.Context, ipvs.Service) error
	AddDest(context.Context, ipvs.Service, ipvs.Destination) error
	SetDest(context.Context, ipvs.Service, ipvs.Destination) error
	DelDest(context.Context, ipvs.Service, ipvs.Destination) error

	// Batch applies operations in order and returns one error for each, nil for
	// those that were applied; a failure does not stop what follows.
	Batch(context.Context, []ipvs.Op) []error
	Services(context.Context) ([]ipvs.ServiceInfo, error)
	// Destinations is empty for a service that does not exist.
	Destinations(context.Context, ipvs.ServiceKey) ([]ipvs.DestinationInfo, error)
}

// VirtualServer binds a virtual server to the kernel services it stands for.
type VirtualServer struct {
	Key config.VSKey
	// Services has one element except for a group.
	Services []ipvs.Service
	// Servers are in file order.
	Servers []RealServer
	// SorryServer serves while the quorum is lost; nil without one.
	SorryServer *SorryServer
	// TrackedFiles tell which real servers a file moves.
	TrackedFiles []TrackedFile
	// DrainTimeout bounds a departure; 0 is no bound. UDPDrainTimeout does in a UDP
	// or SCTP service, where 0 is no drain.
	DrainTimeout, UDPDrainTimeout time.Duration
	// DrainFailed: a server that failed departs and is not removed at once.
	DrainFailed bool
	// Mark is the one of Services that carries a group's addresses, 0 for none.
	// Datagram: they are of UDP or SCTP.
	Mark     uint32
	Datagram bool

	lookup
}

// RealServer binds a real server to its destination.
type RealServer struct {
	Key config.RSKey
	// Dest has the configured weight. Its port is replaced by the service's for
	// every method but NAT, at each service.
	Dest ipvs.Destination
	// Inhibit: weight 0 on failure instead of removal.
	Inhibit bool
	// Weight is the configured one.
	Weight int64
	// DrainTimeout bounds its departure; 0 is no bound.
	DrainTimeout time.Duration
}

// SorryServer binds the sorry server to its destination, whose weight is 1.
type SorryServer struct {
	Key  config.RSKey
	Dest ipvs.Destination
	// Inhibit keeps it in the table at weight 0 while it is not needed, so that
	// losing the quorum raises a weight instead of adding an entry.
	Inhibit bool
}

// TrackedFile is one use of a watched file.
type TrackedFile struct {
	File       string
	RealServer config.RSKey
}

// Translate makes the kernel's words of a virtual server.
func Translate(c *config.VirtualServer) *VirtualServer {
	vs := &VirtualServer{Key: c.Key, DrainTimeout: c.DrainTimeout, UDPDrainTimeout: c.UDPDrainTimeout,
		DrainFailed: c.OnFailure == config.OnFailureDrain, Servers: make([]RealServer, 0, len(c.RealServers)),
		Mark: c.Mark, Datagram: c.Protocol == config.UDP || c.Protocol == config.SCTP}
	entries := carried(c)
	vs.Services = make([]ipvs.Service, 0, len(entries))
	for _, e := range entries {
		vs.Services = append(vs.Services, service(c, e))
	}
	for _, rc := range c.RealServers {
		d := destination(rc.Key, rc.Forward)
		d.Weight = uint32(min(max(rc.Weight, 0), 1<<31-1))
		d.UpperThreshold, d.LowerThreshold = rc.UpperThreshold, rc.LowerThreshold
		vs.Servers = append(vs.Servers, RealServer{Key: rc.Key, Dest: d, Inhibit: rc.Inhibit, Weight: rc.Weight, DrainTimeout: rc.DrainTimeout})
		for _, u := range rc.TrackFiles {
			vs.TrackedFiles = append(vs.TrackedFiles, TrackedFile{File: u.Name, RealServer: rc.Key})
		}
		for _, k := range rc.Checkers {
			if k.File != nil {
				vs.TrackedFiles = append(vs.TrackedFiles, TrackedFile{File: k.File.Name, RealServer: rc.Key})
			}
		}
	}
	if s := c.Sorry; s != nil {
		d := destination(s.Key, s.Forward)
		d.Weight = 1
		vs.SorryServer = &SorryServer{Key: s.Key, Dest: d, Inhibit: s.Inhibit}
	}
	vs.sort()
	return vs
}

// carried returns a virtual server's entries with those that a mark carries as one of
// each family.
func carried(c *config.VirtualServer) []config.Entry {
	if c.Mark == 0 {
		return c.Entries
	}
	var entries []config.Entry
	for _, e := range c.Entries {
		if e.FWMark == 0 {
			e = config.Entry{FWMark: c.Mark, Family: e.Family}
			if slices.Contains(entries, e) {
				continue
			}
		}
		entries = append(entries, e)
	}
	return entries
}

// Destination returns the key of a real server's destination in one of the virtual
// server's services.
func (vs *VirtualServer) Destination(rs config.RSKey, s ipvs.ServiceKey) (ipvs.DestinationKey, bool) {
	i := vs.find(rs)
	if i < 0 {
		return ipvs.DestinationKey{}, false
	}
	return at(vs.Servers[i].Dest, s).DestinationKey, true
}

// Carried returns what the mark of a virtual server carries, as the keys of the services
// that there would be without it.
func Carried(c *config.VirtualServer) (keys []ipvs.ServiceKey) {
	if c.Mark == 0 {
		return nil
	}
	for _, e := range c.Entries {
		if e.FWMark == 0 {
			keys = append(keys, key(c, e))
		}
	}
	return keys
}

func key(c *config.VirtualServer, e config.Entry) ipvs.ServiceKey {
	k := ipvs.ServiceKey{Family: family(e.Family)}
	if e.FWMark != 0 {
		k.FWMark = e.FWMark
		return k
	}
	k.Addr, k.Port, k.Protocol = e.Addr.Addr().Unmap(), e.Addr.Port(), protocol(c.Protocol)
	return k
}

func service(c *config.VirtualServer, e config.Entry) ipvs.Service {
	s := ipvs.Service{ServiceKey: key(c, e), Scheduler: c.Scheduler, Timeout: c.Persistence}
	set := func(on bool, f ipvs.Flags) {
		if on {
			s.Flags |= f
		}
	}
	set(c.Persistence != 0, ipvs.Persistent)
	set(c.Flags.OnePacket, ipvs.OnePacket)
	set(c.Flags.Flag1, ipvs.Sched1)
	set(c.Flags.Flag2, ipvs.Sched2)
	set(c.Flags.Flag3, ipvs.Sched3)
	s.Netmask = ipvs.FullMask(s.Family)
	if c.Persistence != 0 {
		s.PersistenceEngine = c.Engine
		// A dotted mask has more bits set than any prefix length: each fits one
		// family only, and a group may hold both.
		if isV6 := c.Granularity <= 128; c.Granularity != 0 && isV6 == (s.Family == ipvs.INET6) {
			s.Netmask = c.Granularity
		}
	}
	return s
}

func family(f config.Family) ipvs.Family {
	if f == config.IPv6 {
		return ipvs.INET6
	}
	return ipvs.INET
}

func protocol(p config.Protocol) ipvs.Protocol {
	switch p {
	case config.TCP:
		return ipvs.TCP
	case config.UDP:
		return ipvs.UDP
	case config.SCTP:
		return ipvs.SCTP
	}
	return 0
}

func destination(k config.RSKey, f config.Forwarding) ipvs.Destination {
	d := ipvs.Destination{DestinationKey: ipvs.DestinationKey{Addr: k.Addr().Unmap().WithZone(""), Port: k.Port()}}
	switch f.Method {
	case config.DR:
		d.Forward = ipvs.DirectRoute
	case config.TUN:
		d.Forward = ipvs.Tunnel
		switch f.Tunnel {
		case config.GUE:
			d.TunnelType, d.TunnelPort = ipvs.GUE, f.Port
		case config.GRE:
			d.TunnelType = ipvs.GRE
		}
		if f.Tunnel != config.IPIP {
			switch f.Checksum {
			case config.Csum:
				d.TunnelFlags = ipvs.Checksum
			case config.RemCsum:
				d.TunnelFlags = ipvs.RemoteChecksum
			}
		}
	}
	return d
}

// at returns the destination as it stands in one service: only NAT can translate
// the port, every other method keeps the packet's, which is the service's (0 for a
// mark). keepalived applies the same rule at each write.
func at(d ipvs.Destination, s ipvs.ServiceKey) ipvs.Destination {
	if d.Forward != ipvs.Masquerade {
		d.Port = s.Port
	}
	return d
}
