package guest

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/diff/scenario"
)

const patience = daemon.Patience

// start starts the daemon on a file and waits until its first table is there. A
// file that a daemon does not run on is a result like any other.
func (r *run) start(file string) string {
	if !r.written[file] {
		// An earlier reload may have replaced it.
		for _, f := range r.s.Files {
			if f.Name == file {
				r.must(r.write(f.Name, f.Data))
			}
		}
	}
	r.conf = file
	argv := r.argv(file)
	r.process = r.ns.Start(r, nil, argv[0], argv[1:]...)
	state := r.await(0, daemon.Ready)
	if r.begun.IsZero() {
		r.begun = time.Now()
	}
	switch state {
	case "":
		return "runs"
	case daemon.Ended:
		crashed := r.process.Wait(r, patience) >= 128
		r.forget()
		if crashed {
			return "crashes"
		}
		// keepalived ends with 0 as well when it cannot run.
		return "ends"
	}
	if r.d.Name == Sluice {
		r.Errorf("start %s: not ready after %v", file, patience)
	}
	r.process.Kill()
	r.forget()
	return "never gets ready"
}

// argv is the command line. Each start is one without a past, as keepalived's is.
func (r *run) argv(file string) []string {
	more := r.args()
	if r.d.Name == Sluice {
		more = append([]string{"--state-dir="}, more...)
	}
	return r.d.Argv(r.dir, filepath.Join(r.dir, file), more...)
}

// args are those that the scenario adds.
func (r *run) args() []string {
	args := r.s.KeepalivedArgs
	if r.d.Name == Sluice {
		args = r.s.SluiceArgs
	}
	var filled []string
	for _, a := range args {
		filled = append(filled, r.fill(a))
	}
	return filled
}

// await waits for a phrase in what the daemon prints from a line on.
func (r *run) await(from int, m daemon.Marks) string { return daemon.Await(r.process, r.d, from, m) }

// reload replaces the running configuration and waits until it was taken. A daemon
// that did not start is passed over: that it did not is on record.
func (r *run) reload(file string) {
	if r.process == nil {
		return
	}
	for _, f := range r.s.Files {
		if f.Name == file {
			r.must(r.write(r.conf, f.Data))
		}
	}
	from := len(r.process.Lines())
	r.process.Signal(r, syscall.SIGHUP)
	if state := r.await(from, daemon.Reloaded); state != "" {
		r.Fatalf("reload with %s: the daemon %s", file, map[string]string{daemon.Ended: "has ended", daemon.Late: "does not say that it is done"}[state])
	}
}

// stop ends the daemon and says how it ended.
func (r *run) stop() string {
	if r.process == nil {
		return "did not run"
	}
	if !r.process.Running() {
		r.died(scenario.Command{Verb: "stop"})
	}
	r.process.Signal(r, syscall.SIGTERM)
	begun := time.Now()
	for r.process.Running() {
		if time.Since(begun) > patience {
			r.process.Kill()
			r.forget()
			return "does not end"
		}
		<-time.After(20 * time.Millisecond)
	}
	status := r.process.Wait(r, patience)
	r.forget()
	return "status " + exitClass(status)
}

// died ends a run whose daemon has ended untold.
func (r *run) died(before scenario.Command) {
	status := r.process.Wait(r, patience)
	r.Fatalf("%s ended with status %s before line %d (%s)", r.d.Name, exitClass(status), before.Line, before.Verb)
}

// forget keeps the output of the process that has ended.
func (r *run) forget() {
	r.saveLines(r.process)
	r.process = nil
}

func (r *run) keepLog() {
	if r.process != nil {
		r.saveLines(r.process)
	}
}

func (r *run) saveLines(p *testkit.Process) {
	lines := p.Lines()
	for i, l := range lines {
		lines[i] = r.clean(l)
		if strings.Contains(l, "Respawning") || strings.HasPrefix(l, "panic:") || strings.Contains(l, "this is a bug") {
			r.Errorf("log: %s", l)
		}
	}
	r.rec.Log = append(r.rec.Log, lines...)
}

// test checks a configuration and returns the class of the exit status.
func (r *run) test(file string, args []string) string {
	argv := slices.Clone(r.d.Command)
	if r.d.Name != Sluice {
		// Without VRRP, which is not what is compared.
		argv = append(argv, "-C")
	}
	argv = append(argv, "-t", "-f", filepath.Join(r.dir, file))
	argv = append(argv, args...)
	p := r.ns.Start(r, nil, argv[0], argv[1:]...)
	defer r.saveLines(p)
	for begun := time.Now(); p.Running(); <-time.After(20 * time.Millisecond) {
		if time.Since(begun) > patience {
			p.Kill()
			if r.d.Name == Sluice {
				r.Errorf("test %s: not done after %v", file, patience)
			}
			return "does not end"
		}
	}
	status := p.Wait(r, patience)
	if r.d.Name == Sluice && (status > 6 || status == 1) {
		r.Errorf("test %s: status %d", file, status)
	}
	return "status " + exitClass(status)
}

// exitClass names a status: a signal is a crash, whichever it is.
func exitClass(status int) string {
	if status >= 128 {
		return "crash"
	}
	return strconv.Itoa(status)
}
