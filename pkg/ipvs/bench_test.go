package ipvs

import (
	"context"
	"testing"
)

// BenchmarkBatchEncode writes one send's worth of destinations.
func BenchmarkBatchEncode(b *testing.B) {
	ops := destOps(batchSize)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = buf[:0]
		for i, op := range ops {
			var err error
			if buf, err = appendOp(buf, 0x1c, uint32(i), op); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ops)), "ns/dest")
}

// replay is a kernel's end that allocates nothing: it accepts every operation, and
// answers every dump with the same datagrams.
type replay struct {
	scripted
	datagrams [][]byte
	next      int
	seq       uint32
	ack       bool
	sends     int
}

func (r *replay) send(b []byte) error {
	r.sends++
	r.next = 0
	for len(b) > 0 {
		h, _, rest, _ := nextMessage(b)
		r.seq, r.ack, b = h.seq, h.flags&flagAck != 0, rest
	}
	return nil
}

func (r *replay) receive(b []byte, _ bool) (int, error) {
	if r.ack {
		return copy(b, r.acknowledgement()), nil
	}
	n := copy(b, r.datagrams[r.next])
	r.next++
	for rest := b[:n]; len(rest) > 0; {
		putSeq(rest, r.seq)
		_, _, rest, _ = nextMessage(rest)
	}
	return n, nil
}

var acked = errorMessage(0, 0)

func (r *replay) acknowledgement() []byte {
	putSeq(acked, r.seq)
	return acked
}

// longDump is a list of n destinations in the pieces that a kernel makes.
func longDump(n int) *replay {
	const piece = 80
	r := &replay{}
	var ps []uint16
	for i := range n {
		if ps = append(ps, uint16(n-i)); len(ps) == piece || i == n-1 {
			r.datagrams = append(r.datagrams, entries(0, 0, ps...))
			ps = ps[:0]
		}
	}
	r.datagrams = append(r.datagrams, done(0, 0))
	return r
}

// BenchmarkDumpDecode10000 reads a list of 10,000 destinations twice, as its length
// asks for, into a buffer.
func BenchmarkDumpDecode10000(b *testing.B) {
	const n = 10000
	cl, err := newClient(longDump(n), DefaultTimeout)
	if err != nil {
		b.Fatal(err)
	}
	var got []DestinationInfo
	b.ReportAllocs()
	for b.Loop() {
		if got, err = cl.AppendDestinations(context.Background(), got[:0], testService.ServiceKey); err != nil || len(got) != n {
			b.Fatal(len(got), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/dest")
}

// TestDumpAllocations: a long list is read without an allocation for each entry.
func TestDumpAllocations(t *testing.T) {
	const n = 10000
	cl, err := newClient(longDump(n), DefaultTimeout)
	if err != nil {
		t.Fatal(err)
	}
	read := func(buf []DestinationInfo) []DestinationInfo {
		got, err := cl.AppendDestinations(t.Context(), buf, testService.ServiceKey)
		if err != nil || len(got) != n {
			t.Fatal(len(got), err)
		}
		return got
	}
	buf := read(nil)
	into := testing.AllocsPerRun(5, func() { read(buf[:0]) })
	fresh := testing.AllocsPerRun(5, func() { read(nil) })
	t.Logf("%d destinations: %.0f allocations into a buffer, %.0f without one", n, into, fresh)
	if into > 30 || fresh > 60 {
		t.Errorf("%.0f allocations into a buffer, %.0f without one", into, fresh)
	}
	// None of them is lost or seen twice.
	for i, d := range buf {
		if d.Port != uint16(n-i) {
			t.Fatalf("entry %d is %s", i, d.DestinationKey)
		}
	}
}

// TestBatchAllocations: operations are sent without an allocation for each.
func TestBatchAllocations(t *testing.T) {
	r := &replay{}
	cl, err := newClient(r, DefaultTimeout)
	if err != nil {
		t.Fatal(err)
	}
	ops := destOps(10 * batchSize)
	const runs = 5
	n := testing.AllocsPerRun(runs, func() {
		for _, err := range cl.Batch(t.Context(), ops) {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Logf("%d operations: %.0f allocations", len(ops), n)
	if sends := r.sends / (runs + 1); sends != 10 || n > float64(7*sends) {
		t.Errorf("%.0f allocations in %d sends", n, sends)
	}
}
