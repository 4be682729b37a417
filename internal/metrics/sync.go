package metrics

import "github.com/sluice-lb/sluice/internal/engine"

// syncDaemon writes how the kernel's connection synchronisation is.
func (e *encoder) syncDaemon(s *engine.Sync) {
	if s == nil {
		return
	}
	each := func(f family, value func(*engine.SyncHalf) (v float64, has bool)) {
		for i := range s.Halves {
			if v, has := value(&s.Halves[i]); has {
				e.begin(f)
				e.label("state", s.Halves[i].State)
				e.value(v)
			}
		}
	}
	each(syncWanted, func(h *engine.SyncHalf) (float64, bool) { return truth(h.Wanted), true })
	each(syncUp, func(h *engine.SyncHalf) (float64, bool) { return truth(h.Running), true })
	e.single(syncUndecided, truth(s.Undecided))
	each(syncQueue, func(h *engine.SyncHalf) (float64, bool) {
		if h.Traffic == nil {
			return 0, false
		}
		return number(h.Traffic.Queue), true
	})
	each(syncDrops, func(h *engine.SyncHalf) (float64, bool) {
		if h.Traffic == nil {
			return 0, false
		}
		return number(h.Traffic.Drops), true
	})
}
