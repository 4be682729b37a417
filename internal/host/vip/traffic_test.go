package vip

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// TestKernelVIPConnectionsOutliveTheAddress: an established connection to an address goes
// on when that is withdrawn and kept local, and the route goes at the end.
func TestKernelVIPConnectionsOutliveTheAddress(t *testing.T) {
	testkit.Kernel(t)
	client, director := testkit.NewNS(t, "client"), testkit.NewNS(t, "director")
	director.IP(t, "link add name d type veth peer name c netns "+client.Path(),
		"address add 198.51.100.1/24 dev d", "address add 2001:db8:1::1/64 dev d nodad", "link set dev d up")
	client.IP(t, "address add 198.51.100.2/24 dev c", "address add 2001:db8:1::2/64 dev c nodad", "link set dev c up")
	v := openIn(t, director)
	for _, a := range []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")} {
		gateway := "198.51.100.1"
		if a.Is6() {
			gateway = "2001:db8:1::1"
		}
		client.IP(t, "route add "+a.String()+" via "+gateway)
		synced(t, v, on(device, a))
		listener, err := director.Listen("tcp", netip.AddrPortFrom(a, 80).String())
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		accepted := make(chan net.Conn, 1)
		go echo(listener, accepted)
		c, err := client.Dial(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		server := <-accepted
		defer server.Close() // the client's end of the connection cannot reach it any more
		talk := bufio.NewReader(c)
		say := func(n int) error {
			if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
				return err
			}
			if _, err := fmt.Fprintln(c, n); err != nil {
				return err
			}
			_, err := talk.ReadString('\n')
			return err
		}
		if err := say(1); err != nil {
			t.Fatal(err)
		}
		for n := range 20 { // back and forth: none of it may be noticed
			kept := local(map[netip.Addr]edge.Place{}, a)
			if n%2 == 1 {
				kept = on(device, a)
			}
			if missing, err := v.Change(kept); err != nil || len(missing) > 0 {
				t.Fatal(missing, err)
			}
			if n == 0 {
				holds(t, director, nil, []netip.Addr{a})
			}
			if err := say(n); err != nil {
				t.Fatalf("%s, change %d: %v", a, n, err)
			}
		}
		synced(t, v, local(map[netip.Addr]edge.Place{}, a))
		if err := say(100); err != nil {
			t.Errorf("%s: %v", a, err)
		}
		synced(t, v, nil)
		holds(t, director, nil, nil)
		if got := devices(t, director); got != "" {
			t.Errorf("devices left: %q", got)
		}
	}
}

// echo answers the lines of one connection.
func echo(l net.Listener, accepted chan<- net.Conn) {
	c, err := l.Accept()
	if err != nil {
		return
	}
	accepted <- c
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if _, err := fmt.Fprintln(c, lines.Text()); err != nil {
			return
		}
	}
}
