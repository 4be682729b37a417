package ipvs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// scripted is a kernel's end: it answers each send with datagrams ([]byte) and
// receive errors, in order.
type scripted struct {
	answer   func(request []byte) []any
	queue    []any
	sends    int
	sendErr  error
	families []any // answers to family: int or error; the last one stays
	closed   bool

	mu       sync.Mutex // a context that ends moves the deadline
	deadline time.Time
}

func (s *scripted) send(b []byte) error {
	if s.sendErr != nil {
		return s.sendErr
	}
	s.sends++
	s.queue = append(s.queue, s.answer(slices.Clone(b))...)
	return nil
}

func (s *scripted) receive(b []byte, wait bool) (int, error) {
	if len(s.queue) == 0 {
		if wait {
			return 0, fmt.Errorf("recvmsg: %w", os.ErrDeadlineExceeded)
		}
		return 0, errNothing
	}
	next := s.queue[0]
	s.queue = s.queue[1:]
	switch v := next.(type) {
	case []byte:
		if len(v) > len(b) {
			return 0, errTruncated
		}
		return copy(b, v), nil
	case error:
		return 0, v
	case func() error: // something happens before the next datagram
		if err := v(); err != nil {
			return 0, err
		}
		return s.receive(b, wait)
	}
	panic("unknown script")
}

func (s *scripted) setDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	return nil
}

func (s *scripted) close() error { s.closed = true; return nil }

func (s *scripted) family() (uint16, error) {
	if len(s.families) == 0 {
		return 0x1c, nil
	}
	f := s.families[0]
	if len(s.families) > 1 {
		s.families = s.families[1:]
	}
	if err, ok := f.(error); ok {
		return 0, err
	}
	return uint16(f.(int)), nil
}

func scriptedClient(t *testing.T, s *scripted) *Client {
	t.Helper()
	c, err := newClient(s, DefaultTimeout)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// requests splits what was sent.
func requests(b []byte) (hs []header, cmds []uint8) {
	for {
		h, data, rest, ok := nextMessage(b)
		if !ok {
			return hs, cmds
		}
		hs, cmds, b = append(hs, h), append(cmds, data[0]), rest
	}
}

// message makes a datagram of one message.
func message(typ, flags uint16, seq uint32, data []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(headerLen+len(data)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func errorMessage(seq uint32, errno syscall.Errno) []byte {
	data := binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno)))
	return message(msgError, flagCapped, seq, append(data, make([]byte, headerLen)...))
}

func done(seq uint32, flags uint16) []byte { return message(msgDone, 2|flags, seq, make([]byte, 4)) }

func entries(seq uint32, flags uint16, ports ...uint16) []byte {
	var out []byte
	for _, p := range ports {
		d := Destination{DestinationKey: DestinationKey{netip.MustParseAddr("198.51.100.1"), p}}
		out = append(out, message(0x1c, 2|flags, seq, appendDestination([]byte{cmdNewDest, 1, 0, 0}, d, true))...)
	}
	return out
}

func ports(ds []DestinationInfo) []uint16 {
	out := []uint16{}
	for _, d := range ds {
		out = append(out, d.Port)
	}
	return out
}

var testService = Service{ServiceKey: ServiceKey{Family: INET, Protocol: TCP, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80}, Scheduler: "rr"}

func destOps(n int) []Op {
	ops := make([]Op, n)
	for i := range ops {
		ops[i] = Op{Kind: OpAddDest, Service: testService, Destination: Destination{
			DestinationKey: DestinationKey{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80},
		}}
	}
	return ops
}

// acknowledge is what a kernel answers that fails the operations of some indices.
func acknowledge(fail map[int]syscall.Errno) func([]byte) []any {
	base := 0
	return func(b []byte) (out []any) {
		hs, _ := requests(b)
		for i, h := range hs {
			if errno, ok := fail[base+i]; ok {
				out = append(out, errorMessage(h.seq, errno))
			} else if h.flags&flagAck != 0 {
				out = append(out, errorMessage(h.seq, 0))
			}
		}
		base += len(hs)
		return out
	}
}

