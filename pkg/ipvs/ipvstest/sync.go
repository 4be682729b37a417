package ipvstest

import (
	"context"
	"maps"
	"syscall"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// SetInterfaces replaces the interfaces that the table knows, with their MTU; a
// new table has lo alone.
func (t *Table) SetInterfaces(mtu map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.interfaces)
	maps.Copy(t.interfaces, mtu)
}

// StartSyncDaemon is ipvs.Client.StartSyncDaemon.
func (t *Table) StartSyncDaemon(ctx context.Context, d ipvs.SyncDaemon) error {
	return t.sync(ctx, true, d, func() syscall.Errno { return t.startSync(d) })
}

// StopSyncDaemon is ipvs.Client.StopSyncDaemon.
func (t *Table) StopSyncDaemon(ctx context.Context, s ipvs.SyncState) error {
	return t.sync(ctx, false, ipvs.SyncDaemon{State: s}, func() syscall.Errno {
		if s != ipvs.SyncMaster && s != ipvs.SyncBackup {
			return syscall.EINVAL
		}
		if _, runs := t.daemons[s]; !runs {
			return syscall.ESRCH
		}
		delete(t.daemons, s)
		return 0
	})
}

// SyncDaemons is ipvs.Client.SyncDaemons.
func (t *Table) SyncDaemons(ctx context.Context) ([]ipvs.SyncDaemon, error) {
	if err := t.reading(ctx, "list sync daemons", ipvs.ServiceKey{}); err != nil {
		return nil, err
	}
	defer t.mu.Unlock()
	out := []ipvs.SyncDaemon{}
	for _, s := range []ipvs.SyncState{ipvs.SyncMaster, ipvs.SyncBackup} {
		if d, runs := t.daemons[s]; runs {
			out = append(out, d)
		}
	}
	return out, nil
}

func (t *Table) sync(ctx context.Context, start bool, d ipvs.SyncDaemon, change func() syscall.Errno) error {
	fail := ipvs.NewSyncError(start, d, 0)
	if err := t.reading(ctx, fail.Op, ipvs.ServiceKey{}); err != nil {
		return err
	}
	defer t.mu.Unlock()
	if errno := change(); errno != 0 {
		return ipvs.NewSyncError(start, d, errno)
	}
	return nil
}

// startSync starts a daemon in the kernel's order of tests, 0 for success.
func (t *Table) startSync(d ipvs.SyncDaemon) syscall.Errno {
	switch {
	case len(d.Interface) > 15, d.SyncID > 255, d.Group.Zone() != "":
		return syscall.EINVAL
	case !d.Canonical().Group.IsMulticast():
		return syscall.EINVAL
	case t.mixed():
		return syscall.EINVAL
	}
	mtu, known := t.interfaces[d.Interface]
	if !known {
		return syscall.ENODEV
	}
	if d.State != ipvs.SyncMaster && d.State != ipvs.SyncBackup {
		return syscall.EINVAL
	}
	if _, runs := t.daemons[d.State]; runs {
		return syscall.EEXIST
	}
	// The IP and UDP headers come out of the 64 kB as of the interface's MTU.
	headers := 28
	if d.Group = d.Canonical().Group; d.Group.Is6() {
		headers = 48
	}
	limit, least := 1500, 1
	if d.State == ipvs.SyncBackup {
		limit, least = min(max(mtu, 1500), 65535), 1024
	}
	length := int(d.MaxLen)
	if length == 0 {
		length = limit - headers
	} else {
		length = min(max(length, least), 65535-headers)
	}
	d.MaxLen = uint16(length)
	t.daemons[d.State] = d.Canonical()
	return 0
}

// mixed says whether a destination is of another family than its service.
func (t *Table) mixed() bool {
	for _, svc := range t.index {
		for d := range svc.all() {
			if ipvs.FamilyOf(d.Addr) != svc.info.Family {
				return true
			}
		}
	}
	return false
}
