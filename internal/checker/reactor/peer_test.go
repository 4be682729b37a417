package reactor

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/checker/tcp"
	"github.com/sluice-lb/sluice/internal/config"
)

// failsOnce is the kernel, where one connect of a used socket fails.
type failsOnce struct {
	*kernel
	fail           bool
	opened, failed int
}

func (f *failsOnce) open(a *dial.Address, c *config.Connection) (int, error) {
	f.opened++
	return f.kernel.open(a, c)
}

func (f *failsOnce) connect(fd int, a *dial.Address) syscall.Errno {
	if f.fail {
		f.fail = false
		f.failed++
		return unix.EINVAL
	}
	return f.kernel.connect(fd, a)
}

// talk sends something and wants so many octets back.
type talk struct {
	conn config.Connection
	send []byte
	want int

	got  bytes.Buffer
	n    int
	step checker.Step
	err  error
}

func (k *talk) Run(context.Context) checker.Outcome { panic("run on a goroutine") }

func (k *talk) Begin() *config.Connection {
	k.got.Reset()
	k.n, k.err = 0, nil
	return &k.conn
}
func (k *talk) Connected() ([]byte, bool) { return k.send, true }
func (k *talk) Received(p []byte) bool {
	if k.n += len(p); k.got.Len() < 1<<10 {
		k.got.Write(p)
	}
	return k.n >= k.want
}
func (k *talk) Ended(s checker.Step, err error) { k.step, k.err = s, err }
func (k *talk) Next() (*config.Connection, checker.Outcome) {
	if k.err != nil {
		return nil, checker.Outcome{Result: dial.Classify(k.err), Reason: k.err.Error()}
	}
	return nil, checker.Outcome{Result: checker.OK}
}

func TestHostilePeers(t *testing.T) {
	big := make([]byte, 8<<20)
	read := func(c *net.TCPConn) { io.ReadFull(c, make([]byte, 2)) }
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	tests := map[string]struct {
		serve func(*net.TCPConn)
		send  []byte
		want  int
		// The conversation's end: nil for well.
		step checker.Step
		err  error
		got  string
	}{
		"answers":            {serve: func(c *net.TCPConn) { read(c); c.Write([]byte("yes")) }, want: 3, got: "yes"},
		"answers unasked":    {serve: func(c *net.TCPConn) { c.Write([]byte("yes")); read(c) }, want: 3, got: "yes"},
		"answers octetwise":  {serve: func(c *net.TCPConn) { read(c); octetwise(c, "a long answer") }, want: 13, got: "a long answer"},
		"says too much":      {serve: func(c *net.TCPConn) { read(c); c.Write(big) }, want: 6 << 20},
		"closes":             {serve: read, want: 1, step: checker.StepReceive, err: io.EOF},
		"answers and closes": {serve: func(c *net.TCPConn) { read(c); c.Write([]byte("no")) }, want: 3, step: checker.StepReceive, err: io.EOF, got: "no"},
		"resets":             {serve: func(c *net.TCPConn) { read(c); c.SetLinger(0) }, want: 1, step: checker.StepReceive, err: syscall.ECONNRESET},
		"closes for writing": {serve: func(c *net.TCPConn) { read(c); c.Write([]byte("half")); c.CloseWrite(); <-hold },
			want: 5, step: checker.StepReceive, err: io.EOF, got: "half"},
		"says nothing":  {serve: func(*net.TCPConn) { <-hold }, want: 1, step: checker.StepReceive, err: os.ErrDeadlineExceeded},
		"reads nothing": {serve: func(*net.TCPConn) { <-hold }, send: big, want: 1, step: checker.StepSend, err: os.ErrDeadlineExceeded},
		"reads all":     {serve: func(c *net.TCPConn) { io.CopyN(io.Discard, c, int64(len(big))); c.Write([]byte("yes")) }, send: big, want: 3, got: "yes"},
		"answers before the end": {serve: func(c *net.TCPConn) { read(c); c.Write([]byte("too big")) },
			send: big, want: 7, got: "too big"},
		"ends before the end": {serve: read, send: big, want: 7, step: checker.StepSend, err: syscall.ECONNRESET},
		"never ends": {serve: func(c *net.TCPConn) {
			for {
				if _, err := c.Write(big); err != nil {
					return
				}
			}
		}, want: 1 << 50, step: checker.StepReceive, err: os.ErrDeadlineExceeded},
	}
	for name, tt := range tests {
		for _, end := range []config.Close{config.CloseNormal, config.CloseFull, config.CloseReset} {
			t.Run(name+"/"+end.String(), func(t *testing.T) {
				var serving sync.WaitGroup
				a := listener(t, "127.0.0.1:0", func(c *net.TCPConn) {
					own := must(c.File())
					c.Close()
					mine := must(net.FileConn(own)).(*net.TCPConn)
					own.Close()
					serving.Go(func() { tt.serve(mine); mine.Close() })
				})
				timeout := 20 * time.Second
				if errors.Is(tt.err, os.ErrDeadlineExceeded) {
					timeout = 100 * time.Millisecond
				}
				send := tt.send
				if send == nil {
					send = []byte("ok")
				}
				k := &talk{conn: config.Connection{Target: a, Timeout: timeout, Close: end}, send: send, want: tt.want}
				o := lead(t, k, timeout)
				if !errors.Is(k.err, tt.err) || k.err != nil && k.step != tt.step {
					t.Errorf("step %d, %v, want step %d, %v", k.step, k.err, tt.step, tt.err)
				}
				if tt.got != "" && k.got.String() != tt.got || tt.err == nil && o.Result != checker.OK {
					t.Errorf("got %q, %+v", k.got.String(), o)
				}
			})
		}
	}
}

