package reactor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/checkertest"
	"github.com/sluice-lb/sluice/internal/checker/http"
	"github.com/sluice-lb/sluice/internal/checker/tcp"
	"github.com/sluice-lb/sluice/internal/config"
)

// TestCheckCases: what the goroutine's driver is held to, hostile peers included, on
// one loop that leads all cases at the same time, however connections end.
func TestCheckCases(t *testing.T) {
	for _, end := range []config.Close{config.CloseNormal, config.CloseFull, config.CloseReset} {
		t.Run(end.String(), func(t *testing.T) {
			l := New(Options{})
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error)
			go func() { done <- l.Run(ctx) }()
			defer func() {
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			var ids atomic.Uint64
			lead := func(c checker.Conversation) checker.Outcome {
				id, got := checker.ID(ids.Add(1)), make(chan checker.Outcome, 1)
				l.Add(checker.Task{ID: id, Probe: c, Timeout: 20 * time.Second, Judge: func(o checker.Outcome) time.Duration {
					got <- o
					return time.Hour
				}})
				o := <-got
				l.Remove(id)
				return o
			}
			ended := func(cases []checkertest.Case) []checkertest.Case {
				for i := range cases {
					cases[i].Checker.Conn.Close = end
				}
				return cases
			}
			checkertest.Run(t, ended(checkertest.TCP()), func(c *config.Checker) (checker.Probe, error) { return tcp.New(c), nil }, lead)
			checkertest.Run(t, ended(checkertest.HTTP()), func(c *config.Checker) (checker.Probe, error) { return http.New(c, nil) }, lead)
		})
	}
}

// TestHandshakePacketIsSpared counts the segments of a check, those of both sides, in a
// network of its own: SYN, SYN and ACK, FIN, FIN, ACK, and in the full one an ACK more.
func TestHandshakePacketIsSpared(t *testing.T) {
	segments := func(end config.Close) (each float64) {
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // for good: the thread ends with the goroutine
			done <- func() error {
				if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
					return err
				}
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				lo, _ := unix.NewIfreq("lo")
				lo.SetUint16(unix.IFF_UP)
				if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
					return err
				}
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				defer l.Close()
				accepted := make(chan error)
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							close(accepted)
							return
						}
						b := make([]byte, 1)
						_, err = c.Read(b) // until the FIN
						c.Close()
						accepted <- err
					}
				}()
				c := &config.Checker{Conn: config.Connection{Target: netip.MustParseAddrPort(l.Addr().String()), Timeout: 5 * time.Second, Close: end}}
				const n = 50
				before, err := sent()
				if err != nil {
					return err
				}
				for range n {
					// The loop has its socket made by this very thread.
					if o := lead(t, tcp.New(c), 5*time.Second); o.Result != checker.OK {
						return fmt.Errorf("%v: %s", o.Result, o.Reason)
					}
					if err := <-accepted; err == nil || err.Error() != "EOF" {
						return fmt.Errorf("the peer read %v", err)
					}
				}
				after, err := sent()
				each = float64(after-before) / n
				return err
			}()
		}()
		if err := <-done; err != nil {
			t.Fatalf("%v: %v", end, err)
		}
		return each
	}
	spared, full := segments(config.CloseNormal), segments(config.CloseFull)
	if full-spared < 0.8 || full-spared > 1.2 {
		t.Errorf("a check takes %.2f segments, with a full handshake %.2f: want one more", spared, full)
	}
	t.Logf("%.2f segments, %.2f with a full handshake", spared, full)
}

// sent is how many TCP segments this thread's network has sent.
func sent() (n int, err error) {
	b, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, err
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if words[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i, name := range names {
			if name == "OutSegs" {
				_, err = fmt.Sscan(words[i], &n)
			}
		}
	}
	return n, err
}
