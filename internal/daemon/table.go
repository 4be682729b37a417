package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/host"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// table connects to what the engine writes and reads.
type table struct {
	log     *slog.Logger
	config  *config.Config
	observe bool
	// memory stands in for the kernel's in tests.
	memory *ipvstest.Table

	mu sync.Mutex
	// global is what the sysctls go by, tuned what they were last set for.
	global config.Global
	tuned  *tuning
}

// tuning is what of the configuration decides the sysctls.
type tuning struct{ manage, conntrack bool }

// dial connects to the kernel, loading its module if need be; in observe mode to a
// copy in memory of what the kernel holds.
func (t *table) dial(ctx context.Context) (apply.IPVS, error) {
	if t.memory != nil {
		return t.memory, nil
	}
	if t.observe {
		return t.copy(ctx), nil
	}
	c, err := t.kernel()
	if errors.Is(err, ipvs.ErrNoModule) {
		if lerr := host.LoadIPVS(ctx); lerr != nil {
			return nil, fmt.Errorf("%w; %w", err, lerr)
		}
		c, err = t.kernel()
	}
	if err != nil {
		return nil, err
	}
	t.tune()
	return c, nil
}

// read connects a second time, for status.
func (t *table) read(context.Context) (engine.Reader, error) {
	if t.memory != nil {
		return t.memory, nil
	}
	return t.kernel()
}

func (t *table) kernel() (*ipvs.Client, error) {
	path, err := ipvsNamespace(t.config)
	if err != nil {
		return nil, fmt.Errorf("net_namespace_ipvs: %w", err)
	}
	if path == "" {
		return ipvs.Dial()
	}
	return ipvs.Dial(ipvs.WithNetNS(path))
}

// syncSockets are the sockets of a sync daemon in the table's namespace.
func (t *table) syncSockets(d ipvs.SyncDaemon) (sockets []ipvs.SyncSocket, err error) {
	path, err := ipvsNamespace(t.config)
	if err != nil || t.memory != nil {
		return nil, err
	}
	nerr := inNamespace(path, func() { sockets, err = ipvs.SyncSockets("/proc/thread-self/net", d) })
	return sockets, errors.Join(nerr, err)
}

// reloaded takes a new configuration's settings; they count at once if there is a
// table, else when one is connected.
func (t *table) reloaded(g config.Global, connected bool) {
	t.mu.Lock()
	t.global = g
	t.mu.Unlock()
	if connected && !t.observe {
		t.tune()
	}
}

// tune sets the sysctls that draining rests on, in the table's namespace, unless
// they were set for the same settings before.
func (t *table) tune() {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.global
	want := tuning{g.ManageSysctls, g.Conntrack}
	if t.tuned != nil && *t.tuned == want || !g.ManageSysctls {
		return
	}
	t.tuned = &want
	path, err := ipvsNamespace(t.config)
	if err == nil {
		err = inNamespace(path, func() { t.sysctls(host.Sysctls(g.Conntrack)) })
	}
	if err != nil {
		t.log.Error("Sysctls not set", event.Key, event.KernelUnset, "err", err)
	}
}

func (t *table) sysctls(all []host.Sysctl) {
	for _, s := range all {
		old, changed, err := host.EnsureSysctl(s.Name, s.Want)
		switch {
		case err != nil:
			t.log.Error("Sysctl not set", event.Key, event.KernelUnset, "sysctl", s.Name, "want", s.Want, "why", s.Why, "err", err)
		case changed:
			t.log.Info("Sysctl set", event.Key, event.KernelSet, "sysctl", s.Name, "value", s.Want, "was", old, "why", s.Why)
		}
	}
}

// copy returns a table in memory with the kernel's content where it can be read.
func (t *table) copy(ctx context.Context) *ipvstest.Table {
	mem := ipvstest.New()
	mem.KeepLog(false) // it is for tests, and would grow for as long as we observe
	c, err := t.kernel()
	if err != nil {
		t.log.Warn("Observing without the kernel's table", event.Key, event.KernelUnread, "err", err)
		return mem
	}
	defer c.Close()
	services, err := c.Services(ctx)
	if err != nil {
		t.log.Warn("Observing without the kernel's table", event.Key, event.KernelUnread, "err", err)
		return mem
	}
	for _, s := range services {
		dests, err := c.Destinations(ctx, s.ServiceKey)
		if err == nil {
			err = mem.AddService(ctx, s.Service)
		}
		for _, d := range dests {
			added := mem.AddDest(ctx, s.Service, d.Destination)
			if added == nil {
				added = mem.SetCounters(s.ServiceKey, d.DestinationKey, d.Counters)
			}
			err = errors.Join(err, added)
		}
		if err != nil {
			t.log.Warn("Observing without one of the kernel's services", event.Key, event.KernelUnread, "service", s.ServiceKey.String(), "err", err)
		}
	}
	return mem
}
