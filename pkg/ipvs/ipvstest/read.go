package ipvstest

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math"
	"slices"
	"syscall"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// reading locks the table for a read; the caller unlocks it if err is nil.
func (t *Table) reading(ctx context.Context, op string, k ipvs.ServiceKey) error {
	t.mu.Lock()
	err := context.Cause(ctx)
	if t.closed {
		err = fs.ErrClosed
	}
	if err == nil && t.failRead != nil {
		err = t.failRead(k)
	}
	if err != nil {
		t.mu.Unlock()
		if _, ok := errors.AsType[*ipvs.Error](err); ok {
			return err
		}
		return &ipvs.Error{Op: op, Service: k, Err: err}
	}
	return nil
}

// Services is ipvs.Client.Services, in the order of addition.
func (t *Table) Services(ctx context.Context) ([]ipvs.ServiceInfo, error) {
	if err := t.reading(ctx, "list services", ipvs.ServiceKey{}); err != nil {
		return nil, err
	}
	defer t.mu.Unlock()
	return View{t}.Services(), nil
}

// Destinations is ipvs.Client.Destinations.
func (t *Table) Destinations(ctx context.Context, k ipvs.ServiceKey) ([]ipvs.DestinationInfo, error) {
	return t.AppendDestinations(ctx, []ipvs.DestinationInfo{}, k)
}

// AppendDestinations is ipvs.Client.AppendDestinations.
func (t *Table) AppendDestinations(ctx context.Context, buf []ipvs.DestinationInfo, k ipvs.ServiceKey) ([]ipvs.DestinationInfo, error) {
	const op = "list destinations"
	k = k.Canonical()
	if err := t.reading(ctx, op, k); err != nil {
		return nil, err
	}
	defer t.mu.Unlock()
	if k.FWMark == 0 && (!k.Addr.IsValid() || k.Family != ipvs.FamilyOf(k.Addr)) {
		return nil, &ipvs.Error{Op: op, Service: k, Errno: syscall.EINVAL}
	}
	return View{t}.append(buf, k), nil
}

// Service is ipvs.Client.Service.
func (t *Table) Service(ctx context.Context, k ipvs.ServiceKey) (ipvs.ServiceInfo, error) {
	const op = "get service"
	k = k.Canonical()
	if err := t.reading(ctx, op, k); err != nil {
		return ipvs.ServiceInfo{}, err
	}
	defer t.mu.Unlock()
	if errno := checkService(ipvs.Service{ServiceKey: k}, false); errno != 0 {
		return ipvs.ServiceInfo{}, &ipvs.Error{Op: op, Service: k, Errno: errno}
	}
	svc := t.index[k]
	if svc == nil {
		return ipvs.ServiceInfo{}, &ipvs.Error{Op: op, Service: k, Errno: syscall.ESRCH}
	}
	return svc.info, nil
}

// Timeouts is ipvs.Client.Timeouts; a new table has the kernel's defaults.
func (t *Table) Timeouts(ctx context.Context) (ipvs.Timeouts, error) {
	if err := t.reading(ctx, "get timeouts", ipvs.ServiceKey{}); err != nil {
		return ipvs.Timeouts{}, err
	}
	defer t.mu.Unlock()
	return t.timeouts, nil
}

// SetTimeouts is ipvs.Client.SetTimeouts.
func (t *Table) SetTimeouts(ctx context.Context, v ipvs.Timeouts) error {
	const op = "set timeouts"
	if err := t.reading(ctx, op, ipvs.ServiceKey{}); err != nil {
		return err
	}
	defer t.mu.Unlock()
	// The kernel's bound is INT_MAX / HZ, which is 1000 at most.
	const bound = math.MaxInt32 / 1000
	if v.TCP > bound || v.TCPFin > bound || v.UDP > bound {
		return &ipvs.Error{Op: op, Errno: syscall.EINVAL}
	}
	for _, p := range []struct {
		to *uint32
		v  uint32
	}{{&t.timeouts.TCP, v.TCP}, {&t.timeouts.TCPFin, v.TCPFin}, {&t.timeouts.UDP, v.UDP}} {
		if p.v != 0 {
			*p.to = p.v
		}
	}
	return nil
}

// Info is ipvs.Client.Info.
func (t *Table) Info(ctx context.Context) (ipvs.Info, error) {
	if err := t.reading(ctx, "get info", ipvs.ServiceKey{}); err != nil {
		return ipvs.Info{}, err
	}
	defer t.mu.Unlock()
	return ipvs.Info{Version: [3]uint8{1, 2, 1}, ConnTableSize: 4096}, nil
}

// Flush is ipvs.Client.Flush.
func (t *Table) Flush(ctx context.Context) error {
	if err := t.reading(ctx, "flush", ipvs.ServiceKey{}); err != nil {
		return err
	}
	defer t.mu.Unlock()
	for _, svc := range slices.Collect(maps.Values(t.index)) {
		t.delService(svc)
	}
	return nil
}

// Zero is ipvs.Client.Zero.
func (t *Table) Zero(ctx context.Context, k ipvs.ServiceKey) error {
	const op = "zero statistics"
	all := k == ipvs.ServiceKey{}
	k = k.Canonical()
	if err := t.reading(ctx, op, k); err != nil {
		return err
	}
	defer t.mu.Unlock()
	if !all {
		if errno := checkService(ipvs.Service{ServiceKey: k}, false); errno != 0 {
			return &ipvs.Error{Op: op, Service: k, Errno: errno}
		}
		if t.index[k] == nil {
			return &ipvs.Error{Op: op, Service: k, Errno: syscall.ESRCH}
		}
	}
	for _, svc := range t.index {
		if all || svc.info.ServiceKey == k {
			svc.info.Stats = ipvs.Stats{}
			for di := range svc.all() {
				info := di.info()
				info.Stats = ipvs.Stats{}
				di.set(info)
			}
		}
	}
	return nil
}

// View reads a table from within OnApply.
type View struct{ t *Table }

// Services returns all services in the order of Table.Services.
func (v View) Services() []ipvs.ServiceInfo {
	out := make([]ipvs.ServiceInfo, 0, len(v.t.index))
	for _, svc := range v.t.addresses {
		out = append(out, svc.info)
	}
	for _, svc := range v.t.marks {
		out = append(out, svc.info)
	}
	return out
}

// Has reports whether a service exists, which Destinations does not tell.
func (v View) Has(k ipvs.ServiceKey) bool { return v.t.index[k.Canonical()] != nil }

// Destinations returns a service's destinations, the newest first.
func (v View) Destinations(k ipvs.ServiceKey) []ipvs.DestinationInfo {
	return v.append([]ipvs.DestinationInfo{}, k.Canonical())
}

func (v View) append(buf []ipvs.DestinationInfo, k ipvs.ServiceKey) []ipvs.DestinationInfo {
	svc := v.t.index[k]
	if svc == nil {
		return buf
	}
	buf = slices.Grow(buf, svc.live)
	for i := range slices.Backward(svc.dests) {
		if di := &svc.dests[i]; di.Addr.IsValid() {
			buf = append(buf, di.info())
		}
	}
	return buf
}
