// Package checkertest holds whoever leads a checker.Conversation, a goroutine that
// blocks or a reactor, to the same answers: a table of checks with peers that behave
// as servers do and as they should not, and what each check must say.
//
// # Decisions
//
// All cases of a table run at the same time, so that a leader of many conversations
// has to keep them apart, and each runs twice on one probe, since a conversation is
// used again. Reasons are compared whole, but for the time that the check took. Where
// the network may tell the same thing in several ways, as with a reset that can be
// seen by the connect, the send or the read, each of them is right. Each failure must
// have a fault, whose parts are those of its reason.
package checkertest

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// Lead leads one run of a conversation to its outcome.
type Lead func(checker.Conversation) checker.Outcome

// Build makes the probe of a check; it must be a checker.Conversation.
type Build func(*config.Checker) (checker.Probe, error)

// Case is a check and its peer.
type Case struct {
	Name string
	// Checker is what is checked; its target is filled in.
	Checker config.Checker
	// Target makes a target where nobody talks; nil for a listener with Peer.
	Target func(testing.TB) netip.AddrPort
	// Peer is called for each connection, which is closed when it returns.
	Peer func(*net.TCPConn)
	// Result and one of Reasons must come. TARGET stands for the target, and the
	// time at the end is left out.
	Result  checker.Result
	Reasons []string
}

// runs is how often each case runs.
const runs = 2

// hang is how long a run may take that has a deadline of a second or less.
const hang = 30 * time.Second

// Run runs all cases at the same time and holds each to what it must say.
func Run(t *testing.T, cases []Case, build Build, lead Lead) {
	t.Helper()
	type finished struct {
		of  int
		got []checker.Outcome
	}
	ended := make(chan finished, len(cases))
	checks := make([]config.Checker, len(cases))
	for i, c := range cases {
		checks[i] = c.Checker
		if c.Target != nil {
			checks[i].Conn.Target = c.Target(t)
		} else {
			checks[i].Conn.Target = serve(t, c.Peer)
		}
		probe, err := build(&checks[i])
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		talk, ok := probe.(checker.Conversation)
		if !ok {
			t.Fatalf("%s: a %T is no conversation", c.Name, probe)
		}
		go func() {
			f := finished{of: i}
			for range runs {
				f.got = append(f.got, lead(talk))
			}
			ended <- f
		}()
	}
	outcomes := make([][]checker.Outcome, len(cases))
	deadline := time.After(hang)
	for range cases {
		select {
		case f := <-ended:
			outcomes[f.of] = f.got
		case <-deadline:
			for i, c := range cases {
				if outcomes[i] == nil {
					t.Errorf("%s: no outcome after %v", c.Name, hang)
				}
			}
			return
		}
	}
	for i, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			for n, o := range outcomes[i] {
				c.hold(t, n, checks[i].Conn.Target.String(), o)
			}
		})
	}
}

// hold compares an outcome with what must come.
func (c *Case) hold(t *testing.T, run int, target string, o checker.Outcome) {
	t.Helper()
	got := Undated(strings.ReplaceAll(o.Reason, target, "TARGET"))
	if o.Result != c.Result || !slices.Contains(c.Reasons, got) {
		t.Errorf("run %d: %v: %q\nwant %v: %q", run, o.Result, got, c.Result, c.Reasons)
	}
	if o.Took <= 0 || o.Took > hang/2 {
		t.Errorf("run %d: took %v", run, o.Took)
	}
	if why := Unfounded(o); why != "" {
		t.Errorf("run %d: %v: %q: %s", run, o.Result, o.Reason, why)
	} else if f := o.Fault; f != nil && !strings.Contains(f.Target, target) {
		t.Errorf("run %d: fault %+v is about another target than %s", run, f, target)
	}
}

// Unfounded says what an outcome lacks of a fault that agrees with its reason, ""
// for nothing.
func Unfounded(o checker.Outcome) string {
	f := o.Fault
	switch {
	case o.Result == checker.OK && f != nil:
		return fmt.Sprintf("it is well and has the fault %+v", f)
	case o.Result == checker.OK:
		return ""
	case f == nil:
		return "it has no fault"
	case o.Reason == "cancelled":
		return ""
	case f.Errno != 0 && !strings.Contains(o.Reason, unix.ErrnoName(f.Errno)):
		return fmt.Sprintf("the reason lacks the errno of the fault %+v", f)
	case f.Errno == 0 && regexp.MustCompile(`\(E[A-Z]+\)`).MatchString(o.Reason):
		return fmt.Sprintf("the fault %+v lacks the errno", f)
	case f.Timeout != (strings.Contains(o.Reason, "no answer in time") || strings.Contains(o.Reason, "timed out at")):
		return fmt.Sprintf("reason and fault %+v do not agree on the timeout", f)
	case f.Errno == 0 && !f.Timeout && f.Got == "":
		return fmt.Sprintf("the fault %+v says nothing", f)
	case f.Got != "" && !strings.Contains(o.Reason, f.Got):
		return fmt.Sprintf("the reason lacks what came: %+v", f)
	case f.Want != "" && !strings.Contains(o.Reason, ", expected "+f.Want):
		return fmt.Sprintf("the reason lacks what was expected: %+v", f)
	}
	return ""
}

var elapsed = regexp.MustCompile(`,? after [0-9.]+[µnm]?s$`)

// Undated takes the time that a check took off its reason.
func Undated(reason string) string { return elapsed.ReplaceAllString(reason, "") }

// serve runs peer for each connection to a listener of its own.
func serve(t testing.TB, peer func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	return testkit.Serve(t, "127.0.0.1:0", func(c net.Conn) { peer(c.(*net.TCPConn)) })
}

// closed is a port of this machine on which nobody listens.
func closed(t testing.TB) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}
