package play

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/daemon"
)

// Needs are the keywords without which sluiced is no director here.
var Needs = []string{"vip_device", "vip_follow", "vip_delay", "passive"}

// daemonDirector is sluiced: the address follows the quorum, and a file makes it passive.
type daemonDirector struct {
	*machineOf
	list []int
	proc *testkit.Process
}

func (d *daemonDirector) file(name string) string {
	return filepath.Join(d.r.dir, fmt.Sprintf("%s-d%d", name, d.i+1))
}

// conf is the configuration file. Drains are bounded: what the router moved to another
// director would be waited for until the kernel forgets it here. Without alpha
// the pool is whole from the start: with it a director announces what its first server
// that passes makes a quorum, and Maglev leads everybody there.
func (d *daemonDirector) conf() string {
	var b strings.Builder
	b.WriteString("global_defs {\n    vip_device " + device + "\n    vip_follow quorum\n    vip_guard on\n    vip_delay 5\n    passive track_file leave\n    drain_interval 1\n    drain_timeout 3\n")
	if d.r.mode.Sync {
		b.WriteString("    lvs_sync_daemon eth0 id 7\n    lvs_sync_state both\n")
	}
	fmt.Fprintf(&b, "}\ntrack_file leave {\n    file %s\n}\n", d.file("leave"))
	fmt.Fprintf(&b, "virtual_server %v %d {\n    delay_loop 1\n    lvs_sched mh\n    mh-port\n    lvs_method DR\n    protocol TCP\n    inhibit_on_failure\n", vip, port)
	for _, s := range d.list {
		fmt.Fprintf(&b, "    real_server %v %d {\n        weight 1\n        TCP_CHECK {\n            connect_timeout 1\n            retry 0\n        }\n    }\n", serverAddr(s), port)
	}
	return b.String() + "}\n"
}

func (d *daemonDirector) write() {
	d.r.must(os.WriteFile(d.file("conf"), []byte(d.conf()), 0o644))
}

func (d *daemonDirector) say(passive string) {
	d.r.must(os.WriteFile(d.file("leave"), []byte(passive+"\n"), 0o644))
}

func (d *daemonDirector) start(list []int) {
	d.list = list
	d.write()
	d.say("0")
	dir := d.file("run")
	d.r.must(os.MkdirAll(dir, 0o755))
	who := daemon.Daemon{Name: daemon.Sluice, Command: []string{d.r.plan.Sluiced}}
	d.proc = d.r.start(d.ns, who.Argv(dir, d.file("conf")))
	if state := daemon.Await(d.proc, who, 0, daemon.Ready); state != "" {
		d.r.Fatalf("d%d: sluiced %s: %s", d.i+1, state, strings.Join(d.proc.Lines(), " | "))
	}
	d.announce()
}

func (d *daemonDirector) add(server int) {
	d.list = append(d.list, server)
	d.write()
	d.proc.Signal(d.r, unix.SIGHUP)
	testkit.Eventually(d.r, patience, func() string {
		for _, s := range testkit.ReadProc(d.r, d.ns) {
			if s.Find(fmt.Sprintf("%v:%d", serverAddr(server), port)) != nil {
				return ""
			}
		}
		return fmt.Sprintf("d%d does not have server %d", d.i+1, server+1)
	})
}

func (d *daemonDirector) withdraw() { d.say("1") }

func (d *daemonDirector) empty() {
	for begun := time.Now(); d.services() > 0; d.r.pause(look) {
		if time.Since(begun) > patience {
			d.r.Fatalf("still not after %v: d%d is passive and has %d services", patience, d.i+1, d.services())
		}
	}
}

func (d *daemonDirector) cut() {} // its checks tell it

func (d *daemonDirector) kill() {
	d.die()
	d.proc.Kill()
}
