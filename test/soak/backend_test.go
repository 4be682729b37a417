package soak

import (
	"bufio"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// flipper is a web server on every address of this host that answers each of them in
// turn with 200 and with 503, as long as flips is set; else always with 200.
type flipper struct {
	port  int
	flips atomic.Bool
	asked atomic.Int64
	turns [1 << 16]atomic.Uint32 // by the last two octets of the address asked
}

func newFlipper(t *testing.T) *flipper {
	t.Helper()
	l, err := net.Listen("tcp4", ":0")
	if err != nil {
		t.Fatal(err)
	}
	f := &flipper{port: l.Addr().(*net.TCPAddr).Port}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.answer(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return f
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 512) }}

func (f *flipper) answer(c net.Conn) {
	defer c.Close()
	r := readers.Get().(*bufio.Reader)
	defer readers.Put(r)
	r.Reset(c)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		if len(line) <= 2 {
			break
		}
	}
	f.asked.Add(1)
	ip := c.LocalAddr().(*net.TCPAddr).IP.To4()
	status := "200 OK"
	if f.flips.Load() && f.turns[int(ip[2])<<8|int(ip[3])].Add(1)%2 == 0 {
		status = "503 Down"
	}
	_, _ = io.WriteString(c, "HTTP/1.0 "+status+"\r\nContent-Length: 0\r\n\r\n")
}
