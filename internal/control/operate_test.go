package control

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/engine"
)

// operator is a server whose daemon answers commands with what is given.
func operator(t *testing.T, out []engine.Override, failure error) (path string, got *engine.Command) {
	t.Helper()
	path, got = sockPath(t), &engine.Command{}
	s, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s.Operate = func(_ context.Context, c engine.Command) ([]engine.Override, error) {
		*got = c
		return out, failure
	}
	s.Overrides = func(context.Context) ([]engine.Override, error) { return out, failure }
	serve(t, s)
	return path, got
}

// TestOperate: a command arrives whole, with who sent it by the kernel's word and not
// the client's.
func TestOperate(t *testing.T) {
	want := []engine.Override{{VS: "v", Server: "r", Kind: engine.VerbDrain, Who: "x", Since: sample.Started, Active: 3}}
	path, got := operator(t, want, nil)
	w := int64(0)
	c := engine.Command{Verb: engine.VerbWeight, VS: "v", RS: "r", Server: "s", Weight: &w, Reason: "because", Until: sample.Started.Add(time.Hour), Force: true, Who: "somebody else"}
	out, err := NewClient(path).Operate(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, out); d != "" {
		t.Error(d)
	}
	c.Who = "uid " + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		c.Who = u.Username
	}
	if d := cmp.Diff(c, *got); d != "" {
		t.Error(d)
	}
	list, err := NewClient(path).Overrides(t.Context())
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestOperateRefused: what the daemon understood and did not do is told apart from
// what went wrong on the way.
func TestOperateRefused(t *testing.T) {
	for _, code := range []engine.Code{engine.CodeInvalid, engine.CodeUnknown, engine.CodeAmbiguous, engine.CodeRefused} {
		want := &engine.CommandError{Code: code, Message: "no", Candidates: []string{"a", "b"}}
		path, _ := operator(t, nil, want)
		_, err := NewClient(path).Operate(t.Context(), engine.Command{Verb: engine.VerbDrain})
		var got *engine.CommandError
		if !errors.As(err, &got) || cmp.Diff(want, got) != "" {
			t.Errorf("%s: %v", code, err)
		}
	}
	path, _ := operator(t, nil, errors.New("the loop did not answer"))
	_, err := NewClient(path).Operate(t.Context(), engine.Command{})
	var ce *engine.CommandError
	if err == nil || errors.As(err, &ce) || !strings.Contains(err.Error(), "the loop did not answer") {
		t.Errorf("%v", err)
	}
	if _, err := NewClient(path).Overrides(t.Context()); err == nil {
		t.Error("a list that could not be read is no error")
	}
}

// TestOperateUnreadable: a field that this release does not know may be a limit, so
// that nothing is done.
func TestOperateUnreadable(t *testing.T) {
	path, got := operator(t, nil, nil)
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	for _, body := range []string{"", "{", `{"verb":"drain","at_most":3}`, `[]`} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sluiced/v1/operate", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest || got.Verb != "" || !strings.Contains(string(b), `"code":"invalid"`) {
			t.Errorf("%q: %d %s, command %+v", body, res.StatusCode, b, *got)
		}
	}
}

// TestOperateOfAnOldDaemon: one that has no such command says so.
func TestOperateOfAnOldDaemon(t *testing.T) {
	path := sockPath(t)
	s, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, s)
	if _, err := NewClient(path).Operate(t.Context(), engine.Command{}); !errors.Is(err, ErrVersion) {
		t.Errorf("%v", err)
	}
}
