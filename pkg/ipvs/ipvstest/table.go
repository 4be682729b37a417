package ipvstest

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Kernel is what an ipvs.Client and a Table have in common.
type Kernel interface {
	AddService(context.Context, ipvs.Service) error
	SetService(context.Context, ipvs.Service) error
	DelService(context.Context, ipvs.Service) error
	AddDest(context.Context, ipvs.Service, ipvs.Destination) error
	SetDest(context.Context, ipvs.Service, ipvs.Destination) error
	DelDest(context.Context, ipvs.Service, ipvs.Destination) error
	Batch(context.Context, []ipvs.Op) []error

	Services(context.Context) ([]ipvs.ServiceInfo, error)
	Destinations(context.Context, ipvs.ServiceKey) ([]ipvs.DestinationInfo, error)
	Service(context.Context, ipvs.ServiceKey) (ipvs.ServiceInfo, error)

	Timeouts(context.Context) (ipvs.Timeouts, error)
	SetTimeouts(context.Context, ipvs.Timeouts) error
	Info(context.Context) (ipvs.Info, error)
	Flush(context.Context) error
	Zero(context.Context, ipvs.ServiceKey) error

	StartSyncDaemon(context.Context, ipvs.SyncDaemon) error
	StopSyncDaemon(context.Context, ipvs.SyncState) error
	SyncDaemons(context.Context) ([]ipvs.SyncDaemon, error)
	Close() error
}

var (
	_ Kernel = (*ipvs.Client)(nil)
	_ Kernel = (*Table)(nil)
)

// Schedulers are the schedulers that the Linux kernel has as of 6.12.
func Schedulers() []string {
	return []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "mh", "dh", "fo", "ovf", "sed", "nq", "twos"}
}

// Table is an IPVS table in memory. New makes one. It is safe for use by several
// goroutines and hands out copies only.
type Table struct {
	mu         sync.Mutex
	addresses  []*service
	marks      []*service
	index      map[ipvs.ServiceKey]*service
	trash      map[trashKey]ipvs.Counters
	timeouts   ipvs.Timeouts
	schedulers map[string]bool
	engines    map[string]bool
	daemons    map[ipvs.SyncState]ipvs.SyncDaemon
	interfaces map[string]int // name and MTU
	closed     bool

	fail     func(ipvs.Op) error
	failRead func(ipvs.ServiceKey) error
	onApply  func(ipvs.Op, View)
	forget   bool
	attempts []Attempt
	sends    []int
}

type trashKey struct {
	service ipvs.ServiceKey
	dest    ipvs.DestinationKey
}

// Attempt is one operation and how it ended.
type Attempt struct {
	Op  ipvs.Op
	Err error
}

// New returns an empty table that knows every scheduler of Schedulers and the
// persistence engine "sip".
func New() *Table {
	t := &Table{
		index:      make(map[ipvs.ServiceKey]*service),
		trash:      make(map[trashKey]ipvs.Counters),
		timeouts:   ipvs.Timeouts{TCP: 900, TCPFin: 120, UDP: 300},
		schedulers: make(map[string]bool),
		engines:    map[string]bool{"sip": true},
		daemons:    make(map[ipvs.SyncState]ipvs.SyncDaemon),
		interfaces: map[string]int{"lo": 65536},
	}
	t.SetSchedulers(append(Schedulers(), "none")...)
	return t
}

// SetSchedulers replaces the schedulers that the table knows.
func (t *Table) SetSchedulers(names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.schedulers)
	for _, n := range names {
		t.schedulers[n] = true
	}
}

// Fail has f judge every operation before the table does: an error is what the
// caller gets, and nothing is applied. A bare syscall.Errno becomes an
// *ipvs.Error. f runs with the table locked and must not use it; nil removes it.
func (t *Table) Fail(f func(ipvs.Op) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fail = f
}

// FailReads has f judge every read, with the zero key for what concerns no
// service; ipvs.ErrInterrupted and ipvs.ErrNoModule are the interesting errors.
// f runs with the table locked and must not use it; nil removes it.
func (t *Table) FailReads(f func(ipvs.ServiceKey) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failRead = f
}

