package lane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/host"
)

// kernel is what a Keeper reads and writes.
type kernel interface {
	read() (state, error)
	way(server netip.Addr) (way, error)
	do(ctx context.Context, o op) error
	close()
}

const (
	// patience is how long nothing of an answer is waited for; the kernel answers while
	// it is asked.
	patience = 5 * time.Second
	// readings bounds how often a list is read that changes meanwhile.
	readings = 16
)

// linux is the kernel of the thread's network namespace.
type linux struct {
	asker *host.Asker
	// names of devices and their indexes, and addresses by device.
	names     map[uint32]string
	indexes   map[string]uint32
	addresses map[uint32][]netip.Addr
	// tunnels are the names of those of all owners.
	tunnels map[ends]string
}

func openKernel() (kernel, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("check_via: open a socket to the kernel's routing: %w", err)
	}
	return newLinux(c, patience), nil
}

func newLinux(c *netlink.Conn, patience time.Duration) *linux {
	// With it the kernel lists our routes and not all that a router has. Without, for
	// whatever reason, we choose ourselves.
	_ = c.SetOption(netlink.GetStrictCheck, true)
	return &linux{asker: host.NewAsker(c, patience), names: map[uint32]string{}, indexes: map[string]uint32{}, tunnels: map[ends]string{}}
}

func (k *linux) close() { k.asker.Close() }

func (k *linux) ask(kind uint16, flags netlink.HeaderFlags, data []byte) ([]netlink.Message, error) {
	return k.asker.Ask(kind, flags, data)
}

// list asks for a list until it is whole: what is not on it would stay.
func (k *linux) list(kind uint16, data []byte) ([]netlink.Message, error) {
	for range readings {
		if list, whole, err := k.asker.List(kind, data); err != nil || whole {
			return list, err
		}
	}
	return nil, fmt.Errorf("the list changed during each of %d readings", readings)
}

func (k *linux) read() (state, error) {
	s := state{moved: map[uint8]bool{}}
	links, err := k.list(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg))
	if err != nil {
		return s, fmt.Errorf("check_via: list devices: %w", err)
	}
	for _, m := range links {
		k.link(&s, m)
	}
	for _, f := range []uint8{unix.AF_INET, unix.AF_INET6} {
		head := make([]byte, sizeofRule)
		head[0] = f
		rules, err := k.list(unix.RTM_GETRULE, head)
		if err != nil {
			return s, fmt.Errorf("check_via: list rules: %w", err)
		}
		for _, m := range rules {
			if m.Header.Type != unix.RTM_NEWRULE {
				continue
			}
			r, err := decodeRule(m.Data)
			if err != nil {
				return s, fmt.Errorf("check_via: list rules: %w", err)
			}
			s.rules = append(s.rules, r)
		}
		filter := &rtnetlink.RouteMessage{Family: f, Protocol: host.Protocol}
		data, err := filter.MarshalBinary()
		if err != nil {
			return s, err
		}
		routes, err := k.list(unix.RTM_GETROUTE, data)
		if err != nil {
			return s, fmt.Errorf("check_via: list routes: %w", err)
		}
		for _, m := range routes {
			if m.Header.Type != unix.RTM_NEWROUTE {
				continue
			}
			r, ours, err := k.decodeRoute(m.Data)
			if err != nil {
				return s, fmt.Errorf("check_via: list routes: %w", err)
			}
			if ours {
				s.routes = append(s.routes, r)
			}
		}
	}
	if s.filter, err = readFilter(); err != nil {
		return s, fmt.Errorf("check_via: list tables of nftables: %w", err)
	}
	return s, nil
}

// link takes note of a device.
func (k *linux) link(s *state, m netlink.Message) {
	if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
		return
	}
	index := nativeEndian.Uint32(m.Data[4:])
	d, ours := decodeDevice(m.Data[unix.SizeofIfInfomsg:])
	d.down = nativeEndian.Uint32(m.Data[8:])&unix.IFF_UP == 0
	k.names[index], k.indexes[d.name] = d.name, index
	if d.external || d.remote.IsValid() {
		k.tunnels[d.ends()] = d.name
	}
	if ours {
		s.devices = append(s.devices, d)
	}
}

