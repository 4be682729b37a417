package host

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Network answers about devices and routes.
type Network interface {
	Devices() ([]Device, error)
	Route(netip.Addr) Route
	Close() error
}

// network fills in devices and routes.
func (m Machine) network(f *Facts, q Query) {
	f.Routes = map[netip.Addr]Route{}
	n := m.Network
	if n == nil {
		k, err := openKernelNetwork()
		if err != nil {
			f.DevicesUnknown = err.Error()
			for _, a := range q.Routes {
				f.Routes[a] = Route{Unknown: err.Error()}
			}
			return
		}
		n = k
	}
	defer n.Close()
	var err error
	if f.Devices, err = n.Devices(); err != nil {
		f.DevicesUnknown = err.Error()
	}
	for _, a := range q.Routes {
		if _, asked := f.Routes[a]; !asked {
			f.Routes[a] = n.Route(a)
		}
	}
}

// kernelNetwork asks rtnetlink in the namespace of the thread that opened it.
type kernelNetwork struct {
	conn *netlink.Conn
	// names of devices by their indexes, once Devices was asked.
	names map[uint32]string
}

func openKernelNetwork() (*kernelNetwork, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the kernel about its network: %w", err)
	}
	return &kernelNetwork{conn: c, names: map[uint32]string{}}, nil
}

// Close ends asking.
func (k *kernelNetwork) Close() error { return k.conn.Close() }

// ask sends one request.
func (k *kernelNetwork) ask(kind uint16, flags netlink.HeaderFlags, body interface{ MarshalBinary() ([]byte, error) }) ([]netlink.Message, error) {
	data, err := body.MarshalBinary()
	if err != nil {
		return nil, err
	}
	if err := k.conn.SetDeadline(time.Now().Add(addressTimeout)); err != nil {
		return nil, err
	}
	return k.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags},
		Data:   data,
	})
}

// Devices lists the devices with their addresses.
func (k *kernelNetwork) Devices() ([]Device, error) {
	answer, err := k.ask(unix.RTM_GETLINK, netlink.Dump, &rtnetlink.LinkMessage{})
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	byIndex := map[uint32]*Device{}
	for _, m := range answer {
		var l rtnetlink.LinkMessage
		if m.Header.Type != unix.RTM_NEWLINK || l.UnmarshalBinary(m.Data) != nil || l.Attributes == nil {
			continue
		}
		d := &Device{Name: l.Attributes.Name, Loopback: l.Flags&unix.IFF_LOOPBACK != 0, Up: l.Flags&unix.IFF_UP != 0, MTU: l.Attributes.MTU}
		d.Dummy = l.Attributes.Info != nil && l.Attributes.Info.Kind == "dummy"
		byIndex[l.Index], k.names[l.Index] = d, d.Name
	}
	answer, err = k.ask(unix.RTM_GETADDR, netlink.Dump, &rtnetlink.AddressMessage{})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range answer {
		var a rtnetlink.AddressMessage
		if m.Header.Type != unix.RTM_NEWADDR || a.UnmarshalBinary(m.Data) != nil || a.Attributes == nil {
			continue
		}
		ip := a.Attributes.Local
		if ip == nil {
			ip = a.Attributes.Address
		}
		addr, ok := netip.AddrFromSlice(ip)
		if d := byIndex[a.Index]; d != nil && ok {
			flags := cmp.Or(a.Attributes.Flags, uint32(a.Flags))
			d.Addresses = append(d.Addresses, Address{
				Prefix:    netip.PrefixFrom(addr.Unmap(), int(a.PrefixLength)),
				Secondary: flags&unix.IFA_F_SECONDARY != 0,
				Unusable:  flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0,
			})
		}
	}
	var all []Device
	for _, d := range byIndex {
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Route asks how an address would be reached: "ip route get".
func (k *kernelNetwork) Route(a netip.Addr) Route {
	request := &rtnetlink.RouteMessage{Family: unix.AF_INET, DstLength: 32}
	if a.Is6() {
		request.Family, request.DstLength = unix.AF_INET6, 128
	}
	request.Attributes.Dst = a.AsSlice()
	answer, err := k.ask(unix.RTM_GETROUTE, 0, request)
	switch {
	case errors.Is(err, unix.ENETUNREACH):
		return Route{None: "no route to it"}
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL):
		return Route{None: "a route forbids it (unreachable, prohibit or blackhole)"}
	case err != nil:
		return Route{Unknown: err.Error()}
	}
	for _, m := range answer {
		var r rtnetlink.RouteMessage
		if m.Header.Type != unix.RTM_NEWROUTE {
			continue
		}
		if err := r.UnmarshalBinary(m.Data); err != nil {
			return Route{Unknown: err.Error()}
		}
		switch r.Type {
		case unix.RTN_LOCAL:
			return Route{Local: true, Device: k.names[r.Attributes.OutIface]}
		case unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_BLACKHOLE:
			return Route{None: "a route forbids it (unreachable, prohibit or blackhole)"}
		}
		via, _ := netip.AddrFromSlice(r.Attributes.Gateway)
		return Route{Device: k.names[r.Attributes.OutIface], Gateway: via.Unmap()}
	}
	return Route{Unknown: "the kernel answered nothing"}
}