func TestBatchChunksAndAcknowledgement(t *testing.T) {
	var sizes []int
	seqs := make(map[uint32]bool)
	answer := acknowledge(nil)
	s := &scripted{answer: func(b []byte) []any {
		hs, cmds := requests(b)
		sizes = append(sizes, len(hs))
		for i, h := range hs {
			last := i == len(hs)-1
			if h.typ != 0x1c || h.flags&flagRequest == 0 || (h.flags&flagAck != 0) != last || cmds[i] != cmdNewDest {
				t.Errorf("message %d of %d: %+v, command %d", i, len(hs), h, cmds[i])
			}
			if seqs[h.seq] || h.seq == 0 {
				t.Errorf("sequence number %d again", h.seq)
			}
			seqs[h.seq] = true
		}
		return answer(b)
	}}
	for i, err := range scriptedClient(t, s).Batch(t.Context(), destOps(2*batchSize+44)) {
		if err != nil {
			t.Errorf("operation %d: %v", i, err)
		}
	}
	if !slices.Equal(sizes, []int{batchSize, batchSize, 44}) {
		t.Errorf("sends of %v operations", sizes)
	}
}

func TestBatchErrorsInPlace(t *testing.T) {
	// First, middle and last of a send, the only one of the last send.
	fail := map[int]syscall.Errno{0: syscall.EEXIST, 64: syscall.ESRCH, batchSize - 1: syscall.ERANGE, batchSize: syscall.EEXIST, 2 * batchSize: syscall.EPERM}
	s := &scripted{answer: acknowledge(fail)}
	ops := destOps(2*batchSize + 1)
	for i, err := range scriptedClient(t, s).Batch(t.Context(), ops) {
		want, failed := fail[i]
		if !failed {
			if err != nil {
				t.Errorf("operation %d: %v", i, err)
			}
			continue
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Errno != want || e.Destination != ops[i].Destination.DestinationKey {
			t.Errorf("operation %d: %v, want errno %d and its own destination", i, err, int(want))
		}
	}
}

func TestBatchSkipsWhatCannotBeSent(t *testing.T) {
	ops := destOps(4)
	ops[1].Kind = 0
	ops[3].Destination.Addr = netip.Addr{} // the one that would have been acknowledged
	var sent int
	answer := acknowledge(nil)
	s := &scripted{answer: func(b []byte) []any {
		hs, _ := requests(b)
		sent = len(hs)
		return answer(b)
	}}
	c := scriptedClient(t, s)
	errs := c.Batch(t.Context(), ops)
	if sent != 2 || errs[0] != nil || errs[2] != nil || !errors.Is(errs[1], syscall.EINVAL) || !errors.Is(errs[3], syscall.EINVAL) {
		t.Errorf("%d sent, errors %v", sent, errs)
	}
	if errs := c.Batch(t.Context(), ops[3:]); s.sends != 1 || !errors.Is(errs[0], syscall.EINVAL) {
		t.Errorf("%d sends, errors %v", s.sends, errs)
	}
}

// TestBatchLostAnswers: what is not known is said to be unknown, and only that.
func TestBatchLostAnswers(t *testing.T) {
	firstThen := func(rest ...any) func([]byte) []any {
		return func(b []byte) []any {
			hs, _ := requests(b)
			return append([]any{errorMessage(hs[1].seq, syscall.EEXIST)}, rest...)
		}
	}
	lastAck := func(b []byte) []byte {
		hs, _ := requests(b)
		return errorMessage(hs[len(hs)-1].seq, 0)
	}
	for _, c := range []struct {
		name   string
		answer func([]byte) []any
		// of the first send: the state of operation 0, which has no answer, and
		// of the last
		unknown, lastUnknown bool
		// whether the second send went out
		second bool
	}{
		{"no acknowledgement", firstThen(), true, true, false},
		{"overrun, no acknowledgement", firstThen(errOverrun), true, true, true},
		{"overrun before the acknowledgement", func(b []byte) []any {
			hs, _ := requests(b)
			return []any{errOverrun, errorMessage(hs[1].seq, syscall.EEXIST), lastAck(b)}
		}, true, false, true},
		{"garbage", firstThen([]byte{1, 2, 3, 4, 5}), true, true, true},
		{"cut off before the acknowledgement", func(b []byte) []any {
			hs, _ := requests(b)
			return []any{errorMessage(hs[1].seq, syscall.EEXIST), os.ErrDeadlineExceeded, lastAck(b)}
		}, false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &scripted{}
			s.answer = func(b []byte) []any {
				if s.sends > 1 {
					return acknowledge(nil)(b)
				}
				return c.answer(b)
			}
			errs := scriptedClient(t, s).Batch(t.Context(), destOps(batchSize+1))
			if got := errors.Is(errs[0], ErrUnknownResult); got != c.unknown || !c.unknown && errs[0] != nil {
				t.Errorf("an operation without answer: %v, want unknown %v", errs[0], c.unknown)
			}
			if !errors.Is(errs[1], fs.ErrExist) || errors.Is(errs[1], ErrUnknownResult) {
				t.Errorf("an operation with answer: %v", errs[1])
			}
			if got := errors.Is(errs[batchSize-1], ErrUnknownResult); got != c.lastUnknown {
				t.Errorf("the last operation: %v, want unknown %v", errs[batchSize-1], c.lastUnknown)
			}
			next := errs[batchSize]
			if c.second && next != nil {
				t.Errorf("the next send: %v", next)
			}
			if !c.second && (next == nil || errors.Is(next, ErrUnknownResult) || s.sends != 1) {
				t.Errorf("the next send: %v, want not sent", next)
			}
		})
	}
}