// way asks how a server is reached, by packets without a mark.
func (k *linux) way(server netip.Addr) (way, error) {
	request := &rtnetlink.RouteMessage{Family: family(server.Is6()), DstLength: uint8(server.BitLen())}
	request.Attributes.Dst = server.AsSlice()
	data, err := request.MarshalBinary()
	if err != nil {
		return way{}, err
	}
	answer, err := k.ask(unix.RTM_GETROUTE, 0, data)
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL):
		return way{}, errors.New("there is no route to it")
	case err != nil:
		return way{}, fmt.Errorf("ask for the route to it: %w", err)
	}
	for _, m := range answer {
		var r rtnetlink.RouteMessage
		if m.Header.Type != unix.RTM_NEWROUTE {
			continue
		}
		if err := r.UnmarshalBinary(m.Data); err != nil {
			return way{}, fmt.Errorf("ask for the route to it: %w", err)
		}
		switch r.Type {
		case unix.RTN_LOCAL:
			return way{}, errHere
		case unix.RTN_UNICAST:
		default:
			return way{}, errors.New("there is no route to it")
		}
		w := way{device: k.name(r.Attributes.OutIface), gateway: r.Attributes.Gateway != nil || r.Attributes.Via != nil}
		if w.device == "" {
			return way{}, errors.New("its route's device is gone")
		}
		w.source, _ = netip.AddrFromSlice(r.Attributes.Src)
		if w.source = w.source.Unmap(); !w.source.IsValid() {
			return way{}, fmt.Errorf("device %s, which leads to it, has no address of its family", w.device)
		}
		w.other, err = k.address(r.Attributes.OutIface, family(!server.Is6()))
		return w, err
	}
	return way{}, errors.New("the kernel does not say how it is reached")
}

// name is a device's, "" for one that is gone.
func (k *linux) name(index uint32) string {
	if n, known := k.names[index]; known {
		return n
	}
	head := make([]byte, unix.SizeofIfInfomsg)
	nativeEndian.PutUint32(head[4:], index)
	answer, err := k.ask(unix.RTM_GETLINK, 0, head)
	if err != nil {
		return ""
	}
	for _, m := range answer {
		k.link(&state{}, m)
	}
	return k.names[index]
}

// address is the first address of a device in a family that others can answer to.
func (k *linux) address(device uint32, f uint8) (netip.Addr, error) {
	if k.addresses == nil {
		k.addresses = map[uint32][]netip.Addr{}
		answer, err := k.list(unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg))
		if err != nil {
			return netip.Addr{}, fmt.Errorf("list addresses: %w", err)
		}
		for _, m := range answer {
			var a rtnetlink.AddressMessage
			if m.Header.Type != unix.RTM_NEWADDR || a.UnmarshalBinary(m.Data) != nil || a.Attributes == nil || a.Scope != unix.RT_SCOPE_UNIVERSE {
				continue
			}
			ip := a.Attributes.Local
			if ip == nil {
				ip = a.Attributes.Address
			}
			if addr, ok := netip.AddrFromSlice(ip); ok {
				k.addresses[a.Index] = append(k.addresses[a.Index], addr.Unmap())
			}
		}
	}
	for _, a := range k.addresses[device] {
		if family(a.Is6()) == f {
			return a, nil
		}
	}
	return netip.Addr{}, nil
}

// do writes one thing. That it is as wanted already is no error.
func (k *linux) do(ctx context.Context, o op) error {
	var err error
	switch w := o.what.(type) {
	case rule:
		err = k.rule(o.verb, w)
	case route:
		err = k.route(o.verb, w)
	case device:
		err = k.device(ctx, o.verb, w)
	case filter:
		err = writeFilter(o.verb, w)
	default:
		err = fmt.Errorf("%T cannot be written", w)
	}
	switch {
	case o.verb == add && errors.Is(err, unix.EEXIST):
		if d, ok := o.what.(device); ok {
			return k.taken(d, err)
		}
		return nil
	case o.verb == remove && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV)):
		return nil
	}
	return err
}