// OnApply has f look at the table after every operation that was applied. f runs
// with the table locked: it reads through the View, which is valid during the
// call, and must not use the table. nil removes it.
func (t *Table) OnApply(f func(ipvs.Op, View)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onApply = f
}

// KeepLog says whether operations are recorded for Log and Attempts, as they are
// in a new table. Turning it off forgets what there is.
func (t *Table) KeepLog(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget = !on
	t.attempts, t.sends = nil, nil
}

// Log returns the operations that were applied, in order. Flush is none.
func (t *Table) Log() []ipvs.Op {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ops []ipvs.Op
	for _, a := range t.attempts {
		if a.Err == nil {
			ops = append(ops, a.Op)
		}
	}
	return ops
}

// Attempts returns all operations, also those that failed, in order.
func (t *Table) Attempts() []Attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.attempts)
}

// Sends returns how many operations each datagram would have had that a Client sent
// for what Log and Attempts tell of.
func (t *Table) Sends() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.sends)
}

// ResetLog forgets what was recorded.
func (t *Table) ResetLog() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attempts, t.sends = nil, nil
}

// send records the datagrams that n operations take.
func (t *Table) send(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; !t.forget && n > 0; n -= ipvs.BatchSize {
		t.sends = append(t.sends, min(n, ipvs.BatchSize))
	}
}

// SetCounters sets a destination's connection counters.
func (t *Table) SetCounters(k ipvs.ServiceKey, d ipvs.DestinationKey, c ipvs.Counters) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	di, err := t.dest("set counters", k, d)
	if err == nil {
		info := di.info()
		info.Counters = c
		di.set(info)
	}
	return err
}

// EndKept ends the connections of destinations that are deleted: one that is added again
// is without.
func (t *Table) EndKept() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.trash)
}

// SetDestinationStats sets a destination's traffic statistics.
func (t *Table) SetDestinationStats(k ipvs.ServiceKey, d ipvs.DestinationKey, s ipvs.Stats) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	di, err := t.dest("set statistics", k, d)
	if err == nil {
		info := di.info()
		info.Stats = s
		di.set(info)
	}
	return err
}

// SetServiceStats sets a service's traffic statistics.
func (t *Table) SetServiceStats(k ipvs.ServiceKey, s ipvs.Stats) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	svc := t.index[k.Canonical()]
	if svc == nil {
		return &ipvs.Error{Op: "set statistics", Service: k, Errno: syscall.ESRCH}
	}
	svc.info.Stats = s
	return nil
}

func (t *Table) dest(op string, k ipvs.ServiceKey, d ipvs.DestinationKey) (*destination, error) {
	e := &ipvs.Error{Op: op, Service: k, Destination: d, Errno: syscall.ESRCH}
	svc := t.index[k.Canonical()]
	if svc == nil {
		return nil, e
	}
	if di := svc.find(d.Canonical()); di != nil {
		return di, nil
	}
	e.Errno = syscall.ENOENT
	return nil, e
}

// Close makes every later call fail with fs.ErrClosed.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return nil
}

// AddService is ipvs.Client.AddService.
func (t *Table) AddService(ctx context.Context, s ipvs.Service) error {
	return t.one(ctx, ipvs.Op{Kind: ipvs.OpAddService, Service: s})
}

// SetService is ipvs.Client.SetService.
func (t *Table) SetService(ctx context.Context, s ipvs.Service) error {
	return t.one(ctx, ipvs.Op{Kind: ipvs.OpSetService, Service: s})
}

// DelService is ipvs.Client.DelService.
func (t *Table) DelService(ctx context.Context, s ipvs.Service) error {
	return t.one(ctx, ipvs.Op{Kind: ipvs.OpDelService, Service: s})
}

// AddDest is ipvs.Client.AddDest.
func (t *Table) AddDest(ctx context.Context, s ipvs.Service, d ipvs.Destination) error {
	return t.one(ctx, ipvs.Op{Kind: ipvs.OpAddDest, Service: s, Destination: d})
}

