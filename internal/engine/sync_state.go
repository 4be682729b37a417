package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Sync is lvs_sync_daemon's state.
type Sync struct {
	// TrackFile is the file that says which half runs, "" for none. Undecided: it says
	// nothing yet (it is not there, or holds no number), and what runs is left.
	TrackFile string `json:"track_file,omitempty"`
	Undecided bool   `json:"undecided,omitempty"`
	// Error is why the kernel could not be asked, "" if it could.
	Error string `json:"error,omitempty"`
	// Halves are master and backup, both of them always.
	Halves []SyncHalf `json:"halves"`
}

// SyncHalf is one of the kernel's two synchronisation daemons.
type SyncHalf struct {
	State string `json:"state"` // "master" sends connections, "backup" takes in another's
	// Wanted is what the configuration asks for, Running what the kernel said last.
	Wanted  bool      `json:"wanted"`
	Running bool      `json:"running"`
	Since   time.Time `json:"since,omitzero"` // when Running changed, as far as it was seen
	// Error is why it does not run as wanted; it is tried again.
	Error string `json:"error,omitempty"`
	// What follows is the one that runs, or else the wanted one; of one that is neither
	// it is empty.
	Interface string `json:"interface,omitempty"` // which the messages use
	SyncID    uint32 `json:"syncid"`              // tells groups of directors apart
	Group     string `json:"group,omitempty"`     // multicast group
	Port      uint16 `json:"port,omitempty"`      // UDP port, the first of them
	MaxLen    uint16 `json:"maxlen,omitempty"`    // octets of a message at most; 0 is the kernel's choice
	// Traffic is what its sockets say; nil unless it runs and they could be read.
	Traffic *SyncTraffic `json:"traffic,omitempty"`
	daemon  ipvs.SyncDaemon
}

// SyncTraffic are the kernel's sockets of a synchronisation daemon.
type SyncTraffic struct {
	Sockets int    `json:"sockets"`       // one for each of the sysctl's sync_ports
	Queue   uint64 `json:"queue_bytes"`   // what waits to be sent, or to be taken in
	Drops   uint64 `json:"receive_drops"` // messages that found no room in the socket, since the daemon was started
}

// syncing is what the loop knows of the daemons.
type syncing struct {
	// shown is what was published last, nil without lvs_sync_daemon. It is never changed.
	shown *Sync
	// leaving are when those end that another has taken the place of.
	leaving map[ipvs.SyncState]time.Time
}

// over reports whether one that another has taken the place of has had its time.
func (y *syncing) over(state ipvs.SyncState) bool {
	now := time.Now()
	if at, ok := y.leaving[state]; ok {
		return !now.Before(at)
	}
	if y.leaving == nil {
		y.leaving = map[ipvs.SyncState]time.Time{}
	}
	y.leaving[state] = now.Add(syncFlush)
	return false
}

// next is when the daemons are to be looked at though nothing changed; zero for never.
func (y *syncing) next(now time.Time) time.Time {
	if y.shown == nil {
		return time.Time{}
	}
	at := now.Add(syncLook)
	if y.shown.Undecided {
		at = now.Add(syncAwait)
	}
	for _, end := range y.leaving {
		if end.Before(at) {
			at = end
		}
	}
	return at
}

func (y *syncing) show(e *Engine, s *Sync) {
	if y.shown == nil && s == nil {
		return
	}
	if y.shown != nil && s != nil {
		same := y.shown.TrackFile == s.TrackFile && y.shown.Undecided == s.Undecided && y.shown.Error == s.Error
		if same && slices.Equal(y.shown.Halves, s.Halves) {
			return
		}
	}
	y.shown, e.headTouched = s, true
}

func (y *syncing) forget(e *Engine) { y.show(e, nil) }

// half is what was shown of one.
func (y *syncing) half(state ipvs.SyncState) SyncHalf {
	if y.shown != nil {
		for _, h := range y.shown.Halves {
			if h.daemon.State == state {
				return h
			}
		}
	}
	return SyncHalf{State: state.String(), daemon: ipvs.SyncDaemon{State: state}}
}

// refused keeps what is known, with the reason why no more is.
func (y *syncing) refused(e *Engine, c *config.SyncDaemon, err error) {
	s := y.begin(c)
	if s == nil {
		y.forget(e)
		return
	}
	s.Error = err.Error()
	for _, state := range syncStates {
		s.Halves = append(s.Halves, y.half(state))
	}
	y.show(e, s)
}

func (y *syncing) begin(c *config.SyncDaemon) *Sync {
	if c == nil {
		return nil
	}
	s := &Sync{}
	if c.File != nil {
		s.TrackFile = c.File.Name
	}
	return s
}

// found takes what runs now.
func (y *syncing) found(e *Engine, c *config.SyncDaemon, undecided bool, want, runs daemons, failed map[ipvs.SyncState]error) {
	s := y.begin(c)
	if s == nil {
		y.forget(e)
		return
	}
	if s.Undecided = undecided; undecided && (y.shown == nil || !y.shown.Undecided) {
		e.log.Info("Sync daemons left as they are, until the track file holds a number", event.Key, event.SyncDaemon, "track_file", c.File.Name)
	}
	for _, state := range syncStates {
		was := y.half(state)
		h := SyncHalf{State: state.String(), Since: was.Since, daemon: ipvs.SyncDaemon{State: state}}
		d, wanted := want[state]
		r, running := runs[state]
		h.Wanted, h.Running = wanted, running
		if h.Running != was.Running {
			h.Since = time.Now()
		}
		if running {
			d = r
		}
		if wanted || running {
			d = d.Canonical()
			h.Interface, h.SyncID, h.Group, h.Port, h.MaxLen, h.daemon = d.Interface, d.SyncID, d.Group.String(), d.Port, d.MaxLen, d
		}
		if err := failed[state]; err != nil {
			h.Error = err.Error()
		}
		s.Halves = append(s.Halves, h)
	}
	y.show(e, s)
}

// syncCounters keeps what was read of the sockets for a moment, so that many readers
// cost no more than one.
type syncCounters struct {
	mu      sync.Mutex
	of      *Sync
	at      time.Time
	traffic []*SyncTraffic
}

// countersAge is how long a reading of the sockets is good for.
const countersAge = time.Second

// traffic is a state with what the sockets of the daemons that run say now.
func (e *Engine) traffic(s *Sync) *Sync {
	if s == nil || e.opts.SyncSockets == nil {
		return s
	}
	k := &e.syncCounters
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now(); k.of != s || now.Sub(k.at) >= countersAge {
		k.of, k.at, k.traffic = s, now, make([]*SyncTraffic, len(s.Halves))
		for i := range s.Halves {
			if !s.Halves[i].Running {
				continue
			}
			// An error is no news: a daemon whose sockets cannot be read has no figures.
			sockets, err := e.opts.SyncSockets(s.Halves[i].daemon)
			if err != nil {
				continue
			}
			t := &SyncTraffic{Sockets: len(sockets)}
			for _, socket := range sockets {
				t.Queue += socket.Queue
				t.Drops += socket.Drops
			}
			k.traffic[i] = t
		}
	}
	out := *s
	out.Halves = slices.Clone(s.Halves)
	for i := range out.Halves {
		out.Halves[i].Traffic = k.traffic[i]
	}
	return &out
}