// taken says why a device cannot be made that is there already.
func (k *linux) taken(d device, err error) error {
	if k.indexes[d.name] != 0 {
		return fmt.Errorf("a device %s that is not ours is there already, delete it: %w", d.name, err)
	}
	other := k.tunnels[d.ends()]
	if other == "" {
		other = "another device"
	}
	if d.external {
		return fmt.Errorf("%s is already the %s tunnel that takes its destinations from routes (external), of which the kernel has one; delete it, or write check_via off: %w", other, d.kind, err)
	}
	return fmt.Errorf("%s is already the %s tunnel from %s to %s, of which the kernel has one; delete it, or write check_via off: %w", other, d.kind, d.local, d.remote, err)
}

func (k *linux) rule(v verb, r rule) error {
	data, err := encodeRule(r, v)
	if err != nil {
		return err
	}
	if v == add {
		_, err = k.ask(unix.RTM_NEWRULE, netlink.Acknowledge|netlink.Create|netlink.Excl, data)
	} else {
		_, err = k.ask(unix.RTM_DELRULE, netlink.Acknowledge, data)
	}
	return err
}

func (k *linux) route(v verb, r route) error {
	index := uint32(0)
	if r.device != "" {
		if index = k.indexes[r.device]; index == 0 {
			return fmt.Errorf("device %s is gone: %w", r.device, unix.ENODEV)
		}
	}
	data, err := encodeRoute(r, index)
	if err != nil {
		return err
	}
	if v == add {
		_, err = k.ask(unix.RTM_NEWROUTE, netlink.Acknowledge|netlink.Create|netlink.Replace, data)
	} else {
		_, err = k.ask(unix.RTM_DELROUTE, netlink.Acknowledge, data)
	}
	return err
}

func (k *linux) device(ctx context.Context, v verb, d device) error {
	if v == remove {
		data := make([]byte, unix.SizeofIfInfomsg)
		nativeEndian.PutUint32(data[4:], k.indexes[d.name])
		if k.indexes[d.name] == 0 {
			return nil
		}
		delete(k.indexes, d.name)
		_, err := k.ask(unix.RTM_DELLINK, netlink.Acknowledge, data)
		return err
	}
	if d.port != 0 {
		module := "fou"
		if d.remote.Is6() {
			module = "fou6"
		}
		if err := host.LoadModule(ctx, module); err != nil {
			return err
		}
	}
	data, err := encodeDevice(d)
	if err != nil {
		return err
	}
	if _, err := k.ask(unix.RTM_NEWLINK, netlink.Acknowledge|netlink.Create|netlink.Excl, data); err != nil {
		return err
	}
	answer, err := k.ask(unix.RTM_GETLINK, 0, encodeName(d.name))
	if err != nil {
		return err
	}
	for _, m := range answer {
		k.link(&state{}, m)
	}
	index := k.indexes[d.name]
	if index == 0 {
		return fmt.Errorf("it was made and is gone: %w", unix.ENODEV)
	}
	closeDevice(d.name)
	data, err = encodeUp(index)
	if err != nil {
		return err
	}
	_, err = k.ask(unix.RTM_NEWLINK, netlink.Acknowledge, data)
	return err
}

// closeDevice has a tunnel forward nothing, and take in nothing whose way back is not
// the tunnel, which is everything. The settings are that device's alone. Where they
// cannot be written, checks work all the same.
func closeDevice(name string) {
	for _, s := range [][2]string{
		{"ipv4/conf/" + name + "/forwarding", "0"}, {"ipv4/conf/" + name + "/rp_filter", "1"},
		{"ipv6/conf/" + name + "/forwarding", "0"}, {"ipv6/conf/" + name + "/accept_ra", "0"},
	} {
		if f, err := os.OpenFile("/proc/sys/net/"+s[0], os.O_WRONLY, 0); err == nil {
			_, _ = f.WriteString(s[1])
			f.Close()
		}
	}
}
