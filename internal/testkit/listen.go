package testkit

import (
	"net"
	"net/netip"
	"sync"
	"testing"
)

// Serve runs handle for each connection to a listener on addr, on this host, and
// returns where that is. At the test's end all connections are closed and waited for.
// Without the address, as on a host that has no IPv6, the test is skipped.
func Serve(t testing.TB, addr string, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("listen on %s: %v", addr, err)
	}
	var conns sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			conns.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		conns.Wait()
	})
	return netip.MustParseAddrPort(l.Addr().String())
}
