package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/web"
)

// TestListenerAnswersAreAsDescribed holds what http_listen answers programs to the schemas
// in docs/schema, in each of its situations.
func TestListenerAnswersAreAsDescribed(t *testing.T) {
	const token = "0123456789abcdef"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	up, twins := snapshot(true), snapshot(true)
	up.VirtualServers[0].Label, up.VirtualServers[0].Protocol = "shop", "TCP"
	one := twins.VirtualServers[0]
	one.Name, one.Group, one.Protocol = "[dns]:0", "dns", "TCP"
	other := one
	other.Protocol = "UDP"
	twins.VirtualServers = []engine.VirtualServer{one, other}
	broken := snapshot(true)
	broken.Kernel = engine.Kernel{Error: "not permitted"}
	order := engine.Override{VS: "v", Server: "r", Kind: engine.VerbDrain, Who: "http:192.0.2.1"}
	for name, tt := range map[string]struct {
		state   *engine.Snapshot
		path    string
		post    string // the verb's form; a wrong token for "wrong"
		refusal error
		schema  string
		status  int
		has     string
	}{
		"ready":              {state: up, path: "/readyz", schema: "readyz", status: 200, has: `{"ready":true}`},
		"not ready":          {state: broken, path: "/readyz", schema: "readyz", status: 503, has: `"reason":"the kernel's table`},
		"serves":             {state: up, path: "/vs/shop", schema: "vs", status: 200, has: `"protocol":"TCP"`},
		"serves nobody":      {state: snapshot(false), path: "/vs/%5B192.0.2.1%5D:tcp:80", schema: "vs", status: 503, has: `"quorum_up":false`},
		"all":                {state: twins, path: "/vs/", schema: "vs-list", status: 200, has: `"protocol":"UDP"`},
		"all of nothing":     {state: &engine.Snapshot{}, path: "/vs/", schema: "vs-list", status: 200, has: `[]`},
		"none of that name":  {state: up, path: "/vs/x", schema: "vs-misnamed", status: 404, has: `"status":404`},
		"two of that name":   {state: twins, path: "/vs/dns", schema: "vs-misnamed", status: 409, has: `"candidates":["[dns]:0/TCP","[dns]:0/UDP"]`},
		"a drain":            {state: up, path: "/admin/drain", post: "vs=v&rs=r", schema: "drains", status: 200, has: `"kind":"drain"`},
		"a wrong token":      {state: up, path: "/admin/drain", post: "wrong", schema: "refusal", status: 401, has: `token`},
		"a field that is no": {state: up, path: "/admin/drain", post: "x=y", schema: "refusal", status: 400, has: `no field`},
		"a refusal":          {state: up, path: "/admin/drain", post: "vs=v&rs=r", refusal: &engine.CommandError{Code: engine.CodeAmbiguous, Message: "m", Candidates: []string{"a"}}, schema: "refusal", status: 422, has: `"candidates":["a"]`},
		"a failure":          {state: up, path: "/admin/drain", post: "vs=v&rs=r", refusal: errors.New("the loop stands"), schema: "refusal", status: 503, has: `the loop`},
	} {
		t.Run(name, func(t *testing.T) {
			s := &web.Server{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Overview: func() *engine.Snapshot { return tt.state },
				Operate: func(context.Context, engine.Command) ([]engine.Override, error) {
					return []engine.Override{order}, tt.refusal
				}}
			s.Applied()
			s.ConfigureAdmin(file)
			r := httptest.NewRequest(http.MethodGet, tt.path, nil)
			r.Header.Set("Accept", "application/json")
			if tt.post != "" {
				r = httptest.NewRequest(http.MethodPost, tt.path, strings.NewReader(tt.post))
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				r.Header.Set("Authorization", "Bearer "+strings.Replace(token, "0", map[bool]string{true: "1", false: "0"}[tt.post == "wrong"], 1))
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			b, err := io.ReadAll(w.Result().Body)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := holds(tt.schema, string(b)); err != nil || w.Code != tt.status || !strings.Contains(string(b), tt.has) || !json.Valid(b) {
				t.Errorf("status %d, want %d and %q; %v\n%s", w.Code, tt.status, tt.has, err, b)
			}
		})
	}
}
