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
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// director is a server whose daemon's switch is turned by what is asked.
func director(t *testing.T, failure error) (path string, is *Passive) {
	t.Helper()
	path, is = sockPath(t), &Passive{}
	s, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s.OfferPassive(func(context.Context) Passive { return *is },
		func(_ context.Context, on bool, who, reason string) error {
			if failure == nil {
				is.Passive, is.Sources = on, []engine.PassiveSource{}
				if on {
					is.Sources = []engine.PassiveSource{{Source: engine.PassiveByCommand, Who: who, Why: reason}}
				}
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
	want := Passive{Passive: true, Sources: []engine.PassiveSource{{Source: engine.PassiveByCommand, Who: me, Why: "new kernel"}}}
	p, err := c.SetPassive(t.Context(), PassiveOrder{Passive: true, Reason: "new kernel"})
	if err != nil || cmp.Diff(want, p) != "" || cmp.Diff(want, *is) != "" {
		t.Errorf("%+v, %v: %+v", p, err, *is)
	}
	if p, err := c.Passive(t.Context()); err != nil || cmp.Diff(want, p) != "" {
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

// TestPassiveCounts: what is not in the table is not counted, what leaves is, and what
// several virtual servers stand for once.
func TestPassiveCounts(t *testing.T) {
	mark := func(n uint32) ipvs.ServiceKey { return ipvs.ServiceKey{FWMark: n} }
	shared := engine.Service{Key: mark(1), Destinations: []engine.Destination{{Kernel: 0, Active: 2, Inactive: 1}, {Kernel: -1, Active: 100}}}
	source := engine.PassiveSource{Source: engine.PassiveByCommand, Who: "root"}
	s := &engine.Snapshot{
		Passive: &engine.Passive{On: true, Sources: []engine.PassiveSource{source}},
		Edge:    &engine.Edge{Announced: 5},
		VirtualServers: []engine.VirtualServer{
			{Services: []engine.Service{shared, {Key: mark(2), Destinations: []engine.Destination{{Kernel: -1}}}}},
			{Services: []engine.Service{shared, {Key: mark(3)}}},
		},
		Leaving: []engine.Service{{Key: mark(4), Destinations: []engine.Destination{{Kernel: 1, Inactive: 4}}}},
	}
	want := Passive{Passive: true, Sources: []engine.PassiveSource{source}, Delay: time.Second, VirtualServers: 2, Addresses: 5, Services: 2, Connections: 7}
	if d := cmp.Diff(want, PassiveOf(s, time.Second)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(Passive{Sources: []engine.PassiveSource{}}, PassiveOf(&engine.Snapshot{}, 0)); d != "" {
		t.Error(d)
	}
}
