package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/tcp"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/host/lane"
)

func viaCheck(target string, via *config.Via) *config.Checker {
	return &config.Checker{Kind: config.TCPCheck, Conn: config.Connection{Target: netip.MustParseAddrPort(target), Via: via, Timeout: time.Second}}
}

func TestLanesOfAConfiguration(t *testing.T) {
	one := &config.Via{Server: netip.MustParseAddr("10.0.0.11"), Forward: config.Forwarding{Method: config.TUN}, Mark: 0x53000001}
	cfg := &config.Config{VirtualServers: []*config.VirtualServer{{RealServers: []*config.RealServer{
		{Checkers: []*config.Checker{viaCheck("192.0.2.10:80", one), viaCheck("192.0.2.10:443", one), viaCheck("10.0.0.11:80", nil)}},
		{Checkers: []*config.Checker{viaCheck("[2001:db8::10]:80", one)}},
	}}}}
	want := []lane.Lane{
		{Mark: one.Mark, Server: one.Server, Forward: one.Forward},
		{Mark: one.Mark, Server: one.Server, Forward: one.Forward, IPv6: true},
	}
	if diff := cmp.Diff(want, lanesOf(cfg), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if lanesOf(nil) != nil {
		t.Error("lanes of no configuration")
	}
}

type asked struct{ n int }

func (p *asked) Run(context.Context) checker.Outcome {
	p.n++
	return checker.Outcome{Result: checker.Failed}
}

// A check whose lane does not work says nothing about the server, and is not made.
func TestNoVerdictWithoutALane(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	via := &config.Via{Server: netip.MustParseAddr("10.0.0.11"), Mark: 0x53000001}
	for name, l := range map[string]*lanes{"observing": newLanes(log, true, "", nil), "not there yet": newLanes(log, false, "", func(*edge.Failure) {})} {
		t.Run(name, func(t *testing.T) {
			inner := &asked{}
			o := l.lead(viaCheck("192.0.2.10:80", via), inner).Run(t.Context())
			if o.Result != checker.Unable || inner.n != 0 || !strings.Contains(o.Reason, "check_via") || !strings.Contains(o.Reason, "10.0.0.11") {
				t.Errorf("%v %q, asked %d times", o.Result, o.Reason, inner.n)
			}
			// A conversation stays one, which whoever leads it is told.
			c := viaCheck("192.0.2.10:80", via)
			talk, ok := l.lead(c, tcp.New(c)).(checker.Conversation)
			if !ok || talk.Begin() != nil {
				t.Fatalf("a conversation %t, or it begins", ok)
			}
			_, next := talk.Next()
			reason, _, _ := strings.Cut(o.Reason, " after ")
			for _, got := range []checker.Outcome{next, talk.Run(t.Context())} {
				if got.Result != checker.Unable || !strings.HasPrefix(got.Reason, reason) {
					t.Errorf("%v %q, want %q", got.Result, got.Reason, reason)
				}
			}
			if p := l.lead(viaCheck("10.0.0.11:80", nil), inner); p != checker.Probe(inner) {
				t.Error("a check without a lane is wrapped")
			}
		})
	}
}

// The mark of the folder is looked at once, and without it and the keyword nothing is
// asked of the kernel: who may do nothing would hear an error.
func TestLanesAreOffUnlessAskedFor(t *testing.T) {
	dir := t.TempDir()
	l := newLanes(slog.New(slog.DiscardHandler), false, dir, func(*edge.Failure) {})
	l.before(t.Context(), nil, &config.Config{})
	l.release(t.Context())
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 0 {
		t.Errorf("%q, %v", files, err)
	}
}

// BenchmarkLed is what one of a thousand checks costs whose lanes work, as the daemon
// runs them and as it would if none of them were a conversation.
func BenchmarkLed(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	via := &config.Via{Server: netip.MustParseAddr("10.0.0.11"), Mark: 0x53000001}
	for name, hide := range map[string]bool{"reactor": false, "goroutines": true} {
		b.Run(name, func(b *testing.B) {
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			front := checks(1)
			var runs atomic.Int64
			for i := range 1000 {
				c := viaCheck(l.Addr().String(), via)
				c.Conn.Timeout, c.Conn.Close = 10*time.Second, config.CloseReset
				talk := tcp.New(c).(checker.Conversation)
				of := led{Probe: talk, lane: func(uint32, bool) error { return nil }}
				probe := checker.Probe(&ledTalk{Conversation: talk, led: &of})
				if hide {
					probe = &of
				}
				front.Add(checker.Task{ID: checker.ID(i + 1), Probe: probe, Timeout: 10 * time.Second, Judge: func(o checker.Outcome) time.Duration {
					if o.Result != checker.OK {
						b.Error(o.Reason)
					}
					if runs.Add(1) == int64(b.N) {
						stop()
					}
					return 100 * time.Millisecond
				}})
			}
			var before, after syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
			b.ReportAllocs()
			b.ResetTimer()
			_ = front.Run(ctx)
			b.StopTimer()
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
			cpu := func(r *syscall.Rusage) int64 { return r.Utime.Nano() + r.Stime.Nano() }
			b.ReportMetric(float64(cpu(&after)-cpu(&before))/float64(b.N), "cpu-ns/op")
		})
	}
}

// What settings were is in the mark of the folder, for a process that comes after one
// that was killed.
func TestSettingsAreRemembered(t *testing.T) {
	m := newMarker(t.TempDir(), "check_via", "rules")
	if err := m.begin(); err != nil {
		t.Fatal(err)
	}
	want := []lane.Setting{{Device: "eth0.5", Name: "accept_local", Was: "0", Now: "1"}, {Device: "eth1", Name: "rp_filter", Was: "1", Now: "2"}}
	if err := m.keep(formatSettings(want)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, parseSettings(m.rest())); diff != "" || !m.left() {
		t.Error(diff)
	}
	if got := parseSettings("setting a/b x 0 1\nsetting eth0 rp_filter 1\nrules of check_via\n"); got != nil {
		t.Errorf("%v", got)
	}
	if err := errors.Join(m.end(), m.end()); err != nil || m.left() || m.rest() != "" {
		t.Errorf("%v", err)
	}
}

// TestLanesThatDoNotWorkAreTold by the first of them, as long as they are used.
func TestLanesThatDoNotWorkAreTold(t *testing.T) {
	var told []*edge.Failure
	l := newLanes(slog.New(slog.DiscardHandler), false, "", func(f *edge.Failure) { told = append(told, f) })
	server := netip.MustParseAddr("10.0.0.11")
	one, two := lane.Lane{Mark: 0x53000001, Server: server}, lane.Lane{Mark: 0x53000002, Server: server.Next()}
	for _, tt := range []struct {
		used []lane.Lane
		want string
	}{
		{nil, ""},
		{[]lane.Lane{one, two}, "through 10.0.0.11: the way through this real server is not set up yet; its checks keep their last state, tried again (and so for 1 more)"},
		{[]lane.Lane{two}, "through 10.0.0.12: the way through this real server is not set up yet; its checks keep their last state, tried again"},
		{nil, ""},
	} {
		l.use(tt.used)
		l.report()
		got := told[len(told)-1]
		if (got == nil) != (tt.want == "") || got != nil && (got.Feature != "check_via" || got.Reason != tt.want || got.Since.IsZero()) {
			t.Errorf("%v: told %+v, want %q", tt.used, got, tt.want)
		}
	}
	if a, b := told[1], told[2]; a != nil && b != nil && a.Since != b.Since {
		t.Error("it fails anew with each report")
	}
}
