// Command demo runs the main job for about a minute on a real IPVS table and shows
// each step: a start, a backend that dies and returns, a maintenance drain, a reload
// that removes a server, a pool that goes dark and recovers. Real backends answer
// from network namespaces, and clients hold connections open through all of it.
//
// It ends with the connections opened, kept and lost, and with status 1 if any was
// lost or if a step did not come about. make demo runs it: on this machine's kernel
// where that has ip_vs, else in a VM.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

func main() {
	t := &testkit.Stage{Log: os.Stderr}
	t.Play(func() { play(t) })
	if t.Failed() {
		os.Exit(1)
	}
}

// patience bounds each wait.
const patience = 40 * time.Second

// play is the demonstration.
func play(t *testkit.Stage) {
	s := newShow(t)
	s.step("A pool of three web servers on %s, checked each second; a fourth machine is the sorry server.", s.vip)
	s.print(s.conf)
	s.write(1, 2, 3)
	s.start()
	s.table("1:1 2:1 3:1 4:0")
	s.say("Clients open 12 connections and exchange a line on each every 100 ms from now on.")
	s.hold(12)
	s.table("1:1 2:1 3:1 4:0")

	s.step("Backend 1 stops accepting connections. inhibit_on_failure takes its weight to 0; what is open goes on.")
	s.echo[0].Refuse()
	s.table("1:0 2:1 3:1 4:0")
	s.count()

	s.step("Backend 1 is back. Its weight is restored in place.")
	s.echo[0].Start(t)
	s.table("1:1 2:1 3:1 4:0")
	s.count()

	s.step("Maintenance of backend 2: echo -100 > %s", s.file)
	s.put("-100\n")
	s.table("1:1 2:0 3:1 4:0")
	s.count()
	s.say("New connections avoid it:")
	s.hold(4)
	s.say("The maintenance is over: rm %s", s.file)
	if err := os.Remove(s.file); err != nil {
		t.Fatalf("%v", err)
	}
	s.table("1:1 2:1 3:1 4:0")
	s.count()

	s.step("Backend 3 leaves the file and the daemon reloads (SIGHUP). It drains: weight 0, and deleted only after its last connection ended.")
	s.write(1, 2)
	s.daemon.Signal(t, syscall.SIGHUP)
	s.table("1:1 2:1 3:0 4:0")
	s.status()
	s.count()

	s.step("All backends stop accepting: the quorum is lost and the sorry server takes over, before the last weight goes.")
	s.echo[0].Refuse()
	s.echo[1].Refuse()
	s.table("1:0 2:0 3:0 4:1")
	s.hold(4)
	s.count()

	s.step("Recovery. The sorry server leaves after the backends are back; its connections go on too.")
	s.echo[0].Start(t)
	s.echo[1].Start(t)
	s.table("1:1 2:1 3:0 4:0")
	s.status()
	s.count()

	s.step("The clients close. At the next tick (drain_interval 2) after its last connection is gone, backend 3 leaves the table.")
	opened, kept, lost := s.count()
	s.closeAll()
	s.table("1:1 2:1 4:0")
	fmt.Printf("\n%d connections opened, %d kept, %d lost\n", opened, kept, lost)
	if lost > 0 {
		t.Errorf("connections were lost")
	}
}

// show is the cast: a director, clients, four backends and the daemon.
type show struct {
	*testkit.Stage
	top              *testkit.Topology
	director         *testkit.NS
	vip              string
	echo             []*testkit.Server
	daemon           *testkit.Process
	long             []*testkit.Long
	dir, conf, file  string
	confFile, socket string
	steps            int
}

func newShow(t *testkit.Stage) *show {
	top := testkit.NewNAT(t, 4)
	s := &show{Stage: t, top: top, director: top.Director, vip: top.VIP.String() + ":80", dir: t.TempDir()}
	for _, b := range top.Backends {
		s.echo = append(s.echo, testkit.NewEcho(t, b.NS, ":80"))
	}
	s.confFile, s.socket = filepath.Join(s.dir, "keepalived.conf"), filepath.Join(s.dir, "sluiced.sock")
	s.file = filepath.Join(s.dir, "maintenance")
	s.conf = s.config(1, 2, 3)
	return s
}

