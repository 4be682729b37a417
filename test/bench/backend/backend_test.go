package backend

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestAddressesAndTargetsAreOneToOne(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for n := range Targets {
		a := Addr(n)
		if other, ok := seen[a.String()]; ok {
			t.Fatalf("%d and %d are both %s", other, n, a)
		}
		seen[a.String()] = n
		if back := target(a.As4()); back != n {
			t.Fatalf("%d is %s, which is %d", n, a, back)
		}
	}
	for _, a := range [][4]byte{{10, 1, 0, 1}, {127, 0, 0, 1}, {127, 1, 250, 1}, {127, 1, 0, 0}, {127, 1, 0, 251}, {127, 200, 0, 1}} {
		if n := target(a); n != -1 {
			t.Errorf("%v is target %d", a, n)
		}
	}
}

// start runs a backend of two ports with its control socket.
func start(t *testing.T, http bool, room int) (*Server, Client) {
	t.Helper()
	s, err := Listen([]int{0}, http, room)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	go func() { done <- s.Serve() }()
	go func() { done <- s.Control(l) }()
	t.Cleanup(func() {
		s.Close()
		l.Close()
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("the backend ended with %v", err)
			}
		}
	})
	return s, Client{Socket: l.Addr().String()}
}

func port(s *Server) int { return s.Ports()[0] }

func dial(t *testing.T, s *Server, target int) (net.Conn, error) {
	t.Helper()
	return net.DialTimeout("tcp", fmt.Sprintf("%s:%d", Addr(target), port(s)), 5*time.Second)
}

func mustDial(t *testing.T, s *Server, target int) net.Conn {
	t.Helper()
	c, err := dial(t, s, target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestChecksAreRecordedByTarget(t *testing.T) {
	t.Parallel()
	s, client := start(t, false, 100)
	before := Now()
	for _, n := range []int{7, 30000, 7} {
		if b, err := io.ReadAll(mustDial(t, s, n)); err != nil || len(b) > 0 {
			t.Fatalf("target %d: read %q, %v; want the end", n, b, err)
		}
	}
	got, err := client.Status()
	if err != nil || got.Checks != 3 || got.Targets != 2 || got.Lost != 0 {
		t.Fatalf("%+v, %v; want 3 checks of 2 targets", got, err)
	}
	events, err := client.Events(1)
	if err != nil || len(events) != 2 || events[0].Target != 30000 || events[1].Target != 7 {
		t.Fatalf("%v, %v; want the last two checks", events, err)
	}
	after := Now()
	if first := events[0].At; first < before-1000 || first > after || events[1].At < first {
		t.Errorf("times %v are not in order within [%d, %d]", events, before, after)
	}
	if diff := got.Latest - events[0].At; diff < 0 || diff >= 1000 {
		t.Errorf("the newest target came at %d, recorded at %d", got.Latest, events[0].At)
	}
}

func TestARecordThatIsFullSaysSo(t *testing.T) {
	t.Parallel()
	s, client := start(t, false, 2)
	for n := range 5 {
		_, _ = io.ReadAll(mustDial(t, s, n))
	}
	if got, err := client.Status(); err != nil || got.Checks != 2 || got.Lost != 3 {
		t.Errorf("%+v, %v; want 2 checks and 3 lost", got, err)
	}
}

func TestHTTPIsAnswered(t *testing.T) {
	t.Parallel()
	s, _ := start(t, true, 10)
	c := mustDial(t, s, 1)
	fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
	b, err := io.ReadAll(c)
	head, body, _ := strings.Cut(string(b), "\r\n\r\n")
	if err != nil || !strings.HasPrefix(head, "HTTP/1.0 200 ") || len(body) != bodyLength {
		t.Errorf("%v, head %q, %d bytes of body", err, head, len(body))
	}
}

func TestAShutPortRefuses(t *testing.T) {
	t.Parallel()
	s, client := start(t, false, 10)
	_, _ = io.ReadAll(mustDial(t, s, 1))
	if err := client.Shut(port(s)); err != nil {
		t.Fatal(err)
	}
	c, err := dial(t, s, 1)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial after Shut: %v, want a refusal", err)
	}
	if err := client.Shut(1); err == nil {
		t.Error("a port that was never open was shut")
	}
	if _, err := client.ask("nonsense"); err != nil {
		t.Errorf("an unknown command: %v", err)
	}
	if got, err := client.Status(); err != nil || got.Checks != 1 {
		t.Errorf("after that %+v, %v", got, err)
	}
}