func TestBatchSendFails(t *testing.T) {
	s := &scripted{sendErr: syscall.ENOBUFS}
	for i, err := range scriptedClient(t, s).Batch(t.Context(), destOps(batchSize+1)) {
		if !errors.Is(err, syscall.ENOBUFS) || errors.Is(err, ErrUnknownResult) {
			t.Errorf("operation %d: %v, want the cause and a known result", i, err)
		}
	}
}

// TestLateAnswers: what an exchange left behind is nobody's answer.
func TestLateAnswers(t *testing.T) {
	var first []uint32
	n := 0
	s := &scripted{}
	s.answer = func(b []byte) []any {
		hs, _ := requests(b)
		switch n++; n {
		case 1:
			first = []uint32{hs[0].seq}
			return nil // too late
		case 2:
			// It comes after all, while the next one waits.
			return []any{errorMessage(first[0], syscall.EEXIST), errorMessage(hs[0].seq, syscall.ERANGE)}
		}
		return acknowledge(nil)(b)
	}
	c := scriptedClient(t, s)
	ops := destOps(3)
	if err := c.Batch(t.Context(), ops[:1])[0]; !errors.Is(err, ErrUnknownResult) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("first: %v", err)
	}
	if err := c.Batch(t.Context(), ops[1:2])[0]; !errors.Is(err, syscall.ERANGE) {
		t.Errorf("second: %v, want its own answer", err)
	}
	// It may also be there before the next one is sent.
	c.c.dirty = true
	s.queue = append(s.queue, errorMessage(c.c.seq+1, syscall.EEXIST))
	if err := c.Batch(t.Context(), ops[2:])[0]; err != nil {
		t.Errorf("third: %v, want success", err)
	}
}

func TestCancelledWhileWaiting(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the operator lost patience")
	s := &scripted{answer: func([]byte) []any {
		return []any{func() error { cancel(why); return os.ErrDeadlineExceeded }}
	}}
	errs := scriptedClient(t, s).Batch(ctx, destOps(batchSize+1))
	if !errors.Is(errs[0], ErrUnknownResult) || !errors.Is(errs[0], why) {
		t.Errorf("sent: %v", errs[0])
	}
	if errors.Is(errs[batchSize], ErrUnknownResult) || !errors.Is(errs[batchSize], why) {
		t.Errorf("not sent: %v", errs[batchSize])
	}
}

