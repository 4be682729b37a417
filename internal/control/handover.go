package control

import (
	"context"
	"net/http"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
)

// Handover is what a daemon that makes way leaves to the next one.
type Handover struct {
	PID int `json:"pid"` // its number as a process
	// Status is the exit status it ends with.
	Status  int       `json:"exit_status"`
	Version string    `json:"version"` // of its program
	Started time.Time `json:"started"` // when it was started
	// StateFile is "" without one: the next process goes by the table alone.
	StateFile string `json:"state_file,omitempty"`
	// Services are those it leaves in the table, Draining the destinations that are
	// on their way out.
	Services int `json:"services"`
	Draining int `json:"draining"`
}

func (s *Server) handover(w http.ResponseWriter, r *http.Request) {
	if s.Log != nil {
		uid, pid := peer(r.Context())
		s.Log.Info("Handover asked for over the control socket", event.Key, event.Asked, "uid", uid, "pid", pid)
	}
	h, err := s.Handover(r.Context())
	if err != nil {
		answer(w, http.StatusConflict, problem{err.Error()})
		return
	}
	answer(w, http.StatusOK, h)
}

// Handover has the daemon save its state and end, the table as it is.
func (c *Client) Handover(ctx context.Context) (Handover, error) {
	b, err := c.do(ctx, http.MethodPost, "/v1/handover", nil)
	return decoded[Handover](c, b, err)
}
