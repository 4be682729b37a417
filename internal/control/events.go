package control

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
)

// All asks for every event that is remembered.
const All = -1

// EventQuery says which events are wanted.
type EventQuery struct {
	// Since is the number of the last event that is known, or else Begin the time from
	// which on; with neither it is all that are remembered.
	Since uint64
	Begin time.Time
	// Start is that of the daemon that Since is a number of: of another daemon all is
	// wanted. Zero is the daemon that answers.
	Start time.Time
	// Limit is how many of the newest, All or 0 for none: with Follow, none of the past.
	Limit int
	// VS and RS are parts of names, Kinds whole ones; each empty for any.
	VS, RS string
	Kinds  []event.Kind
}

// Events is what GET /v1/events answers, and with follow=1 a line of it.
type Events struct {
	// Start is when the daemon was started, which numbers its events.
	Start time.Time `json:"start"`
	// Last is the number of the newest event there is, wanted or not.
	Last uint64 `json:"last"`
	// Missed are those that were asked for and are forgotten.
	Missed uint64 `json:"missed"`
	// Events are oldest first.
	Events []event.Event `json:"events"`
}

// OfferEvents serves what happened last.
func (s *Server) OfferEvents(l *event.Log) {
	s.Offer(Route{Pattern: "GET /v1/events", Right: Read, Serve: func(w http.ResponseWriter, r *http.Request) {
		q, err := parseEventQuery(r.URL.Query())
		if err != nil {
			Refuse(w, &engine.CommandError{Code: engine.CodeInvalid, Message: err.Error()})
			return
		}
		known, answer := firstEvents(l, &q)
		if r.URL.Query().Get("follow") == "" {
			Answer(w, answer)
			return
		}
		s.follow(w, r, l, &q, known, answer)
	}})
}

// firstEvents answers a query, and returns the number up to which that goes.
func firstEvents(l *event.Log, q *EventQuery) (known uint64, a Events) {
	since := q.Since
	if !q.Start.IsZero() && !q.Start.Equal(l.Start()) {
		since = 0
	}
	all, missed := l.Since(since, 0)
	a = Events{Start: l.Start(), Last: l.Last(), Events: []event.Event{}}
	if len(all) > 0 {
		a.Last = all[len(all)-1].Seq
	}
	// Whoever asks for what there is misses nothing.
	if since > 0 || !q.Begin.IsZero() && missed > 0 && len(all) > 0 && all[0].Time.After(q.Begin) {
		a.Missed = missed
	}
	for i := range all {
		if q.wants(&all[i]) {
			a.Events = append(a.Events, all[i])
		}
	}
	if q.Limit >= 0 && len(a.Events) > q.Limit {
		a.Events = a.Events[len(a.Events)-q.Limit:]
	}
	return a.Last, a
}

// follow streams events, a line of JSON for each batch, until the client or the daemon
// goes.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, l *event.Log, q *EventQuery, known uint64, a Events) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	// A stream has no end that the limit of an answer could wait for. What the client
	// does not read within it still ends it.
	c := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	send := func(a Events) bool {
		b, err := json.Marshal(a)
		if err != nil || c.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
			return false
		}
		_, err = w.Write(append(b, '\n'))
		return err == nil && c.Flush() == nil
	}
	over := false
	go func() {
		select {
		case <-s.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	for send(a) && !over {
		for a = (Events{Start: l.Start()}); len(a.Events) == 0 && a.Missed == 0 && !over; known = a.Last {
			// What happened until the daemon ended still goes out.
			over = l.Wait(ctx, known) != nil
			all, missed := l.Since(known, 0)
			a.Missed, a.Last = missed, known
			for i := range all {
				a.Last = all[i].Seq
				if q.wants(&all[i]) {
					a.Events = append(a.Events, all[i])
				}
			}
		}
		if over && len(a.Events) == 0 {
			return
		}
	}
}

// wants reports whether an event is asked for.
func (q *EventQuery) wants(e *event.Event) bool {
	kind := len(q.Kinds) == 0
	for _, k := range q.Kinds {
		kind = kind || k == e.Kind
	}
	return kind && !e.Time.Before(q.Begin) &&
		names(q.VS, e.VirtualServer, e.Attrs["service"], e.Attrs["vs_label"]) &&
		names(q.RS, e.RealServer, e.Attrs["destination"], e.Attrs["rs_label"])
}

// names reports whether a text is a part of any of the names; "" is of all.
func names(part string, names ...string) bool {
	if part == "" {
		return true
	}
	part = strings.ToLower(part)
	for _, n := range names {
		if strings.Contains(strings.ToLower(n), part) {
			return true
		}
	}
	return false
}

func (q *EventQuery) values() url.Values {
	v := url.Values{}
	switch {
	case !q.Begin.IsZero():
		v.Set("since", q.Begin.Format(time.RFC3339Nano))
	case q.Since > 0:
		v.Set("since", strconv.FormatUint(q.Since, 10))
	}
	if !q.Start.IsZero() {
		v.Set("start", q.Start.Format(time.RFC3339Nano))
	}
	if q.Limit >= 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	for key, text := range map[string]string{"vs": q.VS, "rs": q.RS} {
		if text != "" {
			v.Set(key, text)
		}
	}
	for _, k := range q.Kinds {
		v.Add("kind", string(k))
	}
	return v
}

func parseEventQuery(v url.Values) (q EventQuery, err error) {
	q.Limit, q.VS, q.RS = All, v.Get("vs"), v.Get("rs")
	if text := v.Get("since"); text != "" {
		if q.Since, err = strconv.ParseUint(text, 10, 64); err != nil {
			if q.Begin, err = time.Parse(time.RFC3339Nano, text); err != nil {
				return q, fmt.Errorf("since=%q is neither the number of an event nor a time (RFC 3339)", text)
			}
		}
	}
	if text := v.Get("start"); text != "" {
		if q.Start, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return q, fmt.Errorf("start=%q is no time (RFC 3339)", text)
		}
	}
	if text := v.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 0 {
			return q, fmt.Errorf("limit=%q is no number", text)
		}
	}
	for _, text := range v["kind"] {
		k := event.Kind(text)
		if !k.Known() {
			return q, fmt.Errorf("there is no kind of event %q, docs/events.md lists them", text)
		}
		q.Kinds = append(q.Kinds, k)
	}
	return q, nil
}

// Events returns what happened last.
func (c *Client) Events(ctx context.Context, q EventQuery) (Events, error) {
	b, err := c.do(ctx, http.MethodGet, "/v1/events?"+q.values().Encode(), nil)
	return decoded[Events](c, b, err)
}

// FollowEvents calls take for what happened last and then for what happens, until the
// daemon ends the stream (nil), the context ends, or take returns an error. The first
// call comes at once, be there events or not.
func (c *Client) FollowEvents(ctx context.Context, q EventQuery, take func(Events) error) error {
	v := q.values()
	v.Set("follow", "1")
	res, err := c.stream(ctx, http.MethodGet, "/v1/events?"+v.Encode(), nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			// A daemon that ends, however, ends its streams.
			return ctx.Err()
		}
		var a Events
		if err := json.Unmarshal(line, &a); err != nil {
			return c.unreadable(err)
		}
		if err := take(a); err != nil {
			return err
		}
	}
}
