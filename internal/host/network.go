package host

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Network answers about devices and routes.
type Network interface {
	Devices() ([]Device, error)
	Route(netip.Addr) Route
	Rules() ([]Rule, error)
	Chains() ([]Chain, error)
	// Ask puts questions to neighbours; it takes a second at most.
	Ask([]Question, map[netip.Addr]Route) map[Question]Answer
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
			f.RulesUnknown, f.ChainsUnknown = err.Error(), err.Error()
			for _, a := range q.Routes {
				f.Routes[a] = Route{Unknown: err.Error()}
			}
			f.Answers = unasked(q.Questions, err)
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
	if q.Rules {
		if f.Rules, err = n.Rules(); err != nil {
			f.RulesUnknown = err.Error()
		}
	}
	// To ask a kernel without nf_tables would load it.
	if q.Chains && (f.Modules.Loaded["nf_tables"] || f.Modules.Builtin["nf_tables"]) {
		if f.Chains, err = n.Chains(); err != nil {
			f.ChainsUnknown = reason(err)
		}
	}
	if len(q.Questions) > 0 {
		f.Answers = n.Ask(q.Questions, f.Routes)
	}
}

// kernelNetwork asks rtnetlink in the namespace of the thread that opened it.
type kernelNetwork struct {
	asker *Asker
	// names of devices by their indexes, and the other way, once Devices was asked.
	names   map[uint32]string
	indexes map[string]port
}

// port is a device as packets are sent by it.
type port struct {
	index uint32
	mac   []byte
	// arp: it speaks ARP, which takes Ethernet and an address of six bytes.
	arp bool
}

func openKernelNetwork() (*kernelNetwork, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the kernel about its network: %w", err)
	}
	return &kernelNetwork{asker: NewAsker(c, addressTimeout), names: map[uint32]string{}, indexes: map[string]port{}}, nil
}

// Close ends asking.
func (k *kernelNetwork) Close() error { return k.asker.Close() }

// ask sends one request.
func (k *kernelNetwork) ask(kind uint16, flags netlink.HeaderFlags, body interface{ MarshalBinary() ([]byte, error) }) ([]netlink.Message, error) {
	data, err := body.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return k.asker.Ask(kind, flags, data)
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
		d.Multicast = l.Flags&unix.IFF_MULTICAST != 0
		if l.Attributes.Info != nil {
			d.Kind = l.Attributes.Info.Kind
		}
		d.Dummy = d.Kind == "dummy"
		byIndex[l.Index], k.names[l.Index] = d, d.Name
		k.indexes[d.Name] = port{l.Index, l.Attributes.Address, l.Type == unix.ARPHRD_ETHER && len(l.Attributes.Address) == hardware && l.Flags&unix.IFF_NOARP == 0}
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

// Rules lists the rules of policy routing, those of IPv4 first.
func (k *kernelNetwork) Rules() ([]Rule, error) {
	var all []Rule
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		answer, err := k.ask(unix.RTM_GETRULE, netlink.Dump, &rtnetlink.RuleMessage{Family: family})
		switch {
		case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT):
			continue // a kernel without this family, or without policy routing of it
		case err != nil:
			return nil, fmt.Errorf("list rules of policy routing: %w", err)
		}
		for _, m := range answer {
			var r rtnetlink.RuleMessage
			if m.Header.Type != unix.RTM_NEWRULE {
				continue
			}
			if err := r.UnmarshalBinary(m.Data); err != nil {
				return nil, fmt.Errorf("list rules of policy routing: %w", err)
			}
			if r.Family == family {
				all = append(all, ruleOf(&r))
			}
		}
	}
	return all, nil
}

func ruleOf(m *rtnetlink.RuleMessage) Rule {
	r := Rule{Six: m.Family == unix.AF_INET6, Not: m.Flags&unix.FIB_RULE_INVERT != 0, Table: uint32(m.Table)}
	a := m.Attributes
	if a == nil {
		return r
	}
	for at, from := range map[*uint32]*uint32{&r.Priority: a.Priority, &r.Mark: a.FwMark, &r.Mask: a.FwMask, &r.Table: a.Table} {
		if from != nil {
			*at = *from
		}
	}
	r.Ours = a.Protocol != nil && *a.Protocol == Protocol
	return r
}

// hooks are nftables' numbers of them in the families of IP.
var hooks = map[nftables.ChainHook]string{0: "prerouting", 1: "input", 2: "forward", 3: "output", 4: "postrouting"}

// Chains lists the base chains of nftables; their rules are not read.
func (k *kernelNetwork) Chains() ([]Chain, error) {
	c, err := nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error { return c.SetDeadline(time.Now().Add(addressTimeout)) }))
	if err != nil {
		return nil, fmt.Errorf("list the chains of nftables: %w", err)
	}
	answer, err := c.ListChains()
	if err != nil {
		return nil, fmt.Errorf("list the chains of nftables: %w", err)
	}
	var all []Chain
	for _, m := range answer {
		family, ip := map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet"}[m.Table.Family]
		if !ip || m.Hooknum == nil || m.Priority == nil {
			continue
		}
		all = append(all, Chain{Family: family, Table: m.Table.Name, Name: m.Name, Hook: hooks[*m.Hooknum], Priority: int32(*m.Priority),
			Drop: m.Policy != nil && *m.Policy == nftables.ChainPolicyDrop})
	}
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
		return Route{Unknown: fmt.Sprintf("ask for the route to %s: %v", a, err)}
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
		source, _ := netip.AddrFromSlice(r.Attributes.Src)
		found := Route{Device: k.names[r.Attributes.OutIface], Gateway: via.Unmap(), Source: source.Unmap()}
		if r.Attributes.Metrics != nil {
			found.MTU = r.Attributes.Metrics.MTU
		}
		return found
	}
	return Route{Unknown: "the kernel answered nothing"}
}