func (s *show) config(servers ...int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `global_defs {
    #sluice drain_interval 2
}
track_file maintenance {
    file %s
}
virtual_server %s 80 {
    delay_loop 1
    warmup 0
    lvs_sched rr
    lvs_method NAT
    protocol TCP
    inhibit_on_failure
    sorry_server %s 80
    sorry_server_inhibit
`, s.file, s.top.VIP, s.top.Backends[3].Addr)
	for _, n := range servers {
		fmt.Fprintf(&b, "    real_server %s 80 {\n", s.top.Backends[n-1].Addr)
		if n == 2 {
			b.WriteString("        #sluice track_file maintenance\n")
		}
		b.WriteString("        TCP_CHECK {\n            connect_timeout 2\n            retry 0\n        }\n    }\n")
	}
	return b.String() + "}\n"
}

func (s *show) write(servers ...int) {
	if err := os.WriteFile(s.confFile, []byte(s.config(servers...)), 0o644); err != nil {
		s.Fatalf("%v", err)
	}
}

func (s *show) start() {
	s.say("sluiced -f %s", s.confFile)
	s.daemon = s.director.Start(s, nil, program(s, "sluiced"), "-f", s.confFile, "--socket", s.socket, "--state-dir", s.dir+"/state")
	s.say("%s", s.daemon.WaitLine(s, patience, "Ready"))
}

// program finds a binary beside this one.
func program(t testkit.T, name string) string {
	self, err := os.Executable()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return filepath.Join(filepath.Dir(self), name)
}

func (s *show) put(text string) {
	if err := os.WriteFile(s.file, []byte(text), 0o644); err != nil {
		s.Fatalf("%v", err)
	}
}

func (s *show) hold(n int) {
	l := testkit.OpenLong(s, s.top.Client, s.vip, n)
	s.long = append(s.long, l)
	s.say("%s", l.Report())
}

func (s *show) step(format string, args ...any) {
	s.steps++
	fmt.Printf("\n=== %d. %s\n", s.steps, fmt.Sprintf(format, args...))
}

func (s *show) say(format string, args ...any) { fmt.Printf("    %s\n", fmt.Sprintf(format, args...)) }

func (s *show) print(text string) {
	for line := range strings.Lines(text) {
		fmt.Print("      | ", line)
	}
}

// table waits until the weights of the backends are as wanted and shows the
// kernel's table as ipvsadm prints it.
func (s *show) table(want string) {
	begun := time.Now()
	testkit.Eventually(s, patience, func() string {
		if got := s.weights(); got != want {
			return fmt.Sprintf("the table holds %q, want %q", got, want)
		}
		return ""
	})
	s.say("after %.1f s, ipvsadm -Ln:", time.Since(begun).Seconds())
	s.print(s.director.Run(s, "ipvsadm", "-Ln"))
}

func (s *show) weights() string {
	var out []string
	for _, svc := range testkit.ReadTable(s, s.director) {
		for _, d := range svc.Dests {
			for i, b := range s.top.Backends {
				if d.Addr.Addr() == b.Addr {
					out = append(out, fmt.Sprintf("%d:%d", i+1, d.Weight))
				}
			}
		}
	}
	return strings.Join(out, " ")
}

func (s *show) status() {
	s.say("sluice status:")
	// Its exit status tells of quorums, which the table just did.
	out, err := s.director.Output(program(s, "sluice"), "status", "--socket", s.socket)
	if out == "" && err != nil {
		s.Fatalf("%v", err)
	}
	s.print(out)
}

// count lets every connection exchange two more lines and sums up.
func (s *show) count() (opened, kept, lost int) {
	by := map[string]int{}
	for _, l := range s.long {
		l.Settle(s)
		r := l.Report()
		opened, kept, lost = opened+r.Opened, kept+r.Kept, lost+r.Lost()
		for name, n := range r.KeptBy {
			by[name] += n
		}
	}
	s.say("connections: %d opened, %d kept %v, %d lost", opened, kept, by, lost)
	return opened, kept, lost
}

func (s *show) closeAll() {
	for _, l := range s.long {
		l.Abort() // the kernel forgets a reset after 10 s, an orderly end after 2 min
	}
}
