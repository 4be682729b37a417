package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

// OfferExplain adds GET /v1/explain?vs=&rs=.
func (s *Server) OfferExplain(hook func(ctx context.Context, vs, rs string) (*engine.Explanation, error)) {
	s.Offer(Route{Pattern: "GET /v1/explain", Right: Read, Serve: func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		x, err := hook(r.Context(), q.Get("vs"), q.Get("rs"))
		if err != nil {
			Refuse(w, err)
			return
		}
		Answer(w, x)
	}})
}

// TestRequest is the body of POST /v1/test.
type TestRequest struct {
	VS string `json:"virtual_server"`
	RS string `json:"real_server"`
}

// OfferTest adds POST /v1/test, which answers with a line of JSON for each
// engine.TrialLine as it comes.
func (s *Server) OfferTest(hook func(ctx context.Context, client, who, vs, rs string, tell func(engine.TrialLine) error) error) {
	s.Offer(Route{Pattern: "POST /v1/test", Right: Write, Serve: func(w http.ResponseWriter, r *http.Request) {
		var req TestRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			Refuse(w, &engine.CommandError{Code: engine.CodeInvalid, Message: "the request cannot be read: " + err.Error()})
			return
		}
		begun := false
		out, enc := http.NewResponseController(w), json.NewEncoder(w)
		tell := func(l engine.TrialLine) error {
			if !begun {
				w.Header().Set("Content-Type", "application/x-ndjson")
				begun = true
			}
			// Each line has its time: a check may take as long as it is configured to.
			if err := out.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
				return err
			}
			return errors.Join(enc.Encode(l), out.Flush())
		}
		// The time for reading the request is over before a slow check is, and would
		// count as the client's departure.
		if err := out.SetReadDeadline(time.Time{}); err != nil {
			Refuse(w, err)
			return
		}
		uid, pid := peer(r.Context())
		err := hook(r.Context(), fmt.Sprintf("%d/%d", uid, pid), who(r.Context()), req.VS, req.RS, tell)
		switch {
		case err != nil && !begun:
			Refuse(w, err)
		case err != nil:
			_ = tell(engine.TrialLine{Line: "end", Error: err.Error()}) // the client may be gone
		}
	}})
}

// Explain asks why a real server is as it is. The error is an *engine.CommandError if
// nothing, or more than one, has that name.
func (c *Client) Explain(ctx context.Context, vs, rs string) (*engine.Explanation, error) {
	q := url.Values{"vs": {vs}, "rs": {rs}}
	b, err := c.do(ctx, http.MethodGet, "/v1/explain?"+q.Encode(), nil)
	return decoded[*engine.Explanation](c, b, err)
}

// maxTrialLine bounds one line of a transcript.
const maxTrialLine = 1 << 20

// Test has the daemon run a real server's checks once and calls tell with each line of
// the transcript as it comes, the last of which is "end". It takes as long as the
// checks may: ctx bounds it. The error is an *engine.CommandError if nothing was run.
func (c *Client) Test(ctx context.Context, vs, rs string, tell func(engine.TrialLine) error) error {
	body, err := json.Marshal(TestRequest{vs, rs})
	if err != nil {
		return err
	}
	res, err := c.stream(ctx, http.MethodPost, "/v1/test", body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxTrialLine)
	for lines.Scan() {
		var l engine.TrialLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return c.unreadable(err)
		}
		switch {
		case l.Error != "":
			return fmt.Errorf("the test was given up: %s", l.Error)
		case l.Line == "end":
			return tell(l)
		}
		if err := tell(l); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return c.explain(err, clientTimeout)
	}
	return fmt.Errorf("the daemon ended before the test did: %w", io.ErrUnexpectedEOF)
}
