package reactor

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/checker/tcp"
	"github.com/sluice-lb/sluice/internal/config"
)

// lead has a loop lead a conversation once.
func lead(t testing.TB, p checker.Probe, timeout time.Duration) checker.Outcome {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	l := New(Options{})
	var got checker.Outcome
	l.Add(checker.Task{ID: 1, Probe: p, Timeout: timeout, Judge: func(o checker.Outcome) time.Duration {
		got = o
		stop()
		return time.Hour
	}})
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return got
}

// goroutine runs a probe once as a Scheduler does.
func goroutine(t testing.TB, p checker.Probe, timeout time.Duration) checker.Outcome {
	ctx, stop := context.WithTimeout(context.Background(), timeout)
	defer stop()
	return p.Run(ctx)
}

type driver func(testing.TB, checker.Probe, time.Duration) checker.Outcome

var drivers = map[string]driver{"reactor": lead, "goroutine": goroutine}

// strained is a probe on a machine where something is amiss while it runs.
type strained struct {
	checker.Conversation
	before, after func()
}

func (s strained) Run(ctx context.Context) checker.Outcome {
	s.before()
	defer s.after()
	return s.Conversation.Run(ctx)
}

func (s strained) Begin() *config.Connection {
	s.before()
	return s.Conversation.Begin()
}

func (s strained) Next() (*config.Connection, checker.Outcome) {
	s.after()
	return s.Conversation.Next()
}

// noDescriptors leaves the process without a free descriptor.
func noDescriptors(t testing.TB, p checker.Probe) checker.Probe {
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	return strained{p.(checker.Conversation),
		func() { syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: was.Max}) }, // the test fails then
		func() { syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was) },
	}
}

// elsewhere runs the drivers where there is no network.
func elsewhere(d driver) driver {
	return func(t testing.TB, p checker.Probe, timeout time.Duration) (o checker.Outcome) {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // for good: the thread ends with the goroutine
			err := unix.Unshare(unix.CLONE_NEWNET)
			if err == nil {
				o = d(t, p, timeout)
			}
			done <- err
		}()
		if err := <-done; err != nil {
			t.Skipf("network namespace: %v", err)
		}
		return o
	}
}

func listener(t testing.TB, addr string, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("listen on %s: %v", addr, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c.(*net.TCPConn))
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return netip.MustParseAddrPort(l.Addr().String())
}