func octetwise(c *net.TCPConn, s string) {
	for i := range len(s) {
		c.Write([]byte{s[i]}) // the reader misses it then
	}
}

// A peer that sends without end keeps no other task from its turn.
func TestFloodKeepsNobodyWaiting(t *testing.T) {
	chunk := make([]byte, 1<<20)
	flood := listener(t, "127.0.0.1:0", func(c *net.TCPConn) {
		for {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	})
	a := listener(t, "127.0.0.1:0", func(*net.TCPConn) {})
	n := 0
	err := loop(t, func(l *Loop, stop func()) {
		l.Add(checker.Task{ID: 1, Timeout: time.Minute, Probe: &talk{conn: config.Connection{Target: flood}, want: 1 << 60}, Judge: func(o checker.Outcome) time.Duration {
			t.Errorf("the flood ended: %+v", o)
			return time.Hour
		}})
		l.Add(checker.Task{ID: 2, Probe: tcp.New(&config.Checker{Conn: config.Connection{Target: a, Timeout: 5 * time.Second}}), Judge: func(o checker.Outcome) time.Duration {
			if n++; n == 50 || o.Result != checker.OK {
				stop()
			}
			return 0
		}})
	})
	if err != nil || n != 50 {
		t.Errorf("%v, %d runs", err, n)
	}
}

// openFiles counts the process's descriptors.
func openFiles(t testing.TB) int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(d)
}

// Descriptors come back: after each run, from the pools, and at the end.
func TestDescriptorsReturn(t *testing.T) {
	port := backend(t)
	gone := closed(t, "127.0.0.1:0").Port()
	for _, end := range []config.Close{config.CloseNormal, config.CloseFull, config.CloseReset} {
		before := openFiles(t)
		l := New(Options{})
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		const n = 200
		var left atomic.Int64
		left.Store(6000)
		// over: none of them runs any more.
		var over sync.WaitGroup
		over.Add(n)
		for i := range n {
			a, want := netip.AddrPortFrom(loopback(i), port), checker.OK
			if i%4 == 0 {
				a, want = netip.AddrPortFrom(a.Addr(), gone), checker.Failed
			}
			l.Add(checker.Task{ID: checker.ID(i), Probe: tcp.New(&config.Checker{Conn: config.Connection{Target: a, Timeout: 5 * time.Second, Close: end}}),
				Judge: func(o checker.Outcome) time.Duration {
					if o.Result != want { // a used socket tells no tale of its last connection
						t.Errorf("%v, %v: %+v", a, end, o)
					}
					if left.Add(-1) <= 0 {
						over.Done()
						return time.Hour
					}
					return 0
				}})
		}
		over.Wait()
		if now := openFiles(t); now > before+2+kept+2 {
			t.Errorf("%v: %d descriptors while nothing runs, %d before", end, now, before)
		}
		for i := range n {
			l.Remove(checker.ID(i))
		}
		probe := make(chan struct{})
		l.Add(checker.Task{ID: n, Probe: tcp.New(&config.Checker{Conn: config.Connection{Target: netip.AddrPortFrom(loopback(1), port), Timeout: 5 * time.Second}}),
			Judge: func(checker.Outcome) time.Duration { close(probe); return time.Hour }})
		<-probe // so the removals are done
		l.Remove(n)
		if now := openFiles(t); now > before+2+2 {
			t.Errorf("%v: %d descriptors without tasks, %d before", end, now, before)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if now := openFiles(t); now > before+1 { // the backend may hold one
			t.Errorf("%v: %d descriptors at the end, %d before", end, now, before)
		}
		if s := l.Stats(); s.Runs < 6000 || s.Running != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// Commands from all sides, for the race detector.
func TestCommandsFromManyGoroutines(t *testing.T) {
	port := backend(t)
	l := New(Options{Limit: 64})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	var judged atomic.Int64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for i := range 300 {
				id := checker.ID(g<<20 + i)
				task := checker.Task{ID: id, Probe: tcp.New(&config.Checker{Conn: config.Connection{
					Target: netip.AddrPortFrom(loopback(i), port), Timeout: 5 * time.Second, Close: config.Close(r.IntN(2)),
				}})}
				ran := make(chan struct{}, 1)
				task.Judge = func(checker.Outcome) time.Duration {
					judged.Add(1)
					select {
					case ran <- struct{}{}:
					default:
					}
					return time.Duration(i%2) * time.Millisecond
				}
				l.Add(task)
				l.RunNow(id)
				if i%7 != 0 { // the others may be removed in the middle of a run
					<-ran
				}
				if i%3 == 0 {
					l.Update(task)
				}
				l.Overdue()
				l.Stats()
				l.Remove(id)
			}
		})
	}
	wg.Wait()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := l.Stats(); s.Tasks != 0 || judged.Load() < 1000 {
		t.Errorf("%+v, %d judged", s, judged.Load())
	}
}

func TestRunTwiceIsAnError(t *testing.T) {
	l := New(Options{})
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := l.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := l.Run(ctx); err == nil {
		t.Error("no error")
	}
	// Commands after the end are nothing.
	l.Add(checker.Task{ID: 1, Probe: to(1, 0), Judge: func(checker.Outcome) time.Duration { return 0 }})
	l.Remove(1)
	if d := l.Overdue(); d != 0 {
		t.Error(d)
	}
}
