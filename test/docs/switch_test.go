package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// held is how many connections clients hold through the switch.
const held = 30

// What docs/migrating-from-keepalived.md says of the switch: killed in the way of that
// page, keepalived leaves its table, sluiced takes it over, and no connection is lost; a
// server that keepalived had taken out stays out. Stopped in order, it cuts
// connections.
func TestKernelSwitchFromKeepalived(t *testing.T) {
	testkit.Kernel(t)
	built(t)
	if _, err := exec.LookPath("keepalived"); err != nil {
		t.Skip("keepalived is not installed: apt-get install keepalived")
	}
	for _, tc := range []struct {
		name string
		stop func(t *testing.T, p *testkit.Process)
		cuts bool
	}{
		{"killed", func(t *testing.T, p *testkit.Process) {
			all := append(children(t, p.PID()), p.PID())
			for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
				for _, pid := range all {
					if err := syscall.Kill(pid, s); err != nil {
						t.Fatalf("%v to process %d: %v", s, pid, err)
					}
				}
			}
		}, false},
		{"stopped", func(t *testing.T, p *testkit.Process) { p.Signal(t, syscall.SIGTERM) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSwitch(t)
			tc.stop(t, s.keepalived)
			s.keepalived.Wait(t, time.Minute)
			s.start()
			s.long.Settle(t)
			// How many a stop cuts depends on who sends something before the table is back:
			// that is told, and not asserted.
			long, r := s.long.Report(), s.short.Close()
			t.Logf("long-lived connections: %s; short requests: %s", long, r)
			if !tc.cuts && long.Lost() > 0 {
				t.Errorf("lost %d of %d connections, which is not what the page says", long.Lost(), held)
			}
			if !tc.cuts && r.Lost() != 0 {
				t.Errorf("requests were lost: %s", r)
			}
			if tc.cuts {
				return
			}
			s.back()
			s.long.Settle(t)
			if r := s.long.Report(); r.Lost() != 0 {
				t.Errorf("the way back lost connections: %s", r)
			}
		})
	}
}

// scene is two good servers and one that keepalived has taken out, under load.
type scene struct {
	*testing.T
	top        *testkit.Topology
	conf, dir  string
	keepalived *testkit.Process
	sluiced    *testkit.Process
	long       *testkit.Long
	short      *testkit.Short
}

func newSwitch(t *testing.T) *scene {
	s := &scene{T: t, top: testkit.NewNAT(t, 3), dir: t.TempDir()}
	s.conf = filepath.Join(s.dir, "keepalived.conf")
	text := fmt.Sprintf("virtual_server %s 80 {\n delay_loop 1\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n", s.top.VIP)
	for i, b := range s.top.Backends {
		if i < 2 {
			testkit.NewMixed(t, b.NS, ":80")
		}
		text += fmt.Sprintf(" real_server %s 80 {\n  TCP_CHECK {\n   connect_timeout 2\n  }\n }\n", b.Addr)
	}
	if err := os.WriteFile(s.conf, []byte(text+"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.serve()
	addr := s.top.VIP.String() + ":80"
	s.long = testkit.OpenLong(t, s.top.Client, addr, held)
	s.short = testkit.StartShort(t, s.top.Client, addr, 5)
	if r := s.long.Report(); r.Kept != held {
		t.Fatalf("opening: %s", r)
	}
	return s
}

// serve starts keepalived and waits until it has taken the bad server out.
func (s *scene) serve() {
	pid := func(name string) string { return filepath.Join(s.dir, name+".pid") }
	s.keepalived = s.top.Director.Start(s, nil, "keepalived", "-n", "-l", "-D", "-C", "-f", s.conf, "-p", pid("parent"), "-c", pid("checkers"), "-r", pid("vrrp"), "-b", pid("bfd"))
	s.until("it serves with the two good servers", func() bool { return s.weights() == "1 1" })
}

// back stops sluiced with on_stop keep and starts keepalived, as the way back is.
func (s *scene) back() {
	text, err := os.ReadFile(s.conf)
	if err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(s.conf, append([]byte("global_defs {\n #sluice on_stop keep\n}\n"), text...), 0o644); err != nil {
		s.Fatal(err)
	}
	s.sluiced.Signal(s, syscall.SIGHUP)
	s.sluiced.WaitLine(s, patience, "Reloaded")
	s.sluiced.Signal(s, syscall.SIGTERM)
	s.sluiced.Wait(s, time.Minute)
	s.serve()
}

// start starts sluiced as after an installation, without a past, and sees that the bad
// server never comes back.
func (s *scene) start() {
	sluiced, err := filepath.Abs(filepath.Join(root, "bin/sluiced"))
	if err != nil {
		s.Fatal(err)
	}
	s.sluiced = s.top.Director.Start(s, nil, sluiced, "-f", s.conf, "--socket", filepath.Join(s.dir, "socket"), "--state-dir", filepath.Join(s.dir, "state"))
	s.sluiced.WaitLine(s, patience, "Ready")
	s.Logf("the table when sluiced is ready: weights %s", s.weights())
	s.until("it serves with the two good servers", func() bool { return s.weights() == "1 1" })
}

// weights are those of the first service of the table.
func (s *scene) weights() string {
	var all []string
	for _, service := range testkit.ReadProc(s, s.top.Director) {
		for _, d := range service.Dests {
			all = append(all, strconv.Itoa(d.Weight))
		}
	}
	return strings.Join(all, " ")
}

func (s *scene) until(what string, holds func() bool) {
	s.Helper()
	testkit.Eventually(s, patience, func() string {
		if holds() {
			return ""
		}
		return "it does not come that " + what + ": " + s.weights()
	})
}

// children are the processes whose parent a process is.
func children(t *testing.T, pid int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		head, rest, _ := strings.Cut(string(b), " (")
		fields := strings.Fields(rest[strings.LastIndex(rest, ")")+1:])
		if n, err := strconv.Atoi(head); err == nil && len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all
}