// closed is an address where nobody listens.
func closed(t testing.TB, addr string) netip.AddrPort {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("listen on %s: %v", addr, err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

// deaf is an address that answers no SYN: the queue of its listener is full.
func deaf(t testing.TB) netip.AddrPort {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(own.(*unix.SockaddrInet4).Port))
	for range 4 {
		c, err := net.DialTimeout("tcp", a.String(), 50*time.Millisecond)
		if err != nil {
			return a
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Skip("the listener's queue does not fill")
	return a
}

// Both drivers come to the same result, and say the same of it.
func TestBothDriversSayTheSame(t *testing.T) {
	nothing := func(*net.TCPConn) {}
	missing := netip.MustParseAddr("192.0.2.77")
	tests := []struct {
		name   string
		conn   func(testing.TB) config.Connection
		amiss  func(testing.TB, checker.Probe) checker.Probe
		where  func(driver) driver
		want   checker.Result
		reason string // what it contains
	}{
		{name: "IPv4", conn: func(t testing.TB) config.Connection {
			return config.Connection{Target: listener(t, "127.0.0.1:0", nothing)}
		}, reason: "connected"},
		{name: "IPv6", conn: func(t testing.TB) config.Connection {
			return config.Connection{Target: listener(t, "[::1]:0", nothing)}
		}, reason: "connected"},
		{name: "IPv4 mapped", conn: func(t testing.TB) config.Connection {
			a := listener(t, "127.0.0.1:0", nothing)
			return config.Connection{Target: netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())}
		}, reason: "connected"},
		{name: "everything set", conn: func(t testing.TB) config.Connection {
			return config.Connection{Target: listener(t, "127.0.0.1:0", nothing), BindAddr: netip.MustParseAddr("127.0.0.9"),
				BindPort: closed(t, "127.0.0.9:0").Port(), BindIf: "lo"}
		}, reason: "connected"},
		{name: "garbage", conn: func(t testing.TB) config.Connection {
			return config.Connection{Target: listener(t, "127.0.0.1:0", func(c *net.TCPConn) { c.Write([]byte("\x00garbage")) })}
		}, reason: "connected"},
		{name: "refused", conn: func(t testing.TB) config.Connection { return config.Connection{Target: closed(t, "127.0.0.1:0")} },
			want: checker.Failed, reason: "connection refused (ECONNREFUSED)"},
		{name: "refused by IPv6", conn: func(t testing.TB) config.Connection { return config.Connection{Target: closed(t, "[::1]:0")} },
			want: checker.Failed, reason: "connection refused (ECONNREFUSED)"},
		{name: "no answer", conn: func(t testing.TB) config.Connection {
			return config.Connection{Target: deaf(t), Timeout: 30 * time.Millisecond}
		}, want: checker.Failed, reason: "no answer in time"},
		{name: "broadcast", conn: func(testing.TB) config.Connection {
			return config.Connection{Target: netip.MustParseAddrPort("255.255.255.255:80")}
		}, want: checker.Failed, reason: "(ENETUNREACH)"},
		{name: "no network", conn: func(testing.TB) config.Connection {
			return config.Connection{Target: netip.MustParseAddrPort("10.0.0.1:80")}
		}, where: elsewhere, want: checker.Failed, reason: "network is unreachable (ENETUNREACH)"},
		{name: "source address missing", conn: func(t testing.TB) config.Connection {
			return config.Connection{Target: closed(t, "127.0.0.1:0"), BindAddr: missing}
		}, want: checker.Unable, reason: "source address 192.0.2.77 is not on this machine"},
		{name: "interface missing", conn: func(t testing.TB) config.Connection {
			return config.Connection{Target: closed(t, "127.0.0.1:0"), BindIf: "nosuch0"}
		}, want: checker.Unable, reason: "interface nosuch0 cannot be used: no such device (ENODEV)"},
		{name: "zone missing", conn: func(testing.TB) config.Connection {
			return config.Connection{Target: netip.MustParseAddrPort("[fe80::1%nosuch0]:80")}
		}, want: checker.Unable, reason: "no socket: no such device (ENODEV)"},
		{name: "source port in use", conn: func(t testing.TB) config.Connection {
			own := listener(t, "127.0.0.1:0", nothing)
			return config.Connection{Target: closed(t, "127.0.0.1:0"), BindAddr: own.Addr(), BindPort: own.Port()}
		}, want: checker.Unable, reason: "cannot be used: address already in use (EADDRINUSE)"},
		{name: "joined to itself", conn: func(t testing.TB) config.Connection {
			a := closed(t, "127.0.0.1:0")
			return config.Connection{Target: a, BindAddr: a.Addr(), BindPort: a.Port()}
		}, want: checker.Failed, reason: "connection refused (ECONNREFUSED)"},
		{name: "joined to itself by IPv6", conn: func(t testing.TB) config.Connection {
			a := closed(t, "[::1]:0")
			return config.Connection{Target: a, BindAddr: a.Addr(), BindPort: a.Port()}
		}, want: checker.Failed, reason: "connection refused (ECONNREFUSED)"},
		{name: "no descriptor", conn: func(t testing.TB) config.Connection { return config.Connection{Target: closed(t, "127.0.0.1:0")} },
			amiss: noDescriptors, want: checker.Unable, reason: "no socket: too many open files (EMFILE)"},
	}
	for _, tt := range tests {
		for _, end := range []config.Close{config.CloseNormal, config.CloseFull, config.CloseReset} {
			t.Run(tt.name+"/"+end.String(), func(t *testing.T) {
				c := tt.conn(t)
				c.Close = end
				if c.Timeout == 0 {
					c.Timeout = 5 * time.Second
				}
				said := map[string]bool{}
				for name, d := range drivers {
					if tt.where != nil {
						d = tt.where(d)
					}
					p := tcp.New(&config.Checker{Kind: config.TCPCheck, Conn: c})
					if tt.amiss != nil {
						p = tt.amiss(t, p)
					}
					o := d(t, p, 10*time.Second)
					reason, _, _ := strings.Cut(o.Reason, " after ")
					said[reason] = true
					if o.Result != tt.want || !strings.Contains(reason, tt.reason) || o.Took <= 0 {
						t.Errorf("%s: %v, %q, took %v", name, o.Result, o.Reason, o.Took)
					}
				}
				if len(said) != 1 {
					t.Errorf("they differ: %v", said)
				}
			})
		}
	}
}

// What the peer sees of the end.
func TestEndIsAsConfigured(t *testing.T) {
	for end, want := range map[config.Close]error{config.CloseNormal: nil, config.CloseFull: nil, config.CloseReset: syscall.ECONNRESET} {
		for name, d := range drivers {
			saw := make(chan error, 1)
			a := listener(t, "127.0.0.1:0", func(c *net.TCPConn) {
				_, err := io.ReadAll(c)
				saw <- err
			})
			p := tcp.New(&config.Checker{Kind: config.TCPCheck, Conn: config.Connection{Target: a, Timeout: 5 * time.Second, Close: end}})
			if o := d(t, p, 5*time.Second); o.Result != checker.OK {
				t.Fatalf("%s: %+v", name, o)
			}
			if err := <-saw; !errors.Is(err, want) {
				t.Errorf("%s, %v: the peer saw %v, want %v", name, end, err, want)
			}
		}
	}
}

// A fixed source port can be used again at once, run after run.
func TestSourcePortIsFreeForTheNextRun(t *testing.T) {
	for _, end := range []config.Close{config.CloseNormal, config.CloseFull, config.CloseReset} {
		c := config.Connection{Target: listener(t, "127.0.0.1:0", func(*net.TCPConn) {}), BindAddr: netip.MustParseAddr("127.0.0.9"), Timeout: 5 * time.Second, Close: end}
		c.BindPort = closed(t, "127.0.0.9:0").Port()
		n := 0
		err := loop(t, func(l *Loop, stop func()) {
			l.Add(checker.Task{ID: 1, Probe: tcp.New(&config.Checker{Conn: c}), Judge: func(o checker.Outcome) time.Duration {
				if n++; n == 20 || o.Result != checker.OK {
					stop()
				}
				if o.Result != checker.OK {
					t.Error(o.Reason)
				}
				return 0
			}})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// loop runs a Loop until it is told to stop.
func loop(t testing.TB, fill func(l *Loop, stop func())) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	l := New(Options{})
	fill(l, stop)
	return l.Run(ctx)
}

// A used socket whose source address has gone finds the same reason as a new one.
func TestUsedSocketIsReplacedWhenItCannotConnect(t *testing.T) {
	a := listener(t, "127.0.0.1:0", func(*net.TCPConn) {})
	s := &failsOnce{kernel: must(newKernel())}
	l := newLoop(Options{}, s)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	n := 0
	l.Add(checker.Task{ID: 1, Probe: tcp.New(&config.Checker{Conn: config.Connection{Target: a, Timeout: 5 * time.Second, Close: config.CloseReset}}),
		Judge: func(o checker.Outcome) time.Duration {
			if o.Result != checker.OK {
				t.Error(o.Reason)
			}
			if n++; n == 3 {
				stop()
			}
			s.fail = n == 2
			return 0
		}})
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if s.opened != 2 || s.failed != 1 {
		t.Errorf("%d sockets made, %d connects failed", s.opened, s.failed)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// refusing is a conversation that has nothing to ask.
type refusing struct{ checker.Conversation }

func (r refusing) Run(ctx context.Context) checker.Outcome { return dial.Converse(ctx, r, nil) }

func (refusing) Begin() *config.Connection { return nil }

func (refusing) Next() (*config.Connection, checker.Outcome) {
	return nil, checker.Outcome{Result: checker.Unable, Reason: "no way"}
}

func TestNothingToConnectTo(t *testing.T) {
	for name, drive := range drivers {
		if o := drive(t, refusing{}, time.Second); o.Result != checker.Unable || o.Reason != "no way" || o.Took <= 0 {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
