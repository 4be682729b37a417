package play

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/test/daemon"
)

// DeleteFirst is the actor that does as kube-proxy.
const DeleteFirst = "delete-first"

// actor keeps the table.
type actor interface {
	// start brings the table up.
	start()
	// reload takes what the run's configuration is now; done when it is taken.
	reload()
	// close ends it before the run's end is looked at.
	close()
}

// program is a daemon.
type program struct {
	r *run
	d daemon.Daemon
	p *testkit.Process
}

func (a *program) start() {
	a.launch()
	a.ready()
}

// launch starts the process and does not wait for it.
func (a *program) launch() {
	argv := a.d.Argv(a.r.dir, a.r.conf)
	a.p = a.r.top.Director.Start(a.r, nil, argv[0], argv[1:]...)
}

func (a *program) ready() {
	if state := daemon.Await(a.p, a.d, 0, daemon.Ready); state != "" {
		a.r.Fatalf("start: %s: %s", state, a.last())
	}
}

func (a *program) last() string {
	lines := a.p.Lines()
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

func (a *program) reload() {
	from := len(a.p.Lines())
	a.hup()
	if state := daemon.Await(a.p, a.d, from, daemon.Reloaded); state != "" {
		a.r.Fatalf("reload: %s: %s", state, a.last())
	}
}

// hup asks for a reload and does not wait for it.
func (a *program) hup() { a.p.Signal(a.r, syscall.SIGHUP) }

// stop ends it in order.
func (a *program) stop() {
	a.p.Signal(a.r, syscall.SIGTERM)
	a.p.Wait(a.r, daemon.Patience)
	a.keepLog()
}

// kill ends it and its children by SIGKILL: no more chance for any of them to tidy
// up than in a crash of all of them.
func (a *program) kill() {
	_ = syscall.Kill(a.p.PID(), syscall.SIGSTOP)
	for _, pid := range children(a.p.PID()) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	a.p.Kill()
	a.keepLog()
}

// children lists the processes that one has started.
func children(pid int) (all []int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	for word := range strings.FieldsSeq(string(b)) {
		if n, err := strconv.Atoi(word); err == nil {
			all = append(all, n)
		}
	}
	return all
}

func (a *program) close() {
	if a.p == nil {
		return
	}
	if !a.p.Running() {
		a.r.Errorf("it has ended: %s", a.last())
	}
	a.keepLog()
}

// keepLog takes over what the process has printed.
func (a *program) keepLog() {
	for _, l := range a.p.Lines() {
		a.r.res.Log = append(a.r.res.Log, l)
		if strings.HasPrefix(l, "panic:") || strings.Contains(l, "this is a bug") {
			a.r.Errorf("log: %s", l)
		}
	}
}

// kube changes the table in the order of kube-proxy. New servers are added, one that
// is still on its way out by deleting it first; then each that leaves is read, and
// deleted if it is idle, else set to weight 0.
type kube struct {
	r       *run
	c       *ipvs.Client
	leaving map[string]bool
}

func (a *kube) start() {
	// As kube-proxy sets them.
	a.r.top.Director.Sysctl(a.r, "net.ipv4.vs.expire_nodest_conn", "1")
	a.r.top.Director.Sysctl(a.r, "net.ipv4.vs.expire_quiescent_template", "1")
	c, err := ipvs.Dial(ipvs.WithNetNS(a.r.top.Director.Path()))
	a.r.must(err)
	a.c, a.leaving = c, map[string]bool{}
	a.r.Cleanup(func() { c.Close() })
	a.each(func(ctx context.Context, s ipvs.Service, p Pool) error {
		err := a.c.AddService(ctx, s)
		for _, m := range p.Servers {
			err = errors.Join(err, a.c.AddDest(ctx, s, a.dest(m)))
		}
		return err
	})
}

func (a *kube) close() {}

// each calls fn with every service.
func (a *kube) each(fn func(context.Context, ipvs.Service, Pool) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, p := range a.r.now.Pools {
		for _, v := range p.vips() {
			s := ipvs.Service{Scheduler: p.sched(), ServiceKey: ipvs.ServiceKey{
				Family: ipvs.INET, Protocol: ipvs.TCP, Addr: a.r.at.vip(v), Port: 80}}
			a.r.must(fn(ctx, s, p))
		}
	}
}

func (a *kube) dest(m Server) ipvs.Destination {
	d := ipvs.Destination{DestinationKey: ipvs.DestinationKey{Addr: a.r.at.server(m.N), Port: 80}, Weight: uint32(m.Weight)}
	if a.r.at.method == "DR" {
		d.Forward = ipvs.DirectRoute
	}
	return d
}

func (a *kube) reload() {
	a.each(func(ctx context.Context, s ipvs.Service, p Pool) error {
		have, err := a.c.Destinations(ctx, s.ServiceKey)
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for _, d := range have {
			there[d.DestinationKey.String()] = true
		}
		wanted := map[string]bool{}
		for _, m := range p.Servers {
			d := a.dest(m)
			key := d.DestinationKey.String()
			wanted[key] = true
			if there[key] && !a.leaving[s.String()+key] {
				continue
			}
			if there[key] {
				err = errors.Join(err, a.c.DelDest(ctx, s, d))
				delete(a.leaving, s.String()+key)
			}
			err = errors.Join(err, a.c.AddDest(ctx, s, d))
		}
		for _, d := range have {
			key := d.DestinationKey.String()
			switch out := d.Destination; {
			case wanted[key] || a.leaving[s.String()+key]:
			case d.Counters.Active+d.Counters.Inactive == 0:
				err = errors.Join(err, a.c.DelDest(ctx, s, out))
			default:
				out.Weight = 0
				a.leaving[s.String()+key] = true
				err = errors.Join(err, a.c.SetDest(ctx, s, out))
			}
		}
		return err
	})
}
