package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// askTime bounds all questions to neighbours together, and askAgain is the time
	// between two of one: a neighbour answers within a millisecond, or its answer was lost.
	askTime  = time.Second
	askAgain = 250 * time.Millisecond
	// hardware is the length of an Ethernet address, arpLength that of an ARP packet for
	// IPv4 over Ethernet (RFC 826).
	hardware, arpLength = 6, 28
)

// arpPacket is one of IPv4 over Ethernet.
type arpPacket struct {
	operation uint16
	// hw and ip are the sender's, target whom or what it is about.
	hw         [hardware]byte
	ip, target netip.Addr
	targetHW   [hardware]byte
}

const (
	arpRequest = 1
	arpReply   = 2
)

func (p *arpPacket) marshal() []byte {
	b := make([]byte, 0, arpLength)
	b = binary.BigEndian.AppendUint16(b, unix.ARPHRD_ETHER)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	b = append(b, hardware, 4)
	b = binary.BigEndian.AppendUint16(b, p.operation)
	b = append(b, p.hw[:]...)
	b = append(b, p.ip.AsSlice()...)
	b = append(b, p.targetHW[:]...)
	return append(b, p.target.AsSlice()...)
}

// unmarshal says whether bytes are such a packet.
func (p *arpPacket) unmarshal(b []byte) bool {
	if len(b) < arpLength || binary.BigEndian.Uint16(b) != unix.ARPHRD_ETHER || binary.BigEndian.Uint16(b[2:]) != unix.ETH_P_IP || b[4] != hardware || b[5] != 4 {
		return false
	}
	p.operation = binary.BigEndian.Uint16(b[6:])
	copy(p.hw[:], b[8:])
	p.ip = netip.AddrFrom4([4]byte(b[14:18]))
	copy(p.targetHW[:], b[18:])
	p.target = netip.AddrFrom4([4]byte(b[24:28]))
	return true
}

func unasked(list []Question, why error) map[Question]Answer {
	all := map[Question]Answer{}
	for _, q := range list {
		all[q] = Answer{Unknown: why.Error()}
	}
	return all
}

// inquiry is a question that can be put.
type inquiry struct {
	Question
	port   port
	mac    [hardware]byte
	source netip.Addr
}

// Ask sends each server a request for the address, to the server's own Ethernet address:
// nobody else hears it, and nobody's table changes but by an address that is ours. A
// server that has the address and does not hide it (arp_ignore) answers.
func (k *kernelNetwork) Ask(list []Question, routes map[netip.Addr]Route) map[Question]Answer {
	all := map[Question]Answer{}
	macs, err := k.neighbours()
	if err != nil {
		return unasked(list, err)
	}
	byDevice := map[uint32][]inquiry{}
	for _, q := range list {
		p, why := k.inquiry(q, routes[q.Server], macs)
		all[q] = Answer{Unknown: why}
		if why == "" {
			byDevice[p.port.index] = append(byDevice[p.port.index], p)
		}
	}
	until := time.Now().Add(askTime)
	for index, asked := range byDevice {
		// One after another: there are few such devices, and each answers at once.
		yes, err := ask(int(index), asked, until)
		for _, p := range asked {
			a := Answer{Yes: yes[p.Question]}
			if err != nil && !a.Yes {
				a = Answer{Unknown: reason(err)}
			}
			all[p.Question] = a
		}
	}
	return all
}

// inquiry finds out how a question is put, or why it cannot be.
func (k *kernelNetwork) inquiry(q Question, r Route, macs map[neighbour][hardware]byte) (inquiry, string) {
	p := inquiry{Question: q, port: k.indexes[r.Device], source: r.Source}
	mac, known := macs[neighbour{p.port.index, q.Server}]
	switch {
	case r.Unknown != "" || r.None != "":
		return p, "there is no route to it"
	case r.Local || r.Gateway.IsValid():
		return p, "it is not on a network of this machine"
	case !q.Addr.Is4() || !q.Server.Is4():
		return p, "ARP is for IPv4"
	case !p.port.arp:
		return p, r.Device + " speaks no ARP"
	case !p.source.Is4():
		return p, "the kernel names no address of its own for the way to it"
	case !known:
		return p, "its Ethernet address is not known; nothing was sent to it lately"
	}
	p.mac = mac
	return p, ""
}

// neighbour is one as a device has it.
type neighbour struct {
	device uint32
	addr   netip.Addr
}

// resolved are the states of a neighbour whose Ethernet address is known.
const resolved = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT

func (k *kernelNetwork) neighbours() (map[neighbour][hardware]byte, error) {
	answer, err := k.ask(unix.RTM_GETNEIGH, netlink.Dump, &rtnetlink.NeighMessage{Family: unix.AF_INET})
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	all := map[neighbour][hardware]byte{}
	for _, m := range answer {
		var n rtnetlink.NeighMessage
		if m.Header.Type != unix.RTM_NEWNEIGH || n.UnmarshalBinary(m.Data) != nil || n.Attributes == nil {
			continue
		}
		if a, ok := netip.AddrFromSlice(n.Attributes.Address); ok && n.State&resolved != 0 && len(n.Attributes.LLAddress) == hardware {
			all[neighbour{n.Index, a.Unmap()}] = [hardware]byte(n.Attributes.LLAddress)
		}
	}
	return all, nil
}

// ask puts the questions that go by one device.
func ask(index int, list []inquiry, until time.Time) (yes map[Question]bool, err error) {
	protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ARP))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(protocol))
	if err != nil {
		return nil, fmt.Errorf("ask by ARP: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: index}); err != nil {
		return nil, fmt.Errorf("ask by ARP: %w", err)
	}
	yes = map[Question]bool{}
	waiting := map[Question]inquiry{}
	for _, p := range list {
		waiting[p.Question] = p
	}
	for next := time.Now(); len(waiting) > 0 && time.Now().Before(until); {
		if now := time.Now(); !now.Before(next) {
			for _, p := range waiting {
				request := arpPacket{operation: arpRequest, hw: [hardware]byte(p.port.mac), ip: p.source, target: p.Addr}
				to := unix.SockaddrLinklayer{Protocol: protocol, Ifindex: index, Halen: hardware}
				copy(to.Addr[:], p.mac[:])
				if err := unix.Sendto(fd, request.marshal(), 0, &to); err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
					return yes, fmt.Errorf("ask %s by ARP: %w", p.Server, err)
				}
			}
			next = now.Add(askAgain)
		}
		wait := max(min(time.Until(next), time.Until(until)), time.Millisecond)
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(wait.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return yes, fmt.Errorf("ask by ARP: %w", err)
		}
		hear(fd, waiting, yes)
	}
	return yes, nil
}

// hear takes in what has come.
func hear(fd int, waiting map[Question]inquiry, yes map[Question]bool) {
	buf := make([]byte, 128)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return
		}
		var p arpPacket
		if !p.unmarshal(buf[:n]) || p.operation != arpReply {
			continue
		}
		maps.DeleteFunc(waiting, func(q Question, w inquiry) bool {
			if q.Addr != p.ip || !bytes.Equal(w.mac[:], p.hw[:]) {
				return false
			}
			yes[q] = true
			return true
		})
	}
}
