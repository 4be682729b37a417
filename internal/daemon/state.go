package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/state"
)

// DefaultStateDir is where the state file is unless told otherwise.
const DefaultStateDir = "/var/lib/sluice"

// exitHandover is the exit status of a handover (EX_TEMPFAIL). The unit file has it.
const exitHandover = 75

// store is the state file; nil for none.
type store struct {
	dir    *state.Dir
	writer *state.Writer
	saved  *state.State
}

// openStore takes the folder and reads what is in it. The daemon does without a
// state file where there cannot be one: a table can be adopted without.
func openStore(log *slog.Logger, path string) *store {
	dir, err := state.Open(path, log)
	if err != nil {
		hint := "make it writable, or name another with --state-dir"
		if errors.Is(err, state.ErrLocked) {
			hint = "give each daemon a folder of its own with --state-dir"
		}
		log.Error("No state is kept: a restart will go by the IPVS table alone", event.Key, event.StateFailed, "err", err, "hint", hint)
		return nil
	}
	return &store{dir: dir, writer: state.NewWriter(dir, log), saved: dir.Load()}
}

// tell gives the engine what was saved and has it save.
func (s *store) tell(o *engine.Options) {
	if s != nil {
		o.Saved, o.Save = s.saved, s.writer.Save
	}
}

// before is what an earlier process left, nil for nothing.
func (s *store) before() *state.State {
	if s == nil {
		return nil
	}
	return s.saved
}

// run writes until the context ends, then what is left, and gives the folder back.
// The context must outlive the engine's.
func (s *store) run(ctx context.Context) error {
	if s == nil {
		return nil
	}
	return errors.Join(s.writer.Run(ctx), s.close())
}

// close gives the folder back.
func (s *store) close() error {
	if s == nil {
		return nil
	}
	return s.dir.Close()
}

func (s *store) file() string {
	if s == nil {
		return ""
	}
	return s.dir.File()
}

// handover has the daemon end for the next process to go on from: the state is on
// the disk when this returns, and the table is not changed any more at the end.
func (d *daemon) handover(ctx context.Context) (control.Handover, error) {
	if d.opts.Observe {
		return control.Handover{}, errors.New("it only observes, so there is nothing to hand over; stop it and start it again")
	}
	err := d.engine.Handover(ctx, true)
	if err == nil && d.store != nil {
		if err = d.store.writer.Flush(); err != nil {
			err = fmt.Errorf("the state could not be saved, going on as before: %w", err)
		}
	}
	if err != nil {
		// The request may be over by now; the change of mind must not be.
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return control.Handover{}, errors.Join(err, d.engine.Handover(back, false))
	}
	s := d.engine.Snapshot()
	h := control.Handover{PID: os.Getpid(), Status: exitHandover, Version: s.Version, Started: s.Started, StateFile: d.store.file()}
	for _, vs := range s.VirtualServers {
		h.Services += len(vs.Services)
		h.Draining += drains(vs.Services)
	}
	h.Services += len(s.Leaving)
	h.Draining += drains(s.Leaving)
	d.log.Info("Handing over: ending with the IPVS table as it is", event.Key, event.Handover, "services", h.Services, "draining", h.Draining, "exit_status", exitHandover)
	d.handedOver.Do(func() { close(d.handing) })
	return h, nil
}

// operate carries out an operator's command. It is on the disk before it is
// acknowledged; if it cannot be written it is in force all the same.
func (d *daemon) operate(ctx context.Context, c engine.Command) ([]engine.Override, error) {
	done, err := d.engine.Operate(ctx, c)
	if err != nil || d.store == nil {
		return done, err
	}
	if err := d.store.writer.Flush(); err != nil {
		d.log.Error("An operator's command is in force and could not be saved: a restart would forget it", event.Key, event.OperatorForgotten, "err", err)
	}
	return done, nil
}

func drains(services []engine.Service) (n int) {
	for _, s := range services {
		for _, dest := range s.Destinations {
			if dest.Drain != nil {
				n++
			}
		}
	}
	return n
}

// handed reports whether the end is a handover.
func (d *daemon) handed() bool {
	select {
	case <-d.handing:
		return true
	default:
		return false
	}
}
