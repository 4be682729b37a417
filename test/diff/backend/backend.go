// Package backend is what answers the checks in the differential test: servers
// that behave well or badly, as the script says, and change their behaviour while
// the daemons look on.
//
// Decisions that were close:
//
//   - A change from one behaviour that listens to another keeps the socket: a
//     moment in which nothing listens would be a failed check that no script asked
//     for.
//   - "drop" is a socket filter that takes no packet. It needs no firewall in the
//     guest, leaves the other ports of the address alone, and a SYN that it drops
//     gets no answer at all.
//   - HTTP is written by hand: what net/http would put right is what is tested.
package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/test/diff/scenario"
)

// Network is where the backends listen: a namespace of testkit. Do runs fn on a
// thread that is in it.
type Network interface {
	Do(fn func() error) error
}

// Set holds the backends of a run by their addresses.
type Set struct {
	network Network
	mu      sync.Mutex
	servers map[netip.AddrPort]*server
	wg      sync.WaitGroup
	closing chan struct{}
}

// NewSet returns a set without backends.
func NewSet(n Network) *Set {
	return &Set{network: n, servers: map[netip.AddrPort]*server{}, closing: make(chan struct{})}
}

// server is what listens on one address.
type server struct {
	addr  string
	tcp   net.Listener
	udp   net.PacketConn
	serve func(*Set, net.Conn)          // of connections; under the set's lock
	reply func(request []byte) [][]byte // to datagrams; under the set's lock
	site  *site                         // of the http kinds, else nil
	conns map[net.Conn]struct{}
}

// Define gives an address its behaviour from now on.
func (s *Set) Define(b *scenario.Behaviour) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.servers[b.Addr]
	if v == nil {
		v = &server{addr: b.Addr.String(), conns: map[net.Conn]struct{}{}}
		s.servers[b.Addr] = v
	}
	if err := s.define(v, b); err != nil {
		return fmt.Errorf("backend %s %s: %w", b.Addr, b.Kind, err)
	}
	return nil
}

func (s *Set) define(v *server, b *scenario.Behaviour) error {
	switch {
	case b.Kind == "refuse":
		v.close()
		return nil
	case b.Kind == "drop":
		return s.drop(v)
	case b.UDP():
		v.reply = replier(b)
		return s.open(v, false, true)
	}
	if err := v.setHandler(b); err != nil {
		return err
	}
	return s.open(v, true, false)
}

// drop makes what listens deaf; where nothing does, both protocols.
func (s *Set) drop(v *server) error {
	if v.tcp == nil && v.udp == nil {
		if v.serve == nil {
			v.serve = drain
		}
		if v.reply == nil {
			v.reply = func([]byte) [][]byte { return nil }
		}
		if err := s.open(v, true, true); err != nil {
			return err
		}
	}
	return errors.Join(filter(v.tcp, deafen), filter(v.udp, deafen))
}

// open makes the server listen, and hear.
func (s *Set) open(v *server, tcp, udp bool) error {
	if tcp && v.tcp == nil {
		l, err := s.listen(v.addr)
		if err != nil {
			return err
		}
		v.tcp = l
		s.wg.Go(func() { s.accept(v, l) })
	}
	if udp && v.udp == nil {
		c, err := s.listenPacket(v.addr)
		if err != nil {
			return err
		}
		v.udp = c
		s.wg.Go(func() { s.receive(v, c) })
	}
	var err error
	if tcp {
		err = filter(v.tcp, hear)
	}
	if udp {
		err = errors.Join(err, filter(v.udp, hear))
	}
	return err
}

// listen takes plain TCP: a socket of Multipath TCP takes no filter.
func (s *Set) listen(addr string) (l net.Listener, err error) {
	err = s.network.Do(func() (err error) {
		lc := net.ListenConfig{}
		lc.SetMultipathTCP(false)
		l, err = lc.Listen(context.Background(), "tcp", addr)
		return err
	})
	return l, err
}

func (s *Set) listenPacket(addr string) (c net.PacketConn, err error) {
	err = s.network.Do(func() (err error) {
		lc := net.ListenConfig{}
		c, err = lc.ListenPacket(context.Background(), "udp", addr)
		return err
	})
	return c, err
}

func (s *Set) accept(v *server, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		serve := v.serve
		open := v.tcp == l
		if open {
			v.conns[c] = struct{}{}
		}
		s.mu.Unlock()
		if !open {
			c.Close()
			return
		}
		s.wg.Go(func() {
			serve(s, c)
			c.Close()
			s.mu.Lock()
			delete(v.conns, c)
			s.mu.Unlock()
		})
	}
}

func (s *Set) receive(v *server, c net.PacketConn) {
	for buf := make([]byte, 65536); ; {
		n, from, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error for an answer that nobody took
		}
		s.mu.Lock()
		reply := v.reply
		s.mu.Unlock()
		for _, answer := range reply(buf[:n]) {
			_, _ = c.WriteTo(answer, from)
		}
	}
}

// close ends listening and every connection.
func (v *server) close() {
	if v.tcp != nil {
		v.tcp.Close()
		v.tcp = nil
	}
	if v.udp != nil {
		v.udp.Close()
		v.udp = nil
	}
	for c := range v.conns {
		c.Close()
	}
}

// Close ends all of them and waits.
func (s *Set) Close() {
	s.mu.Lock()
	close(s.closing)
	for _, v := range s.servers {
		v.close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// deafen lets the socket take no packet: a classic BPF program of one instruction,
// "return 0 bytes".
func deafen(fd int) error {
	program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &program[0]})
}

func hear(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	if errors.Is(err, unix.ENOENT) { // there was none
		return nil
	}
	return err
}

// filter calls fn with the descriptor of a listener or packet socket; a closed one
// (nil) is left alone.
func filter(socket any, fn func(fd int) error) error {
	var c syscall.RawConn
	var err error
	switch l := socket.(type) {
	case *net.TCPListener:
		c, err = l.SyscallConn()
	case *net.UDPConn:
		c, err = l.SyscallConn()
	default:
		return nil
	}
	if err != nil {
		return err
	}
	var result error
	if err := c.Control(func(fd uintptr) { result = fn(int(fd)) }); err != nil {
		return err
	}
	return result
}
