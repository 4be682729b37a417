package ipvs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// inNewNamespace runs f on a thread whose network namespace is new and whose
// loopback interface is up, if a kernel is asked for.
func inNewNamespace(t *testing.T, f func()) {
	if os.Getenv("SLUICE_KERNEL") != "1" {
		t.Skip("needs root and ip_vs, and makes network namespaces: run it by \"make test-kernel\"")
	}
	_ = exec.Command("modprobe", "ip_vs").Run() // it may be built in
	_ = exec.Command("modprobe", "ip_vs_rr").Run()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and never unlock: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Errorf("ip link set lo up: %v: %s", err, out)
			return
		}
		f()
	}()
	<-ended
}

// meddling is a socket that lets something happen between two pieces of a dump.
type meddling struct {
	socket
	pieces int
	after  func(piece int)
}

func (m *meddling) receive(b []byte, wait bool) (int, error) {
	n, err := m.socket.receive(b, wait)
	if m.pieces++; m.after != nil {
		m.after(m.pieces)
	}
	return n, err
}

// TestKernelTornDump shows what the package comment says of the kernel: a
// deletion between two pieces of a dump hides an entry that was there all the
// time, and nothing in the dump tells. list must find out.
func TestKernelTornDump(t *testing.T) {
	inNewNamespace(t, func() {
		ctx := context.Background()
		other, err := Dial()
		if err != nil {
			t.Error(err)
			return
		}
		defer other.Close()
		const n = 300
		ops := append([]Op{{Kind: OpAddService, Service: testService}}, destOps(n)...)
		for _, err := range other.Batch(ctx, ops) {
			if err != nil {
				t.Error(err)
				return
			}
		}
		s, err := openSocket(options{})
		if err != nil {
			t.Error(err)
			return
		}
		defer s.close()
		m := &meddling{socket: s}
		cl, err := newClient(m, DefaultTimeout)
		if err != nil {
			t.Error(err)
			return
		}

		// The newest destination comes in the first piece: deleting it shifts what
		// comes later by one.
		newest := ops[n]
		deletions := 0
		m.after = func(piece int) {
			if piece == 1 {
				deletions++
				if err := other.DelDest(ctx, newest.Service, newest.Destination); err != nil {
					t.Error(err)
				}
			}
		}
		key := testService.ServiceKey
		var torn []DestinationInfo
		r, err := cl.c.dump(ctx, cmdGetDest,
			func(b []byte) []byte { return appendServiceKey(b, key) },
			func(data []byte) error {
				d, err := decodeDestination(data, INET)
				torn = append(torn, d)
				return err
			})
		if err != nil || deletions != 1 {
			t.Errorf("%v, %d deletions", err, deletions)
			return
		}
		t.Logf("torn dump: %d entries in %d pieces, flagged as interrupted: %v", len(torn), r.pieces, r.interrupted)
		if r.pieces < 2 {
			t.Errorf("the dump came in %d pieces: too few to tear", r.pieces)
		}
		missing := func(got []DestinationInfo, wanted []Op) (out []DestinationKey) {
			for _, op := range wanted {
				if !slices.ContainsFunc(got, func(d DestinationInfo) bool { return d.DestinationKey == op.Destination.DestinationKey }) {
					out = append(out, op.Destination.DestinationKey)
				}
			}
			return out
		}
		// Should a kernel begin to flag it, or to repair it, the second reading of
		// every long list is no longer needed.
		if lost := missing(torn, ops[1:n]); r.interrupted || len(lost) != 1 {
			t.Errorf("flagged %v, missed %v: the kernel has learnt to tell, or dumps otherwise", r.interrupted, lost)
		}

		// The same through list.
		newest = ops[n-1]
		m.pieces = 0
		got, err := cl.Destinations(ctx, key)
		if err != nil || deletions != 2 {
			t.Errorf("%v, %d deletions", err, deletions)
		}
		if lost := missing(got, ops[1:n-1]); len(lost) != 0 || len(got) != n-2 {
			t.Errorf("%d entries, missed %v", len(got), lost)
		}
	})
}

// TestKernelLostAnswers fills a small receive buffer with more errors than it
// holds: what got lost is said to be unknown, and the socket stays in step.
func TestKernelLostAnswers(t *testing.T) {
	inNewNamespace(t, func() {
		ctx := context.Background()
		s, err := openSocket(options{})
		if err != nil {
			t.Error(err)
			return
		}
		defer s.close()
		if err := s.(*netlinkSocket).conn.SetReadBuffer(16 << 10); err != nil {
			t.Error(err)
			return
		}
		cl, err := newClient(s, DefaultTimeout)
		if err != nil {
			t.Error(err)
			return
		}
		if err := cl.AddService(ctx, testService); err != nil {
			t.Error(err)
			return
		}
		op := destOps(1)
		if err := cl.Batch(ctx, op)[0]; err != nil {
			t.Error(err)
			return
		}
		unknown := 0
		for i, err := range cl.Batch(ctx, slices.Repeat(op, 100)) {
			switch {
			case errors.Is(err, ErrUnknownResult):
				unknown++
			case !errors.Is(err, unix.EEXIST):
				t.Errorf("operation %d: %v, want EEXIST or unknown", i, err)
			}
		}
		t.Logf("%d of 100 answers were lost", unknown)
		if unknown == 0 {
			t.Error("no answer was lost: the test proves nothing")
		}
		for i, op := range destOps(5)[1:] {
			if err := cl.Batch(ctx, []Op{op})[0]; err != nil {
				t.Errorf("afterwards, %d: %v", i, err)
			}
		}
		if ds, err := cl.Destinations(ctx, testService.ServiceKey); err != nil || len(ds) != 5 {
			t.Errorf("afterwards: %d destinations, %v", len(ds), err)
		}
	})
}

// TestKernelAbandonedDump: a dump that was given up half-way does not disturb the
// next exchanges.
func TestKernelAbandonedDump(t *testing.T) {
	inNewNamespace(t, func() {
		s, err := openSocket(options{})
		if err != nil {
			t.Error(err)
			return
		}
		defer s.close()
		m := &meddling{socket: s}
		cl, err := newClient(m, DefaultTimeout)
		if err != nil {
			t.Error(err)
			return
		}
		for _, err := range cl.Batch(context.Background(), append([]Op{{Kind: OpAddService, Service: testService}}, destOps(400)...)) {
			if err != nil {
				t.Error(err)
				return
			}
		}
		why := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(context.Background())
		m.pieces = 0
		m.after = func(piece int) {
			if piece == 1 {
				cancel(why)
				// The deadline moves in another goroutine.
				for m.socket.(*netlinkSocket).raw.Read(func(uintptr) bool { return true }) == nil {
					runtime.Gosched()
				}
			}
		}
		if _, err := cl.Destinations(ctx, testService.ServiceKey); !errors.Is(err, why) {
			t.Errorf("got %v, want the cause", err)
		}
		m.after = nil
		if ds, err := cl.Destinations(context.Background(), testService.ServiceKey); err != nil || len(ds) != 400 {
			t.Errorf("afterwards: %d destinations, %v", len(ds), err)
		}
		if _, err := cl.Info(context.Background()); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
