package control

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/engine"
)

// maxPlan bounds a configuration that is sent: 30,000 real servers with their checks
// spelled out make about 20 MB.
const maxPlan = 64 << 20

// longTimeout bounds what works through a whole configuration.
const longTimeout = 2 * time.Minute

// PlanRequest is a configuration to be planned. The client has read the file, with its
// own rights and includes: the daemon opens no path that a client names.
type PlanRequest struct {
	// File is what it was read from, for people.
	File string `json:"file"`
	// Text is the effective configuration, as config.Print writes it.
	Text string `json:"text"`
	// Findings are those of the file: the text has none any more, and a reload may be
	// refused for them.
	Findings []diag.Finding `json:"findings,omitempty"`
}

// OfferPlan answers POST /v1/plan: with a PlanRequest as body what a reload to that
// would do, without a body what one to the daemon's own file would. plan gets nil for
// that.
func (s *Server) OfferPlan(plan func(context.Context, *PlanRequest) (*engine.Plan, error)) {
	s.Offer(Route{Pattern: "POST /v1/plan", Right: Read, MaxBody: maxPlan, Serve: func(w http.ResponseWriter, r *http.Request) {
		// It takes longer than what is answered from memory.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(longTimeout))
		var req *PlanRequest
		if r.ContentLength != 0 {
			req = &PlanRequest{}
			if err := json.NewDecoder(r.Body).Decode(req); err != nil {
				Refuse(w, &engine.CommandError{Code: engine.CodeInvalid, Message: "the request cannot be read: " + err.Error()})
				return
			}
		}
		p, err := plan(r.Context(), req)
		if err != nil {
			Refuse(w, err)
			return
		}
		Answer(w, p)
	}})
}

// Plan asks what a reload would do: to a configuration, or with nil to the daemon's own
// file as it is now. A configuration that a reload would refuse is a result, not an
// error.
func (c *Client) Plan(ctx context.Context, req *PlanRequest) (*engine.Plan, error) {
	var body []byte
	if req != nil {
		var err error
		if body, err = json.Marshal(req); err != nil {
			return nil, err
		}
	}
	b, err := c.within(ctx, longTimeout, http.MethodPost, "/v1/plan", body)
	return decoded[*engine.Plan](c, b, err)
}