// SetDest is ipvs.Client.SetDest.
func (t *Table) SetDest(ctx context.Context, s ipvs.Service, d ipvs.Destination) error {
	return t.one(ctx, ipvs.Op{Kind: ipvs.OpSetDest, Service: s, Destination: d})
}

// DelDest is ipvs.Client.DelDest.
func (t *Table) DelDest(ctx context.Context, s ipvs.Service, d ipvs.Destination) error {
	return t.one(ctx, ipvs.Op{Kind: ipvs.OpDelDest, Service: s, Destination: d})
}

// Batch is ipvs.Client.Batch. As in the kernel, other callers' operations may
// come in between.
func (t *Table) Batch(ctx context.Context, ops []ipvs.Op) []error {
	t.send(len(ops))
	errs := make([]error, len(ops))
	for i, op := range ops {
		errs[i] = t.apply(ctx, op)
	}
	return errs
}

func (t *Table) one(ctx context.Context, op ipvs.Op) error {
	t.send(1)
	return t.apply(ctx, op)
}

func (t *Table) apply(ctx context.Context, op ipvs.Op) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.applyLocked(ctx, op)
	if !t.forget {
		t.attempts = append(t.attempts, Attempt{op, err})
	}
	if err == nil && t.onApply != nil {
		t.onApply(op, View{t})
	}
	return err
}

func (t *Table) applyLocked(ctx context.Context, op ipvs.Op) error {
	cause := context.Cause(ctx)
	if t.closed {
		cause = fs.ErrClosed
	}
	if cause == nil && t.fail != nil {
		cause = t.fail(op)
	}
	if cause != nil {
		if errno, ok := cause.(syscall.Errno); ok { //nolint:errorlint // a bare one: the kernel's answer
			return ipvs.NewError(op, errno)
		}
		if _, ok := errors.AsType[*ipvs.Error](cause); ok {
			return cause
		}
		e := ipvs.NewError(op, 0)
		e.Err = cause
		return e
	}
	if errno := t.change(op); errno != 0 {
		return ipvs.NewError(op, errno)
	}
	return nil
}

// change applies an operation in the kernel's order of tests, 0 for success.
func (t *Table) change(op ipvs.Op) syscall.Errno {
	s := op.Service.Canonical()
	write := op.Kind == ipvs.OpAddService || op.Kind == ipvs.OpSetService
	if errno := checkService(s, write); errno != 0 {
		return errno
	}
	d := op.Destination.Canonical()
	if (op.Kind == ipvs.OpAddDest || op.Kind == ipvs.OpSetDest) && (d.Forward > ipvs.Bypass || d.TunnelType > ipvs.GRE) {
		return syscall.EINVAL
	}
	svc := t.index[s.ServiceKey]
	if svc == nil && op.Kind != ipvs.OpAddService {
		return syscall.ESRCH
	}
	switch op.Kind {
	case ipvs.OpAddDest, ipvs.OpSetDest, ipvs.OpDelDest:
		if op.Kind != ipvs.OpDelDest && d.Addr.IsValid() && ipvs.FamilyOf(d.Addr) != s.Family && len(t.daemons) > 0 {
			return syscall.EINVAL
		}
		if errno := checkDestination(s, d, op.Kind != ipvs.OpDelDest); errno != 0 {
			return errno
		}
	}
	switch op.Kind {
	case ipvs.OpAddService:
		if svc != nil {
			return syscall.EEXIST
		}
		if errno := t.checkModules(s); errno != 0 {
			return errno
		}
		t.addService(s)
	case ipvs.OpSetService:
		if errno := t.checkModules(s); errno != 0 {
			return errno
		}
		svc.info.Service = s
		svc.info.Flags |= ipvs.Hashed
	case ipvs.OpDelService:
		t.delService(svc)
	case ipvs.OpAddDest:
		if svc.find(d.DestinationKey) != nil {
			return syscall.EEXIST
		}
		if !unicast(d.Addr) {
			return syscall.EINVAL
		}
		k := trashKey{s.ServiceKey, d.DestinationKey}
		svc.add(ipvs.DestinationInfo{Destination: d, Counters: t.trash[k]})
		delete(t.trash, k)
	case ipvs.OpSetDest:
		di := svc.find(d.DestinationKey)
		if di == nil {
			return syscall.ENOENT
		}
		di.Destination = d
	case ipvs.OpDelDest:
		di := svc.find(d.DestinationKey)
		if di == nil {
			return syscall.ENOENT
		}
		t.discard(s.ServiceKey, di)
		svc.remove(d.DestinationKey)
	default:
		return syscall.EINVAL
	}
	return 0
}

