package e2e

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// guest says whether the kernel is a virtual machine's that runs this test alone, and
// may be slow.
func guest() bool { return os.Getenv("SLUICE_GUEST") == "1" }

// crowd are servers on many ports of one namespace, which notes when each was asked.
type crowd struct {
	t     *testing.T
	ns    *testkit.NS
	first int
	done  sync.WaitGroup

	mu      sync.Mutex
	members []net.Listener // nil while it refuses
	asked   [][]time.Time  // with the monotonic clock's reading
}

func newCrowd(t *testing.T, ns *testkit.NS, first, n int) *crowd {
	t.Helper()
	c := &crowd{t: t, ns: ns, first: first, members: make([]net.Listener, n), asked: make([][]time.Time, n)}
	t.Cleanup(func() {
		c.refuse(0, n)
		c.done.Wait()
	})
	c.listen(0, n)
	return c
}

// listen has members from..to-1 answer.
func (c *crowd) listen(from, to int) {
	c.t.Helper()
	for i := from; i < to; i++ {
		l, err := c.ns.Listen("tcp", fmt.Sprintf(":%d", c.first+i))
		if err != nil {
			c.t.Fatal(err)
		}
		c.mu.Lock()
		c.members[i] = l
		c.mu.Unlock()
		c.done.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				now := time.Now()
				conn.Close()
				c.mu.Lock()
				c.asked[i] = append(c.asked[i], now)
				c.mu.Unlock()
			}
		})
	}
}

// refuse has members from..to-1 refuse.
func (c *crowd) refuse(from, to int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := from; i < to; i++ {
		if c.members[i] != nil {
			c.members[i].Close()
			c.members[i] = nil
		}
	}
}

// between are how often each member was asked in a window.
func (c *crowd) between(begin, end time.Time) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := make([]int, len(c.asked))
	for i, times := range c.asked {
		for _, t := range times {
			if !t.Before(begin) && t.Before(end) {
				counts[i]++
			}
		}
	}
	return counts
}

// late is how much longer than every the longest pause was between two checks of a
// member from the given one on, since begin.
func (c *crowd) late(from int, begin time.Time, every time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := every
	for _, times := range c.asked[from:] {
		for i := 1; i < len(times); i++ {
			if times[i].After(begin) {
				longest = max(longest, times[i].Sub(times[i-1]))
			}
		}
		if n := len(times); n > 0 {
			longest = max(longest, time.Since(times[n-1]))
		}
	}
	return longest - every
}

// pool is a virtual server on a port of the VIP, with all members on the first
// backend's address. extra goes into the virtual server.
func (c *crowd) pool(port int, extra string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "virtual_server VIP %d {\n delay_loop 1\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n warmup 1\n %s\n", port, extra)
	for i := range c.members {
		fmt.Fprintf(&s, " real_server RS1 %d {\n  TCP_CHECK {\n   connect_timeout 10\n   retry 0\n  }\n }\n", c.first+i)
	}
	return s.String() + "}\n"
}

// spread is the least and the most of some counts.
func spread(counts []int) (least, most int) { return slices.Min(counts), slices.Max(counts) }
