package dial

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// TestFaultOfAnError: the stage is that of the step, unless nothing was sent because
// this machine could not.
func TestFaultOfAnError(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:80")
	of := func(op string, late bool, err error) error { return &Error{Op: op, Target: at, Late: late, Err: err} }
	for name, tt := range map[string]struct {
		err  error
		want checker.Fault
	}{
		"refused":        {of("connect", true, unix.ECONNREFUSED), checker.Fault{Stage: checker.StageConnect, Errno: unix.ECONNREFUSED}},
		"no route":       {of("connect", false, unix.ENETUNREACH), checker.Fault{Stage: checker.StageConnect, Errno: unix.ENETUNREACH}},
		"timeout":        {of("connect", true, os.ErrDeadlineExceeded), checker.Fault{Stage: checker.StageConnect, Timeout: true}},
		"no descriptors": {of("socket", false, unix.EMFILE), checker.Fault{Stage: checker.StagePrepare, Errno: unix.EMFILE}},
		"mark":           {of("fwmark", false, unix.EPERM), checker.Fault{Stage: checker.StagePrepare, Errno: unix.EPERM}},
		"source":         {of("bind", false, unix.EADDRNOTAVAIL), checker.Fault{Stage: checker.StagePrepare, Errno: unix.EADDRNOTAVAIL}},
		"no port":        {of("connect", false, unix.EADDRNOTAVAIL), checker.Fault{Stage: checker.StagePrepare, Errno: unix.EADDRNOTAVAIL}},
		"too late":       {of("start", false, errLate), checker.Fault{Stage: checker.StagePrepare, Got: errLate.Error()}},
		"ICMP":           {of("receive", true, &QueuedError{Errno: unix.EHOSTUNREACH, Origin: unix.SO_EE_ORIGIN_ICMP, Type: 3, Code: 1}), checker.Fault{Stage: checker.StageConnect, Errno: unix.EHOSTUNREACH, Got: "ICMP host unreachable: no route to host (EHOSTUNREACH)"}},
		"end":            {io.EOF, checker.Fault{Stage: checker.StageConnect, Got: "connection closed by the peer"}},
		"protocol":       {errors.New("no such thing"), checker.Fault{Stage: checker.StageConnect, Got: "no such thing"}},
		"mismatch":       {&checker.Mismatch{Got: "503", Want: "200"}, checker.Fault{Stage: checker.StageConnect, Got: "503", Want: "200"}},
		"cancelled":      {context.Canceled, checker.Fault{Stage: checker.StageConnect}},
		"bare errno":     {syscall.ECONNRESET, checker.Fault{Stage: checker.StageConnect, Errno: unix.ECONNRESET}},
	} {
		for _, target := range []string{"", "http://x/"} {
			o := Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: "peer", Target: target}, tt.err, time.Now())
			want := tt.want
			if want.Target = target; target == "" {
				want.Target = "peer"
			}
			if o.Fault == nil || *o.Fault != want {
				t.Errorf("%s: %q: fault %+v\nwant %+v", name, o.Reason, o.Fault, want)
			}
		}
	}
}

// silentTalk asks for one connection and waits for an answer.
type silentTalk struct{ conn config.Connection }

func (s *silentTalk) Run(context.Context) checker.Outcome { panic("it is led") }
func (s *silentTalk) Begin() *config.Connection           { return &s.conn }
func (s *silentTalk) Connected() ([]byte, bool)           { return []byte("hello"), true }
func (s *silentTalk) Received([]byte) bool                { return true }
func (s *silentTalk) Ended(checker.Step, error)           {}
func (s *silentTalk) Next() (*config.Connection, checker.Outcome) {
	return nil, checker.Outcome{}
}

func TestCancelledConversationHasAFault(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	target := netip.MustParseAddrPort("192.0.2.1:80")
	o := Converse(ctx, &silentTalk{config.Connection{Target: target, Timeout: time.Minute}}, nil)
	want := checker.Fault{Stage: checker.StageConnect, Target: target.String()}
	if o.Result != checker.Unable || o.Fault == nil || *o.Fault != want {
		t.Errorf("%+v, fault %+v", o, o.Fault)
	}
}
