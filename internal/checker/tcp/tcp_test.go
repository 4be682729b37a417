package tcp

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

func listen(t testing.TB, addr string) (net.Listener, *config.Checker) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("listen on %s: %v", addr, err)
	}
	t.Cleanup(func() { l.Close() })
	return l, &config.Checker{Kind: config.TCPCheck, Conn: config.Connection{
		Target: netip.MustParseAddrPort(l.Addr().String()), Timeout: 5 * time.Second,
	}}
}

func TestConnectIsSuccessAndTheCloseIsNormal(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, c := listen(t, addr)
		o := New(c).Run(t.Context())
		if o.Result != checker.OK || o.Took <= 0 {
			t.Fatalf("%s: %+v", addr, o)
		}
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		// Nothing was sent, and the end is a FIN: a reset would be an error.
		if got, err := io.ReadAll(peer); len(got) != 0 || err != nil {
			t.Errorf("%s: peer read %q, %v", addr, got, err)
		}
	}
}

func TestAServerThatNeverAcceptsIsWell(t *testing.T) {
	_, c := listen(t, "127.0.0.1:0")
	for range 3 { // the kernel completes the handshake into the backlog
		if o := New(c).Run(t.Context()); o.Result != checker.OK {
			t.Fatalf("%+v", o)
		}
	}
}

func TestC02RefusedIsFailedBindMissingIsUnable(t *testing.T) {
	l, c := listen(t, "127.0.0.1:0")
	c.Conn.BindAddr = netip.MustParseAddr("192.0.2.77")
	if o := New(c).Run(t.Context()); o.Result != checker.Unable || !strings.Contains(o.Reason, "source address 192.0.2.77 is not on this machine") {
		t.Errorf("source address missing: %+v", o)
	}
	c.Conn.BindAddr = netip.Addr{}
	l.Close()
	o := New(c).Run(t.Context())
	if want := "connect to " + c.Conn.Target.String() + ": connection refused (ECONNREFUSED) after "; o.Result != checker.Failed || !strings.HasPrefix(o.Reason, want) {
		t.Errorf("refused: %+v", o)
	}
}

func TestCancelledIsUnable(t *testing.T) {
	_, c := listen(t, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := New(c).Run(ctx); o.Result != checker.Unable || o.Reason != "cancelled" {
		t.Errorf("%+v", o)
	}
}

func BenchmarkTCPProbe(b *testing.B) {
	l, c := listen(b, "127.0.0.1:0")
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	p := New(c)
	b.ReportAllocs()
	for b.Loop() {
		if o := p.Run(b.Context()); o.Result != checker.OK {
			b.Fatal(o.Reason)
		}
	}
}
