package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/host/filter"
	"github.com/sluice-lb/sluice/internal/host/vip"
)

// edgeEnd bounds the last writes at a stop.
const edgeEnd = 20 * time.Second

// marker is a file of the state folder that is there while this daemon has something in
// the machine besides the table: from before the first write until the last of it is
// gone. A process that was killed leaves it, and the next one looks after what there is,
// whatever its configuration says. Without a state folder nobody knows.
type marker struct{ file, text string }

func newMarker(stateDir, name, text string) marker {
	if stateDir == "" {
		return marker{}
	}
	return marker{filepath.Join(stateDir, name), text + "\n"}
}

// left reports whether an earlier process has left something.
func (m marker) left() bool {
	if m.file == "" {
		return false
	}
	_, err := os.Stat(m.file)
	return err == nil
}

func (m marker) begin() error {
	if m.file == "" {
		return nil
	}
	return os.WriteFile(m.file, []byte(m.text), 0o600)
}

// keep has the marker say more, for the next process.
func (m marker) keep(more string) error {
	if m.file == "" {
		return nil
	}
	next := m.file + ".new"
	if err := os.WriteFile(next, []byte(m.text+more), 0o600); err != nil {
		return err
	}
	return os.Rename(next, m.file)
}

// rest is what an earlier process had it say.
func (m marker) rest() string {
	b, _ := os.ReadFile(m.file) // that there is none is all that there is to know
	return string(b)
}

func (m marker) end() error {
	if m.file == "" {
		return nil
	}
	if err := os.Remove(m.file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// surroundings are addresses, guard and marks, in the namespace of the table. In observe
// mode there are none: they are the other daemon's.
type surroundings struct {
	log    *slog.Logger
	keeper *edge.Keeper // nil in observe mode
	stop   context.CancelFunc
	done   chan struct{}
}

func newSurroundings(log *slog.Logger, opts Options, cfg *config.Config, options *engine.Options, told func(edge.Report)) *surroundings {
	s := &surroundings{log: log}
	if opts.Observe {
		return s
	}
	m := newMarker(opts.StateDir, "edge", "addresses of vip_device, the table of vip_guard or that of nftables_ipvs are in the kernel")
	s.keeper = edge.New(edge.Options{
		Log: log, Tell: told, Begin: m.begin, End: m.end, Leftover: m.left(),
		Addresses: func() (edge.Addresses, error) { return openAddresses(cfg) },
		Filter:    func() (edge.Filter, error) { return openFilter(cfg) },
	})
	options.Edge, options.EdgeLeft = s.keeper.Wish, m.left()
	return s
}

// openAddresses opens a socket in the namespace of the table, where it stays.
func openAddresses(cfg *config.Config) (edge.Addresses, error) {
	path, err := ipvsNamespace(cfg)
	if err != nil {
		return nil, fmt.Errorf("net_namespace_ipvs: %w", err)
	}
	var a *vip.Addresses
	if nerr := inNamespace(path, func() { a, err = vip.Open() }); nerr != nil {
		return nil, nerr
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

func openFilter(cfg *config.Config) (edge.Filter, error) {
	path, err := ipvsNamespace(cfg)
	if err != nil {
		return nil, fmt.Errorf("net_namespace_ipvs: %w", err)
	}
	f, err := filter.Open(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// start works until end.
func (s *surroundings) start() {
	if s.keeper == nil {
		return
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.done = make(chan struct{})
	go func() { defer close(s.done); s.keeper.Run(ctx) }()
}

// end lets go of the machine. What the engine wished last is done before, unless the
// table stays for the next process: then everything does.
func (s *surroundings) end(stays bool) {
	if s.stop == nil {
		return
	}
	if !stays {
		ctx, cancel := context.WithTimeout(context.Background(), edgeEnd)
		defer cancel()
		if err := s.keeper.Release(ctx); err != nil {
			s.log.Error("Not everything around the table was taken away; the next start does it", event.Key, event.KernelUnset, "err", err)
		}
	}
	s.stop()
	<-s.done
}

// stays reports whether the table, and all around it, is left for the next process.
func (d *daemon) stays() bool { return d.handed() || d.config.Global.OnStop == config.OnStopKeep }
