package engine

import (
	"sync/atomic"
	"time"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Measured is how long the engine's own work takes. It is counted since the start,
// and, unlike the rest of a snapshot, up to the moment when it is read.
type Measured struct {
	// Lag is how long what happened waits until the loop handles it, Turn how long one
	// round of the loop takes, with all writing to the kernel.
	Lag, Turn Histogram
	// VerdictToKernel is from a check's verdict until the kernel has acknowledged what
	// it changes in the table. Verdicts that change nothing there do not count.
	VerdictToKernel Histogram
	// Operations are the changes of the table by their kind.
	Operations []Operations
	// Calls are the exchanges with the kernel. One kind of operation by itself is a
	// call of its own kind, several at once are a batch.
	Calls []KernelCall
	// Reloads counts those accepted and refused; ReloadTook is the last one's time,
	// reading the file included.
	Accepted, Refused uint64
	ReloadTook        time.Duration
	// Reconcile is reconcile_interval.
	Reconcile time.Duration
}

// Operations are the changes of one kind.
type Operations struct {
	// Kind is "add_service", "change_service", "delete_service" and the same with
	// destinations.
	Kind string
	// Done were accepted, Refused were not, or nobody knows.
	Done, Refused uint64
}

// KernelCall is one kind of exchange.
type KernelCall struct {
	// Kind is one of Operations, "batch", "list_services" or "list_destinations".
	Kind string
	Took Histogram
	// Failed had at least one error.
	Failed uint64
}

// callKind is an ipvs.OpKind, or one of those below.
type callKind int

const (
	callBatch callKind = callKind(ipvs.OpDelDest) + 1 + iota
	callServices
	callDestinations
	callKinds
)

var callNames = [callKinds]string{
	ipvs.OpAddService: "add_service", ipvs.OpSetService: "change_service", ipvs.OpDelService: "delete_service",
	ipvs.OpAddDest: "add_destination", ipvs.OpSetDest: "change_destination", ipvs.OpDelDest: "delete_destination",
	callBatch: "batch", callServices: "list_services", callDestinations: "list_destinations",
}

// maxWaiting bounds the verdicts whose way to the kernel is measured at one time: a
// kernel that is not there lets them gather.
const maxWaiting = 4096

// measures is what Measured is read from. The loop counts, and the reader of Status.
type measures struct {
	lag, turn, verdicts histogram
	done, refused       [ipvs.OpDelDest + 1]atomic.Uint64
	calls               [callKinds]struct {
		took   histogram
		failed atomic.Uint64
	}
	// lastGood is when the kernel last did what it was asked, in Unix nanoseconds.
	lastGood            atomic.Int64
	accepted, refusedAt atomic.Uint64
	reloadTook          atomic.Int64

	// waiting are the moments of verdicts that are still to be written. They are the
	// loop's.
	waiting []time.Duration
	// now is the inbox's clock.
	now func() time.Duration
}

// decided takes a verdict that changes what the table should hold.
func (m *measures) decided(at time.Duration) {
	if len(m.waiting) < maxWaiting {
		m.waiting = append(m.waiting, at)
	}
}

// forget drops verdicts that are nothing to write.
func (m *measures) forget() {
	m.waiting = m.waiting[:0]
	if cap(m.waiting) > 256 {
		m.waiting = nil
	}
}

// Urgent implements apply.Observer: what verdicts asked for is written, unless failed.
func (m *measures) Urgent(operations int, failed bool) {
	if failed {
		return
	}
	if operations > 0 {
		now := m.now()
		for _, at := range m.waiting {
			m.verdicts.observe(loopBounds, now-at)
		}
	}
	m.forget()
}

// Wrote implements apply.Observer.
func (m *measures) Wrote(ops []ipvs.Op, errs []error, took time.Duration) {
	failed, good := false, false
	for i, err := range errs {
		k := ops[i].Kind
		if int(k) >= len(m.done) {
			continue
		}
		if err != nil {
			failed = true
			m.refused[k].Add(1)
		} else {
			good = true
			m.done[k].Add(1)
		}
	}
	kind := callBatch
	if len(ops) == 1 {
		kind = callKind(ops[0].Kind)
	}
	m.called(kind, failed, good, took)
}

// Listed implements apply.Observer.
func (m *measures) Listed(destinations bool, err error, took time.Duration) {
	kind := callServices
	if destinations {
		kind = callDestinations
	}
	m.called(kind, err != nil, err == nil, took)
}

func (m *measures) called(k callKind, failed, good bool, took time.Duration) {
	if k < 0 || k >= callKinds {
		return
	}
	m.calls[k].took.observe(callBounds, took)
	if failed {
		m.calls[k].failed.Add(1)
	}
	if good {
		m.lastGood.Store(time.Now().UnixNano())
	}
}

// lastSuccess is when the kernel last did what it was asked; zero for never.
func (m *measures) lastSuccess() time.Time {
	if at := m.lastGood.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

func (m *measures) read() *Measured {
	out := &Measured{
		Lag: m.lag.read(loopBounds), Turn: m.turn.read(loopBounds), VerdictToKernel: m.verdicts.read(loopBounds),
		Operations: make([]Operations, 0, len(m.done)), Calls: make([]KernelCall, 0, callKinds),
		Accepted: m.accepted.Load(), Refused: m.refusedAt.Load(), ReloadTook: time.Duration(m.reloadTook.Load()),
	}
	for k := ipvs.OpAddService; k <= ipvs.OpDelDest; k++ {
		out.Operations = append(out.Operations, Operations{callNames[k], m.done[k].Load(), m.refused[k].Load()})
	}
	for k := range m.calls {
		c := &m.calls[k]
		if took := c.took.read(callBounds); took.Count() > 0 {
			out.Calls = append(out.Calls, KernelCall{callNames[k], took, c.failed.Load()})
		}
	}
	return out
}

// Reloaded counts a reload that was accepted or refused, with all the time it took:
// reading the file is not the engine's. The start is the first.
func (e *Engine) Reloaded(took time.Duration, accepted bool) {
	if accepted {
		e.measures.accepted.Add(1)
	} else {
		e.measures.refusedAt.Add(1)
	}
	e.measures.reloadTook.Store(int64(took))
}
