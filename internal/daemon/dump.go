package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-lb/sluice/internal/build"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
)

// dumps writes what scripts collect: the state when SIGUSR1 asks for it
// (state_dump_file), and the configurations around a reload (config_save_dir).
// Files are replaced whole, readable by their owner alone, and named as
// keepalived's; a failure is a warning.
type dumps struct {
	log    *slog.Logger
	status func(context.Context) *engine.Snapshot
	pid    int

	global atomic.Pointer[config.Global]
	asked  chan struct{}
	// saves counts the reloads that were saved.
	saves int
}

func newDumps(log *slog.Logger) *dumps {
	return &dumps{log: log, pid: os.Getpid(), asked: make(chan struct{}, 1)}
}

// configure takes the running configuration.
func (d *dumps) configure(cfg *config.Config) { d.global.Store(&cfg.Global) }

// state asks for the state's file. It never blocks.
func (d *dumps) state() {
	if d.global.Load().Paths.StateDump == "" {
		return
	}
	select {
	case d.asked <- struct{}{}:
	default: // one that has not begun will show the same
	}
}

// run writes the state's file when asked, beside the signals: reading the kernel
// and writing to a disk take their time.
func (d *dumps) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.asked:
			d.writeState(ctx)
		}
	}
}

// stateTimeout bounds the reading of the kernel's table.
const stateTimeout = 10 * time.Second

func (d *dumps) writeState(ctx context.Context) {
	path := statePath(d.global.Load())
	if path == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	s := d.status(ctx)
	err := replace(path, func(w io.Writer) error {
		_, err := render.Status(w, s, render.Options{Wide: true, Version: build.String()})
		return err
	})
	if err != nil {
		d.log.Warn("The state was not written to state_dump_file; sluice status shows it", event.Key, event.FileFailed, "path", path, "err", err)
		return
	}
	d.log.Info("State written", event.Key, event.FileWritten, "path", path)
}

// statePath is the name of the state's file, made as keepalived makes that of its
// checker; "" for none.
func statePath(g *config.Global) string {
	if g.Paths.StateDump == "" {
		return ""
	}
	parts := []string{"check"}
	if g.Paths.InstanceInNames {
		for _, s := range []string{g.NetNamespace, g.Instance} {
			if s != "" {
				parts = append(parts, s)
			}
		}
	}
	ext := filepath.Ext(g.Paths.StateDump)
	return strings.TrimSuffix(g.Paths.StateDump, ext) + "_" + strings.Join(parts, "_") + ext
}

// before saves the configuration that a reload replaces and returns what saves
// the one that runs then. Both go where the new one says, or the old one if that
// says nothing, so that a reload that changes the folder has its pair together.
func (d *dumps) before(old, cfg *config.Config) (after func()) {
	dir := cfg.Global.Paths.SaveDir
	if dir == "" {
		dir = old.Global.Paths.SaveDir
	}
	if dir == "" {
		return func() {}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		d.log.Warn("The configurations of this reload are not saved: make the folder, or name another one after config_save_dir", event.Key, event.FileFailed, "err", err)
		return func() {}
	}
	d.saves++
	base := filepath.Join(dir, fmt.Sprintf("keepalived_check.%d.%d.", d.pid, d.saves))
	d.save(base+"pre", old)
	return func() { d.save(base+"post", cfg) }
}

func (d *dumps) save(path string, cfg *config.Config) {
	if err := replace(path, func(w io.Writer) error { return config.Print(w, cfg) }); err != nil {
		d.log.Warn("A configuration is not saved in config_save_dir; the reload itself is not affected", event.Key, event.FileFailed, "path", path, "err", err)
	}
}

// replace writes a file of mode 0600 that is whole from the moment at which it
// has its name. The new file is created and not opened, and a link that others
// have put in its place is replaced and not followed: folders like /tmp are safe.
func replace(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	b := bufio.NewWriter(f)
	err = write(b)
	if err == nil {
		err = b.Flush()
	}
	if err == nil {
		// A umask may have taken away more than the mode does.
		err = f.Chmod(0o600)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
