package reactor

import (
	"container/heap"
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// sim is a system in which time passes only while the loop waits, and for what its
// system calls cost. It runs on the loop's goroutine alone.
type sim struct {
	t     testing.TB
	clock int64
	// cost is what a connect takes.
	cost int64
	// peer says how soon a connection to an address stands, and the error it gets
	// then; a negative delay is never.
	peer func(to *dial.Address) (time.Duration, syscall.Errno)
	// opening is asked before a socket is made.
	opening func() error

	next    int
	sockets map[int]*socket
	plan    plan
	seq     int
	happen  []unix.EpollEvent
	waits   int
}

type socket struct {
	tag       tag
	watched   bool
	connected bool
	// generation is that of the connection.
	generation int
	errno      syscall.Errno
	inbox      []byte
}

// event is something planned.
type event struct {
	at, seq int64
	do      func()
}

type plan []event

func (p plan) Len() int { return len(p) }
func (p plan) Less(i, j int) bool {
	return p[i].at < p[j].at || p[i].at == p[j].at && p[i].seq < p[j].seq
}
func (p plan) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *plan) Push(x any)   { *p = append(*p, x.(event)) }
func (p *plan) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	*p = (*p)[:last]
	return x
}

// at has something happen at a time.
func (s *sim) at(at int64, do func()) {
	s.seq++
	heap.Push(&s.plan, event{at, int64(s.seq), do})
}

func (s *sim) now() int64 { return s.clock }

func (s *sim) open(_ *dial.Address, c *config.Connection) (int, error) {
	if s.opening != nil {
		if err := s.opening(); err != nil {
			return -1, dial.Fail(c, "socket", "", false, err)
		}
	}
	s.next++
	s.sockets[s.next] = &socket{}
	return s.next, nil
}

func (s *sim) report(k *socket, what uint32) {
	if k.watched {
		s.happen = append(s.happen, unix.EpollEvent{Events: what, Fd: int32(k.tag.index), Pad: int32(k.tag.generation)})
	}
}

func (s *sim) connect(fd int, a *dial.Address) syscall.Errno {
	s.clock += s.cost
	k := s.sockets[fd]
	delay, errno := s.peer(a)
	k.generation++
	mine := k.generation
	if delay >= 0 {
		s.at(s.clock+int64(delay), func() {
			if s.sockets[fd] != k || k.generation != mine {
				return
			}
			if k.errno = errno; errno != 0 {
				s.report(k, unix.EPOLLERR|unix.EPOLLHUP|unix.EPOLLOUT)
				return
			}
			k.connected = true
			s.report(k, unix.EPOLLOUT)
		})
	}
	return unix.EINPROGRESS
}

func (s *sim) watch(fd int, t tag) syscall.Errno {
	s.sockets[fd].tag, s.sockets[fd].watched = t, true
	return 0
}

func (s *sim) dissolve(fd int) syscall.Errno {
	k := s.sockets[fd]
	k.connected = false
	k.generation++
	s.report(k, unix.EPOLLOUT|unix.EPOLLHUP) // as the kernel does
	return 0
}

func (s *sim) close(fd int, _ bool) {
	if s.sockets[fd] == nil {
		s.t.Errorf("socket %d closed twice", fd)
	}
	delete(s.sockets, fd)
}

func (s *sim) fault(fd int) syscall.Errno {
	k := s.sockets[fd]
	defer func() { k.errno = 0 }()
	return k.errno
}

func (s *sim) peered(fd int) bool                        { return s.sockets[fd].connected }
func (s *sim) self(int, *dial.Address) bool              { return false }
func (s *sim) wake()                                     {}
func (s *sim) end()                                      {}
func (s *sim) send(_ int, p []byte) (int, syscall.Errno) { return len(p), 0 }

func (s *sim) receive(fd int, p []byte) (int, syscall.Errno) {
	k := s.sockets[fd]
	if len(k.inbox) == 0 {
		return -1, unix.EAGAIN
	}
	n := copy(p, k.inbox)
	k.inbox = k.inbox[n:]
	return n, 0
}

func (s *sim) wait(events []unix.EpollEvent, pause int64) int {
	s.waits++
	s.due()
	if len(s.happen) == 0 && pause != 0 {
		// What is planned next may be nothing to the loop, or may wake it.
		if len(s.plan) == 0 && pause < 0 {
			s.t.Fatal("waits for ever, and nothing will happen")
		}
		if pause > 0 {
			s.clock += pause
		}
		if len(s.plan) > 0 && (pause < 0 || s.plan[0].at < s.clock) {
			s.clock = s.plan[0].at
		}
		s.due()
	}
	n := copy(events, s.happen)
	s.happen = append(s.happen[:0], s.happen[n:]...)
	return n
}

func (s *sim) due() {
	for len(s.plan) > 0 && s.plan[0].at <= s.clock {
		heap.Pop(&s.plan).(event).do()
	}
}

// world is a loop in a simulation, with a log of what was judged.
type world struct {
	*Loop
	*sim
	log []string
}

// newWorld makes one; see simulate.
func newWorld(t testing.TB, o Options) *world {
	s := &sim{t: t, sockets: map[int]*socket{}}
	s.peer = func(*dial.Address) (time.Duration, syscall.Errno) { return 0, 0 }
	return &world{Loop: newLoop(o, s), sim: s}
}

// simulate runs the loop for d of its time.
func (w *world) simulate(d time.Duration) {
	w.sim.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w.in(d, stop)
	if err := w.Run(ctx); err != nil {
		w.sim.t.Fatal(err)
	}
	if n := len(w.sockets); n != 0 {
		w.sim.t.Errorf("%d sockets are left open", n)
	}
}

// in has something happen that long after the start. The loop is awake then.
func (w *world) in(d time.Duration, do func()) { w.at(int64(d), do) }

func (w *world) note(s string) {
	w.log = append(w.log, fmt.Sprintf("%v %s", time.Duration(w.clock), s))
}

func (w *world) judge(name string, delay time.Duration) checker.Judge {
	return func(o checker.Outcome) time.Duration {
		w.note(name + " " + o.Result.String())
		return delay
	}
}

func (w *world) want(want ...string) {
	w.sim.t.Helper()
	if d := cmp.Diff(want, w.log); d != "" {
		w.sim.t.Errorf("judged (-want +got):\n%s", d)
	}
}

// script is a conversation of one or more connections.
type script struct {
	conns []*config.Connection
	// begun is told of each start.
	begun func()
	at    int
	err   error
}

// to makes a script of one connection.
func to(i int, timeout time.Duration) *script {
	return &script{conns: []*config.Connection{target(i, timeout)}}
}

func target(i int, timeout time.Duration) *config.Connection {
	return &config.Connection{Target: netip.AddrPortFrom(loopback(i), 80), Timeout: timeout}
}

func (s *script) Run(context.Context) checker.Outcome { panic("run on a goroutine") }

func (s *script) Begin() *config.Connection {
	s.at, s.err = 0, nil
	if s.begun != nil {
		s.begun()
	}
	return s.conns[0]
}

func (s *script) Connected() ([]byte, bool)     { return nil, false }
func (s *script) Received([]byte) bool          { return true }
func (s *script) Ended(_ checker.Step, e error) { s.err = e }

func (s *script) Next() (*config.Connection, checker.Outcome) {
	if s.err != nil {
		return nil, checker.Outcome{Result: dial.Classify(s.err), Reason: s.err.Error()}
	}
	if s.at++; s.at < len(s.conns) {
		return s.conns[s.at], checker.Outcome{}
	}
	return nil, checker.Outcome{Result: checker.OK}
}
