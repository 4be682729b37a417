package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os/user"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/engine"
)

// clientTimeout bounds one request when the caller's context does not.
const clientTimeout = 10 * time.Second

// maxAnswer bounds an answer: 10,000 real servers make about 10 MB.
const maxAnswer = 256 << 20

// ErrVersion is wrapped by a client's error when the daemon does not have what
// was asked of it, or answers something that this release cannot read.
var ErrVersion = errors.New("sluice and sluiced are of different versions")

// ErrRefused is wrapped by a client's error when the daemon understood and said no.
var ErrRefused = errors.New("the daemon refuses")

// Client asks a daemon. Its errors are sentences for an operator. It may be used
// by several goroutines.
type Client struct {
	path string
	http http.Client
}

// NewClient returns a client for the socket at path. It does not connect yet.
func NewClient(path string) *Client {
	c := &Client{path: path}
	c.http.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}
	return c
}

// Part is a part of the state that has to be asked for.
type Part string

// Foreign asks for the services that are not ours.
const Foreign Part = "foreign"

// Status returns the daemon's state. A daemon that does not know a part leaves it
// out.
func (c *Client) Status(ctx context.Context, parts ...Part) (*engine.Snapshot, error) {
	b, err := c.StatusJSON(ctx, parts...)
	return decoded[*engine.Snapshot](c, b, err)
}

// StatusJSON returns the daemon's state as it sent it, with whatever fields this
// release does not know.
func (c *Client) StatusJSON(ctx context.Context, parts ...Part) ([]byte, error) {
	query := url.Values{}
	for _, p := range parts {
		query.Set(string(p), "1")
	}
	path := "/v1/status"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.do(ctx, http.MethodGet, path, nil)
}

// Reload asks the daemon to read its configuration anew and waits for the result.
// A configuration that was refused is a result, not an error.
func (c *Client) Reload(ctx context.Context) (engine.Reload, error) {
	b, err := c.within(ctx, longTimeout, http.MethodPost, "/v1/reload", nil)
	return decoded[engine.Reload](c, b, err)
}

// decoded is what an answer says, or why there is none.
func decoded[T any](c *Client, b []byte, err error) (v T, _ error) {
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(b, &v); err != nil {
		var none T
		return none, c.unreadable(err)
	}
	return v, nil
}

// stream makes a request whose answer comes line by line, for as long as ctx lasts.
func (c *Client) stream(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://sluiced"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err, clientTimeout)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, c.explain(err, clientTimeout)
	}
	return nil, notDone(res, b)
}

// do makes a request with a body or, if that is nil, without.
func (c *Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	return c.within(ctx, clientTimeout, method, path, body)
}

// within is do for what may take longer.
func (c *Client) within(ctx context.Context, limit time.Duration, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://sluiced"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err, limit)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, c.explain(err, limit)
	case len(b) > maxAnswer:
		return nil, fmt.Errorf("the daemon's answer is longer than %d MB", maxAnswer>>20)
	case res.StatusCode == http.StatusOK:
		return bytes.TrimSpace(b), nil
	}
	return nil, notDone(res, b)
}

// notDone is the error of an answer that is not 200.
func notDone(res *http.Response, body []byte) error {
	if res.StatusCode == http.StatusNotFound {
		return fmt.Errorf("the daemon has no %s %s: %w; compare: sluice version, and the first line of sluice status", res.Request.Method, res.Request.URL.RequestURI(), ErrVersion)
	}
	if e := commandError(res.StatusCode, body); e != nil {
		return e
	}
	var p problem
	if json.Unmarshal(body, &p) != nil || p.Error == "" {
		p.Error = res.Status
	}
	if res.StatusCode == http.StatusForbidden {
		return fmt.Errorf("%w: %s", fs.ErrPermission, p.Error)
	}
	return fmt.Errorf("%w: %s", ErrRefused, p.Error)
}

// unreadable is for an answer that is not what this release expects.
func (c *Client) unreadable(err error) error {
	return fmt.Errorf("the daemon's answer cannot be read: %w (%w)", ErrVersion, err)
}

// explain turns a failure of the transport into what an operator can act on.
func (c *Client) explain(err error, limit time.Duration) error {
	var ne net.Error
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("is sluiced running? looked for %s: %w", c.path, fs.ErrNotExist)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("sluiced is not running: nobody answers on %s: %w", c.path, unix.ECONNREFUSED)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %s is for %s; use sudo", fs.ErrPermission, c.path, audience(c.path))
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("ask sluiced on %s: %w", c.path, context.Canceled)
	case errors.As(err, &ne) && ne.Timeout():
		return fmt.Errorf("sluiced does not answer on %s (waited %v): %w", c.path, limit, context.DeadlineExceeded)
	}
	return fmt.Errorf("ask sluiced on %s: %w", c.path, err)
}

// audience says who may use a socket.
func audience(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return "root"
	}
	owner, group := strconv.Itoa(int(st.Uid)), strconv.Itoa(int(st.Gid))
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	}
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	if st.Mode&0o020 == 0 {
		return "user " + owner
	}
	return fmt.Sprintf("user %s and group %s", owner, group)
}