func TestDeadlines(t *testing.T) {
	s := &scripted{answer: acknowledge(nil)}
	c, err := newClient(s, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	check := func(ctx context.Context, want time.Duration) {
		t.Helper()
		if err := c.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if left := time.Until(s.deadline); left > want || left < want-time.Minute {
			t.Errorf("the deadline is in %s, want %s", left, want)
		}
	}
	check(t.Context(), time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	check(ctx, 10*time.Minute)
}

func TestDump(t *testing.T) {
	type script = func(seq uint32) []any
	whole := func(ps ...uint16) script {
		return func(seq uint32) []any { return []any{entries(seq, 0, ps...), done(seq, 0)} }
	}
	pieces := func(a, b []uint16) script {
		return func(seq uint32) []any { return []any{entries(seq, 0, a...), entries(seq, 0, b...), done(seq, 0)} }
	}
	p := func(ps ...uint16) []uint16 { return ps }
	flagged := func(seq uint32) []any {
		return []any{entries(seq, 0, 1), entries(seq, flagDumpIntr, 3), done(seq, 0)}
	}
	for _, c := range []struct {
		name    string
		scripts []script // the last one is repeated
		want    []uint16
		reads   int
		err     error
	}{
		{"empty", []script{func(seq uint32) []any { return []any{done(seq, 0)} }}, p(), 1, nil},
		{"one piece", []script{whole(1, 2)}, p(1, 2), 1, nil},
		{"done in the same datagram", []script{func(seq uint32) []any {
			return []any{append(entries(seq, 0, 1, 2), done(seq, 0)...)}
		}}, p(1, 2), 1, nil},
		{"done without a status", []script{func(seq uint32) []any {
			return []any{entries(seq, 0, 1), message(msgDone, 2, seq, nil)}
		}}, p(1), 1, nil},
		{"two pieces are read twice", []script{pieces(p(1), p(2))}, p(1, 2), 2, nil},
		{"an entry was missed", []script{pieces(p(1), p(3)), pieces(p(1, 2), p(3))}, p(1, 2, 3), 3, nil},
		{"an entry came twice", []script{pieces(p(1, 2), p(2, 3)), pieces(p(9, 1), p(2, 3))}, p(9, 1, 2, 3), 3, nil},
		{"an entry always comes twice", []script{pieces(p(1, 2), p(2, 3))}, nil, dumpAttempts, ErrInterrupted},
		{"order changes", []script{pieces(p(1), p(2)), pieces(p(2), p(1))}, p(2, 1), 3, nil},
		{"shrinks to one piece", []script{pieces(p(1), p(2)), whole(1)}, p(1), 2, nil},
		{"flagged, then whole", []script{flagged, whole(1, 2, 3)}, p(1, 2, 3), 2, nil},
		{"flagged at the end", []script{func(seq uint32) []any {
			return []any{entries(seq, 0, 1), done(seq, flagDumpIntr)}
		}, whole(1, 2)}, p(1, 2), 2, nil},
		{"flagged five times", []script{flagged, flagged, flagged, flagged, flagged, whole(1)}, p(1), 6, nil},
		{"always flagged", []script{flagged}, nil, dumpAttempts, ErrInterrupted},
		{"a flagged one confirms nothing", []script{pieces(p(1), p(3)), flagged, pieces(p(1), p(3)), pieces(p(1), p(2)), pieces(p(1), p(2))}, p(1, 2), 5, nil},
		{"EINTR at the end", []script{func(seq uint32) []any {
			status := ^uint32(syscall.EINTR) + 1
			return []any{entries(seq, 0, 1), message(msgDone, 2, seq, binary.NativeEndian.AppendUint32(nil, status))}
		}, whole(1, 2)}, p(1, 2), 2, nil},
		{"busy", []script{func(seq uint32) []any { return []any{errorMessage(seq, syscall.EBUSY)} }, whole(1)}, p(1), 2, nil},
		{"a piece is lost", []script{func(seq uint32) []any {
			return []any{errOverrun, entries(seq, 0, 2), done(seq, 0)}
		}, whole(1, 2)}, p(1, 2), 2, nil},
		{"somebody else's answers", []script{func(seq uint32) []any {
			return []any{entries(seq-1, 0, 8), done(seq-1, 0), entries(seq, 0, 1), errorMessage(seq+1, syscall.EPERM), done(seq, 0)}
		}}, p(1), 1, nil},
		{"a message of the link layer", []script{func(seq uint32) []any {
			return []any{message(msgNoop, 0, seq, nil), entries(seq, 0, 1), done(seq, 0)}
		}}, p(1), 1, nil},
		{"refused", []script{func(seq uint32) []any { return []any{errorMessage(seq, syscall.EPERM)} }}, nil, 1, fs.ErrPermission},
		{"no end", []script{func(seq uint32) []any { return []any{entries(seq, 0, 1)} }}, nil, 1, os.ErrDeadlineExceeded},
		{"an entry is malformed", []script{func(seq uint32) []any {
			return []any{message(0x1c, 2, seq, []byte{cmdNewDest, 1, 0, 0, 9, 0, 2, 0}), entries(seq, 0, 1), done(seq, 0)}
		}}, nil, 1, errShort},
		{"a datagram is malformed", []script{func(seq uint32) []any { return []any{[]byte{1, 2, 3}} }}, nil, 1, errMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			reads := 0
			s := &scripted{}
			s.answer = func(b []byte) []any {
				hs, cmds := requests(b)
				if len(hs) != 1 || hs[0].flags != flagRequest|flagDump || cmds[0] != cmdGetDest {
					t.Errorf("request %+v, command %v", hs, cmds)
				}
				reads++
				return c.scripts[min(reads, len(c.scripts))-1](hs[0].seq)
			}
			cl := scriptedClient(t, s)
			got, err := cl.Destinations(t.Context(), testService.ServiceKey)
			if reads != c.reads {
				t.Errorf("read %d times, want %d", reads, c.reads)
			}
			if c.err != nil {
				if !errors.Is(err, c.err) || got != nil {
					t.Errorf("%v, %v, want %v and nothing", ports(got), err, c.err)
				}
			} else if err != nil || got == nil || !slices.Equal(ports(got), c.want) {
				t.Errorf("%v, %v, want %v", ports(got), err, c.want)
			}
			// Whatever happened, the next exchange is in step.
			s.answer = func(b []byte) []any {
				hs, _ := requests(b)
				return whole(42)(hs[0].seq)
			}
			if got, err := cl.Destinations(t.Context(), testService.ServiceKey); err != nil || !slices.Equal(ports(got), p(42)) {
				t.Errorf("the next one: %v, %v", ports(got), err)
			}
		})
	}
}

func TestGet(t *testing.T) {
	answer := func(info []byte, errno syscall.Errno) func([]byte) []any {
		return func(b []byte) []any {
			hs, _ := requests(b)
			var out []any
			if info != nil {
				out = append(out, message(0x1c, 0, hs[0].seq, info))
			}
			return append(out, errorMessage(hs[0].seq, errno))
		}
	}
	good := append([]byte{cmdGetInfo, 1, 0, 0}, appendUint32(appendUint32(nil, infoVersion, 0x010201), infoConnTabSize, 64)...)
	got, err := scriptedClient(t, &scripted{answer: answer(good, 0)}).Info(t.Context())
	if want := (Info{[3]uint8{1, 2, 1}, 64}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := scriptedClient(t, &scripted{answer: answer(nil, 0)}).Info(t.Context()); !errors.Is(err, errIncomplete) {
		t.Errorf("no answer but an acknowledgement: %v", err)
	}
	if got, err := scriptedClient(t, &scripted{answer: answer(good[:11], 0)}).Info(t.Context()); !errors.Is(err, errShort) || got != (Info{}) {
		t.Errorf("a torn answer: %+v, %v", got, err)
	}
	if _, err := scriptedClient(t, &scripted{answer: answer(nil, syscall.ESRCH)}).Service(t.Context(), testService.ServiceKey); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing service: %v", err)
	}
	if err := scriptedClient(t, &scripted{answer: func([]byte) []any { return nil }}).Flush(t.Context()); !errors.Is(err, ErrUnknownResult) {
		t.Errorf("a flush without answer: %v", err)
	}
}

// TestModuleGone: the kernel says ENOENT of a family that it does not have, which
// must not pass for a missing destination.
func TestModuleGone(t *testing.T) {
	if _, err := newClient(&scripted{families: []any{ErrNoModule}}, time.Second); !errors.Is(err, ErrNoModule) {
		t.Errorf("at the start: %v", err)
	}
	noent := acknowledge(map[int]syscall.Errno{0: syscall.ENOENT})

	s := &scripted{answer: noent, families: []any{0x1c, ErrNoModule}}
	errs := scriptedClient(t, s).Batch(t.Context(), destOps(batchSize+1))
	for _, i := range []int{0, batchSize} {
		if !errors.Is(errs[i], ErrNoModule) || errors.Is(errs[i], fs.ErrNotExist) || errors.Is(errs[i], ErrUnknownResult) {
			t.Errorf("operation %d of a batch: %v", i, errs[i])
		}
	}
	s = &scripted{families: []any{0x1c, ErrNoModule}, answer: func(b []byte) []any {
		hs, _ := requests(b)
		return []any{errorMessage(hs[0].seq, syscall.ENOENT)}
	}}
	if _, err := scriptedClient(t, s).Services(t.Context()); !errors.Is(err, ErrNoModule) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dump: %v", err)
	}

	// Still there: the answer stands.
	s = &scripted{answer: acknowledge(map[int]syscall.Errno{0: syscall.ENOENT})}
	if err := scriptedClient(t, s).SetDest(t.Context(), testService, destOps(1)[0].Destination); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNoModule) {
		t.Errorf("a missing destination: %v", err)
	}

	// Back under another number: sent again, to that.
	s = &scripted{families: []any{0x1c, 0x21}}
	s.answer = func(b []byte) []any {
		hs, _ := requests(b)
		if hs[0].typ != 0x21 {
			return []any{errorMessage(hs[0].seq, syscall.ENOENT)}
		}
		return []any{errorMessage(hs[0].seq, 0)}
	}
	c := scriptedClient(t, s)
	if err := c.Batch(t.Context(), destOps(1))[0]; err != nil || s.sends != 2 {
		t.Errorf("%v after %d sends", err, s.sends)
	}
	c.c.fam = 0x1c
	if err := c.Flush(t.Context()); err != nil {
		t.Errorf("flush: %v", err)
	}
}

