package checkertest

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silent is a listener whose backlog is full: a connect gets no answer.
func silent(t testing.TB) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(sa.(*unix.SockaddrInet4).Port))
	for range 8 {
		c, err := net.DialTimeout("tcp", to.String(), 100*time.Millisecond)
		if err != nil {
			return to
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the backlog takes no end of connections")
	return to
}

// hold keeps a connection open until the checker closes it.
func hold(c *net.TCPConn) { io.Copy(io.Discard, c) } //nolint:errcheck // a reset is an end too

// reset closes by reset, and what was sent before is sent first.
func reset(c *net.TCPConn) {
	c.SetLinger(0) //nolint:errcheck // the case will show it
	c.Close()
}

// halfClose ends what the peer says, and not what the checker may.
func halfClose(c *net.TCPConn) {
	c.CloseWrite() //nolint:errcheck // the case will show it
	hold(c)
}

func say(c *net.TCPConn, text string) {
	io.WriteString(c, text) //nolint:errcheck // the checker may have seen enough
}

// request reads a request to its end, so that the close is no reset.
func request(c *net.TCPConn) {
	var got []byte
	buf := make([]byte, 512)
	for !bytes.HasSuffix(got, []byte("\r\n\r\n")) {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		got = append(got, buf[:n]...)
	}
}

// answers sends a text after the request and goes on with then.
func answers(text string, then func(*net.TCPConn)) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		request(c)
		say(c, text)
		then(c)
	}
}

func end(*net.TCPConn) {}

// pieces sends an answer cut in pieces of a few bytes, each in a segment of its own
// as far as the kernel lets it.
func pieces(text string, size int, then func(*net.TCPConn)) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		request(c)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for rest := text; len(rest) > 0; <-tick.C {
			n := min(size, len(rest))
			if _, err := io.WriteString(c, rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
		then(c)
	}
}

// dribbles sends a text and then no end of single bytes, each well before anybody
// would think that nothing comes.
func dribbles(text string) func(*net.TCPConn) {
	return answers(text, func(c *net.TCPConn) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := io.WriteString(c, "x"); err != nil {
				return
			}
			<-tick.C
		}
	})
}

// floods sends a text and then the same piece until size bytes are out or the
// checker has had enough.
func floods(text, piece string, size int) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		request(c)
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
		block := []byte(strings.Repeat(piece, 64<<10/len(piece)))
		for sent := 0; sent < size; sent += len(block) {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	}
}

// inTurn answers the nth connection with the nth text, and begins anew after the
// last.
func inTurn(texts ...string) func(*net.TCPConn) {
	turn := make(chan int, 1)
	turn <- 0
	return func(c *net.TCPConn) {
		n := <-turn
		turn <- (n + 1) % len(texts)
		answers(texts[n], end)(c)
	}
}
