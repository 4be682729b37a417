package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/user"
	"strconv"

	"github.com/sluice-lb/sluice/internal/engine"
)

// statusOf are the answers to commands that did nothing. Unknown is not 404, which
// says that the daemon is too old for the request.
var statusOf = map[engine.Code]int{
	engine.CodeInvalid: http.StatusBadRequest, engine.CodeUnknown: http.StatusUnprocessableEntity,
	engine.CodeAmbiguous: http.StatusUnprocessableEntity, engine.CodeRefused: http.StatusConflict,
}

func (s *Server) operate(w http.ResponseWriter, r *http.Request) {
	var c engine.Command
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields() // a limit that is not understood must not be left out
	if err := dec.Decode(&c); err != nil {
		answer(w, http.StatusBadRequest, engine.CommandError{Code: engine.CodeInvalid, Message: "the command cannot be read: " + err.Error()})
		return
	}
	c.Who = who(r.Context())
	done, err := s.Operate(r.Context(), c)
	if err != nil {
		Refuse(w, err)
		return
	}
	answer(w, http.StatusOK, done)
}

func (s *Server) overrides(w http.ResponseWriter, r *http.Request) {
	all, err := s.Overrides(r.Context())
	if err != nil {
		answer(w, http.StatusServiceUnavailable, problem{err.Error()})
		return
	}
	if all == nil {
		all = []engine.Override{}
	}
	answer(w, http.StatusOK, all)
}

// who names the user at the other end by what the kernel says of the connection.
func who(ctx context.Context) string {
	uid, _ := peer(ctx)
	if uid < 0 {
		return "unknown"
	}
	if u, err := user.LookupId(strconv.FormatInt(uid, 10)); err == nil {
		return u.Username
	}
	return fmt.Sprintf("uid %d", uid)
}

// Operate has the daemon carry out a command and returns the orders that it made or
// ended. The error is an *engine.CommandError if the daemon understood it and did
// nothing.
func (c *Client) Operate(ctx context.Context, cmd engine.Command) ([]engine.Override, error) {
	b, err := json.Marshal(cmd)
	if err != nil {
		return nil, err
	}
	return c.orders(ctx, http.MethodPost, "/v1/operate", b)
}

// Overrides lists what operators asked for and is in force, with the connections of
// the moment.
func (c *Client) Overrides(ctx context.Context) ([]engine.Override, error) {
	return c.orders(ctx, http.MethodGet, "/v1/overrides", nil)
}

func (c *Client) orders(ctx context.Context, method, path string, body []byte) ([]engine.Override, error) {
	b, err := c.do(ctx, method, path, body)
	return decoded[[]engine.Override](c, b, err)
}

// commandError reads what operate answers when it did nothing; nil for another kind of
// failure.
func commandError(status int, body []byte) error {
	var e engine.CommandError
	if status == http.StatusOK || json.Unmarshal(bytes.TrimSpace(body), &e) != nil || e.Code == "" {
		return nil
	}
	return &e
}
