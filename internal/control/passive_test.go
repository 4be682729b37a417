package control

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/engine"
)

// director is a server whose daemon's switch is turned by what is asked.
func director(t *testing.T, failure error) (path string, is *Passive) {
	t.Helper()
	path, is = sockPath(t), &Passive{}
	s, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s.OfferPassive(func(context.Context) (Passive, error) { return *is, nil },
		func(_ context.Context, on bool, who, reason string) error {
			if failure == nil {
				is.Passive, is.Command, is.By, is.Reason = on, on, who, reason
			}
			return failure
		})
	serve(t, s)
	return path, is
}

// TestPassive: the order arrives with who gave it by the kernel's word, and the answer is
// how it is afterwards.
func TestPassive(t *testing.T) {
	path, is := director(t, nil)
	c := NewClient(path)
	if p, err := c.Passive(t.Context()); err != nil || p.Passive {
		t.Fatalf("%+v, %v", p, err)
	}
	me := "uid " + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		me = u.Username
	}
	want := Passive{Passive: true, Command: true, By: me, Reason: "new kernel"}
	p, err := c.SetPassive(t.Context(), PassiveOrder{Passive: true, Reason: "new kernel"})
	if err != nil || p != want || *is != want {
		t.Errorf("%+v, %v: %+v", p, err, *is)
	}
	if p, err := c.Passive(t.Context()); err != nil || p != want {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := c.SetPassive(t.Context(), PassiveOrder{}); err != nil || p.Passive {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestPassiveRefused(t *testing.T) {
	path, _ := director(t, &engine.CommandError{Code: engine.CodeRefused, Message: "it is as it is"})
	_, err := NewClient(path).SetPassive(t.Context(), PassiveOrder{Passive: true})
	var refusal *engine.CommandError
	if !errors.As(err, &refusal) || refusal.Code != engine.CodeRefused {
		t.Errorf("%v", err)
	}
	path, is := director(t, nil)
	c := NewClient(path)
	for _, body := range []string{"", "{", `{"passive":true,"until":3}`} {
		if _, err := c.do(t.Context(), http.MethodPost, "/v1/passive", []byte(body)); err == nil || is.Passive || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("%q: %v, %+v", body, err, *is)
		}
	}
}

// TestPassiveCounts: what is not in the table is not counted, and what leaves is.
func TestPassiveCounts(t *testing.T) {
	s := &engine.Snapshot{
		VirtualServers: []engine.VirtualServer{
			{Services: []engine.Service{
				{Destinations: []engine.Destination{{Kernel: 0, Active: 2, Inactive: 1}, {Kernel: -1, Active: 100}}},
				{Destinations: []engine.Destination{{Kernel: -1}}},
			}},
			{Services: []engine.Service{{}}},
		},
		Leaving: []engine.Service{{Destinations: []engine.Destination{{Kernel: 1, Inactive: 4}}}},
	}
	p := Passive{Services: 9, Connections: 9}
	p.Count(s)
	if d := cmp.Diff(Passive{VirtualServers: 2, Services: 2, Connections: 7}, p); d != "" {
		t.Error(d)
	}
}
