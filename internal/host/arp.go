package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
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

// speech is how a question is put and answered on Ethernet.
type speech struct {
	name      string
	ethertype uint16
	// filter is what the kernel hands over of that type, nil for all.
	filter  []bpf.Instruction
	request func(*inquiry) []byte
	// answer reads whose address its sender says that it is.
	answer func([]byte) (netip.Addr, bool)
}

// resolution asks by ARP.
var resolution = speech{
	name: "ARP", ethertype: unix.ETH_P_ARP,
	request: func(q *inquiry) []byte {
		p := arpPacket{operation: arpRequest, hw: [hardware]byte(q.port.mac), ip: q.source, target: q.Addr}
		return p.marshal()
	},
	answer: func(b []byte) (netip.Addr, bool) {
		var p arpPacket
		return p.ip, p.unmarshal(b) && p.operation == arpReply
	},
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
// server that has the address and does not hide it answers: by ARP unless arp_ignore says
// otherwise, in IPv6 if it has it on the device that is asked. RFC 6085 lets the multicast
// address that IPv6 asks go to a single Ethernet address.
func (k *kernelNetwork) Ask(list []Question, routes map[netip.Addr]Route) map[Question]Answer {
	all := map[Question]Answer{}
	macs, err := k.neighbours()
	if err != nil {
		return unasked(list, err)
	}
	type way struct {
		device uint32
		six    bool
	}
	byWay := map[way]*conversation{}
	for _, q := range list {
		p, why := k.inquiry(q, routes[q.Server], macs)
		all[q] = Answer{Unknown: why}
		if why != "" {
			continue
		}
		w := way{p.port.index, q.Addr.Is6()}
		c := byWay[w]
		if c == nil {
			c = &conversation{speech: &resolution, index: int(w.device), yes: map[Question]bool{}}
			if w.six {
				c.speech = &discovery
			}
			byWay[w] = c
		}
		c.list = append(c.list, p)
	}
	// All at the same time, since one who is silent takes it all. Sockets are opened here:
	// this thread is in the namespace that is meant.
	until := time.Now().Add(askTime)
	var talks sync.WaitGroup
	for _, c := range byWay {
		if c.fd, c.err = c.open(c.index); c.err == nil {
			talks.Go(func() { c.ask(until) })
		}
	}
	talks.Wait()
	for _, c := range byWay {
		for _, p := range c.list {
			a := Answer{Yes: c.yes[p.Question]}
			if c.err != nil && !a.Yes {
				a = Answer{Unknown: reason(fmt.Errorf("ask by %s: %w", c.name, c.err))}
			}
			all[p.Question] = a
		}
	}
	return all
}

// conversation is what is asked by one device in one speech.
type conversation struct {
	*speech
	index int
	fd    int
	list  []inquiry
	yes   map[Question]bool
	err   error
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
	case q.Addr.Is4() != q.Server.Is4():
		return p, "it and the virtual address are of different families"
	case !p.port.arp:
		return p, r.Device + " is no Ethernet, or asks nobody (NOARP)"
	case p.source.Is4() != q.Addr.Is4() || !p.source.IsValid() || p.source == q.Addr:
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
	all := map[neighbour][hardware]byte{}
	for _, family := range []uint16{unix.AF_INET, unix.AF_INET6} {
		answer, err := k.ask(unix.RTM_GETNEIGH, netlink.Dump, &rtnetlink.NeighMessage{Family: family})
		switch {
		case family == unix.AF_INET6 && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)):
			continue // a kernel without it
		case err != nil:
			return nil, fmt.Errorf("list neighbours: %w", err)
		}
		for _, m := range answer {
			var n rtnetlink.NeighMessage
			if m.Header.Type != unix.RTM_NEWNEIGH || n.UnmarshalBinary(m.Data) != nil || n.Attributes == nil {
				continue
			}
			if a, ok := netip.AddrFromSlice(n.Attributes.Address); ok && n.State&resolved != 0 && len(n.Attributes.LLAddress) == hardware {
				all[neighbour{n.Index, a.Unmap()}] = [hardware]byte(n.Attributes.LLAddress)
			}
		}
	}
	return all, nil
}

// ask puts the questions, and closes the socket.
func (c *conversation) ask(until time.Time) {
	defer unix.Close(c.fd)
	waiting := map[Question]inquiry{}
	for _, p := range c.list {
		waiting[p.Question] = p
	}
	for next := time.Now(); len(waiting) > 0 && time.Now().Before(until); {
		if now := time.Now(); !now.Before(next) {
			for _, p := range waiting {
				to := unix.SockaddrLinklayer{Protocol: inNetworkOrder(c.ethertype), Ifindex: c.index, Halen: hardware}
				copy(to.Addr[:], p.mac[:])
				if c.err = unix.Sendto(c.fd, c.request(&p), 0, &to); errors.Is(c.err, unix.EAGAIN) || errors.Is(c.err, unix.ENOBUFS) {
					c.err = nil
				}
				if c.err != nil {
					return
				}
			}
			next = now.Add(askAgain)
		}
		wait := max(min(time.Until(next), time.Until(until)), time.Millisecond)
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}, int(wait.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			c.err = err
			return
		}
		c.hear(waiting)
	}
}

func inNetworkOrder(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// open has a socket that hears answers on a device. It hears nothing before it is bound,
// so that the filter is there first.
func (s *speech) open(index int) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err = s.sift(fd); err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: inNetworkOrder(s.ethertype), Ifindex: index})
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sift has the kernel hand over what the filter lets through.
func (s *speech) sift(fd int) error {
	if s.filter == nil {
		return nil
	}
	program, err := bpf.Assemble(s.filter)
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(program))
	for i, in := range program {
		code[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]})
}

// hear takes in what has come. Who talks without end must not keep it from asking.
func (c *conversation) hear(waiting map[Question]inquiry) {
	buf := make([]byte, 1500)
	for range 4096 {
		n, from, err := unix.Recvfrom(c.fd, buf, 0)
		if err != nil {
			return
		}
		sender, ok := from.(*unix.SockaddrLinklayer)
		about, is := c.answer(buf[:n])
		if !ok || !is {
			continue
		}
		maps.DeleteFunc(waiting, func(q Question, w inquiry) bool {
			if q.Addr != about || w.mac != [hardware]byte(sender.Addr[:hardware]) {
				return false
			}
			c.yes[q] = true
			return true
		})
	}
}