func TestExtendedAcknowledgement(t *testing.T) {
	text := appendString(nil, errAttrMsg, "Attribute failed policy validation")
	errno := binary.NativeEndian.AppendUint32(nil, ^uint32(syscall.EINVAL)+1)
	request := make([]byte, headerLen+8)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	for name, datagram := range map[string]func(seq uint32) []byte{
		"capped": func(seq uint32) []byte {
			return message(msgError, flagCapped|flagAckTLVs, seq, slices.Concat(errno, request[:headerLen], text))
		},
		"with the request": func(seq uint32) []byte {
			return message(msgError, flagAckTLVs, seq, slices.Concat(errno, request, text))
		},
	} {
		s := &scripted{answer: func(b []byte) []any {
			hs, _ := requests(b)
			return []any{datagram(hs[0].seq)}
		}}
		err := scriptedClient(t, s).AddService(t.Context(), testService)
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "failed policy validation") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Torn ones leave the errno.
	for _, cut := range []int{4, 8, 4 + headerLen, 4 + headerLen + 5} {
		data := slices.Concat(errno, request[:headerLen], text)[:cut]
		if got, _, err := status(header{typ: msgError, flags: flagCapped | flagAckTLVs}, data); got != syscall.EINVAL || err != nil {
			t.Errorf("cut after %d: %v, %v", cut, got, err)
		}
	}
	for _, data := range [][]byte{nil, {1, 2, 3}, {1, 0, 0, 0}, {0, 0, 0, 0x80}} {
		if _, _, err := status(header{typ: msgError}, data); err == nil {
			t.Errorf("status %x is taken", data)
		}
	}
}