func (t *Table) addService(s ipvs.Service) {
	s.Flags |= ipvs.Hashed
	svc := &service{info: ipvs.ServiceInfo{Service: s}}
	t.index[s.ServiceKey] = svc
	if s.FWMark != 0 {
		t.marks = append(t.marks, svc)
	} else {
		t.addresses = append(t.addresses, svc)
	}
}

func (t *Table) delService(svc *service) {
	k := svc.info.ServiceKey
	for di := range svc.all() {
		t.discard(k, di)
	}
	delete(t.index, k)
	same := func(x *service) bool { return x == svc }
	t.addresses = slices.DeleteFunc(t.addresses, same)
	t.marks = slices.DeleteFunc(t.marks, same)
}

// discard puts a destination that has connections on the trash list.
func (t *Table) discard(k ipvs.ServiceKey, di *destination) {
	if di.traffic != nil && di.traffic.Counters != (ipvs.Counters{}) {
		t.trash[trashKey{k, di.DestinationKey}] = di.traffic.Counters
	}
}

func checkService(s ipvs.Service, write bool) syscall.Errno {
	if s.FWMark == 0 && (!s.Addr.IsValid() || s.Family != ipvs.FamilyOf(s.Addr)) {
		return syscall.EINVAL
	}
	if write {
		switch {
		case len(s.Scheduler) > 15, len(s.PersistenceEngine) > 16, s.Timeout > ipvs.MaxPersistence:
			return syscall.EINVAL
		case s.FWMark == 0 && s.Protocol != ipvs.TCP && s.Protocol != ipvs.UDP && s.Protocol != ipvs.SCTP:
			return syscall.EINVAL
		}
	}
	if s.Family != ipvs.INET && s.Family != ipvs.INET6 {
		return syscall.EAFNOSUPPORT
	}
	return 0
}

func (t *Table) checkModules(s ipvs.Service) syscall.Errno {
	if !t.schedulers[s.Scheduler] {
		return syscall.ENOENT
	}
	if s.PersistenceEngine != "" && !t.engines[s.PersistenceEngine] {
		return syscall.ENOENT
	}
	if s.Family == ipvs.INET6 && s.Netmask > 128 {
		return syscall.EINVAL
	}
	return 0
}

func checkDestination(s ipvs.Service, d ipvs.Destination, write bool) syscall.Errno {
	if !d.Addr.IsValid() {
		return syscall.EINVAL
	}
	if !write {
		return 0
	}
	switch {
	case ipvs.FamilyOf(d.Addr) != s.Family && d.Forward != ipvs.Tunnel:
		return syscall.EINVAL
	case d.Weight > math.MaxInt32, d.LowerThreshold > d.UpperThreshold:
		return syscall.ERANGE
	case d.UpperThreshold > math.MaxInt32: // newer kernels
		return syscall.EINVAL
	case d.TunnelType == ipvs.GUE && d.TunnelPort == 0:
		return syscall.EINVAL
	}
	return 0
}

// unicast is what ip_vs_new_dest asks of an address, on a machine that has no
// address but 127.0.0.1/8 and ::1.
func unicast(a netip.Addr) bool {
	if a.Is4() {
		switch a.As4() {
		case [4]byte{0, 0, 0, 0}, [4]byte{255, 255, 255, 255}, [4]byte{127, 255, 255, 255}:
			return false
		}
		return !a.IsMulticast()
	}
	return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLinkLocalUnicast()
}