// TestConcurrentUse: exchanges take turns, each with its own answers.
func TestConcurrentUse(t *testing.T) {
	s := &scripted{answer: func(b []byte) []any {
		hs, cmds := requests(b)
		if cmds[0] == cmdGetDest {
			return []any{entries(hs[0].seq, 0, 1, 2, 3), done(hs[0].seq, 0)}
		}
		return acknowledge(map[int]syscall.Errno{1: syscall.EEXIST})(b)
	}}
	c := scriptedClient(t, s)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				if errs := c.Batch(ctx, destOps(3)); errs[0] != nil || !errors.Is(errs[1], fs.ErrExist) || errs[2] != nil {
					t.Errorf("batch: %v", errs)
				}
				if ds, err := c.Destinations(ctx, testService.ServiceKey); err != nil || len(ds) != 3 {
					t.Errorf("dump: %d destinations, %v", len(ds), err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
}

func TestSequence(t *testing.T) {
	for _, start := range []uint32{0, 1, 1<<32 - 1, 1<<32 - 2, 1<<32 - 3, 1<<32 - 128, 1<<32 - 129} {
		c := &conn{seq: start}
		for range 4 {
			before := c.seq
			first := c.sequence(128)
			if first == 0 || first+127 < first || c.seq != first+127 {
				t.Errorf("after %#x: %#x to %#x", before, first, c.seq)
			}
		}
	}
}

func TestClose(t *testing.T) {
	s := &scripted{answer: acknowledge(nil)}
	c := scriptedClient(t, s)
	if err := errors.Join(c.Close(), c.Close()); err != nil || !s.closed {
		t.Errorf("%v, closed %v", err, s.closed)
	}
	if err := c.Flush(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("flush: %v", err)
	}
	if errs := c.Batch(t.Context(), destOps(2)); !errors.Is(errs[1], fs.ErrClosed) || s.sends != 0 {
		t.Errorf("batch: %v, %d sends", errs, s.sends)
	}
}

func putSeq(b []byte, seq uint32) { binary.NativeEndian.PutUint32(b[8:], seq) }
