package guest

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/diff/backend"
	"github.com/sluice-lb/sluice/test/diff/scenario"
)

// run is one scenario with one daemon.
type run struct {
	*testkit.Stage
	s   *scenario.Scenario
	d   Daemon
	rec *scenario.Run

	// dir and id stand for $DIR and $RUN.
	dir, id  string
	ns       *testkit.NS
	backends *backend.Set
	events   *eventsFile
	fifos    []*fifo
	sampler  *sampler

	process *testkit.Process // nil: none was started, or it was stopped
	conf    string           // the file that it runs on
	written map[string]bool  // by the script
	begun   time.Time        // when the first start was done
}

func (r *run) play() {
	r.dir = r.TempDir()
	r.id = filepath.Base(r.dir)
	defer r.keepLog()
	r.must(os.Chmod(r.dir, 0o755))
	r.written = map[string]bool{}
	for _, f := range r.s.Files {
		r.must(r.write(f.Name, f.Data))
	}
	var err error
	r.events, err = newEventsFile(filepath.Join(r.dir, "events"))
	r.must(err)
	r.ns = testkit.NewNS(r, r.id)
	r.ns.IP(r, r.network()...)
	r.backends = backend.NewSet(r.ns)
	r.Cleanup(r.backends.Close)
	if r.s.Timeline > 0 {
		r.sampler, err = newSampler(r.ns)
		r.must(err)
		defer r.timeline()
	}
	for _, c := range r.s.Commands {
		r.step(c)
	}
}

// timeline notes what the sampler saw, also of a run that has failed.
func (r *run) timeline() {
	changes, err := r.sampler.stop(r.begun)
	if err != nil {
		r.Errorf("sample the table: %v", err)
	}
	r.rec.Changes = changes
}

func (r *run) must(err error) {
	if err != nil {
		r.Fatalf("%v", err)
	}
}

// network lists the ip commands that set the namespace up: a default route to
// nowhere, and the addresses that are there from the beginning.
func (r *run) network() []string {
	commands := []string{
		"link add name net0 type dummy", "link set dev net0 up",
		"address add 198.18.0.1/32 dev net0", "address add 2001:2::1/128 dev net0 nodad",
		"route add default dev net0", "route add ::/0 dev net0",
	}
	decided := map[netip.Addr]bool{}
	for _, c := range r.s.Commands {
		switch {
		case c.Verb == "addr":
			addr := netip.MustParseAddr(c.Args[1])
			if c.Args[0] == "del" && !decided[addr] {
				commands = append(commands, addressCommand("add", addr))
			}
			decided[addr] = true
		case c.Behaviour != nil && !decided[c.Behaviour.Addr.Addr()]:
			addr := c.Behaviour.Addr.Addr()
			decided[addr] = true
			if !addr.IsLoopback() {
				commands = append(commands, addressCommand("add", addr))
			}
		}
	}
	return commands
}

func addressCommand(verb string, addr netip.Addr) string {
	switch {
	case addr.Is4():
		return fmt.Sprintf("address %s %s/32 dev net0", verb, addr)
	case verb == "del":
		return fmt.Sprintf("address del %s/128 dev net0", addr)
	}
	return fmt.Sprintf("address %s %s/128 dev net0 nodad", verb, addr)
}

// fill puts the run's own names in, clean takes them out again.
func (r *run) fill(text string) string {
	return strings.NewReplacer("$DIR", r.dir, "$RUN", r.id).Replace(text)
}

func (r *run) clean(text string) string {
	return strings.NewReplacer(r.dir, "$DIR", r.id, "$RUN").Replace(text)
}

// write makes a file below the folder, whole or not at all.
func (r *run) write(name, data string) error {
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if strings.HasSuffix(name, ".sh") {
		mode = 0o755
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, []byte(r.fill(data)), mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// step carries out one command.
func (r *run) step(c scenario.Command) {
	if !r.begun.IsZero() {
		s := scenario.Step{At: time.Since(r.begun).Seconds()}
		if c.Verb == "settle" {
			s.Nominal, _ = strconv.ParseFloat(c.Args[0], 64)
		}
		r.rec.Steps = append(r.rec.Steps, s)
	}
	if r.process != nil && !r.process.Running() && c.Verb != "stop" {
		r.died(c)
	}
	switch c.Verb {
	case "settle":
		s, _ := strconv.ParseFloat(c.Args[0], 64)
		time.Sleep(time.Duration(s * float64(time.Second)))
	case "backend":
		r.must(r.backends.Define(c.Behaviour))
	case "addr":
		r.ns.IP(r, addressCommand(c.Args[0], netip.MustParseAddr(c.Args[1])))
	case "fifo":
		r.fifo(c.Args[0])
	case "write":
		r.written[c.Args[0]] = true
		r.must(r.write(c.Args[0], c.Text+"\n"))
	case "remove":
		r.must(os.Remove(filepath.Join(r.dir, c.Args[0])))
	case "kernel":
		r.ns.Run(r, "sh", "-c", r.fill(c.Text))
	case "output":
		r.note(c, r.output(c.Text))
	case "table":
		r.note(c, r.table())
	case "events":
		r.note(c, r.takeEvents())
	case "start":
		r.note(c, r.start(c.Args[0]))
	case "reload":
		r.reload(c.Args[0])
	case "stop":
		r.note(c, r.stop())
	case "test":
		r.note(c, r.test(c.Args[0], c.Args[1:]))
	default:
		r.Fatalf("line %d: nobody knows how to %s", c.Line, c.Verb)
	}
}

// note keeps a record in its canonical form.
func (r *run) note(c scenario.Command, text string) {
	canonical, err := scenario.Canonical(c.Record, r.clean(text))
	if err != nil {
		r.Fatalf("line %d: %v", c.Line, err)
	}
	r.rec.Records[c.Record] = canonical
}

// output is what a command prints, and how it ends unless well.
func (r *run) output(command string) string {
	out, err := r.ns.Output("sh", "-c", r.fill(command))
	if err != nil {
		out += "failed\n"
	}
	return out
}

// table is what ipvsadm shows. The thresholds cost a second process, for those who
// speak of them alone.
func (r *run) table() string {
	text := r.ns.Run(r, "ipvsadm", "-S", "-n")
	if slices.ContainsFunc(r.s.Files, func(f scenario.File) bool { return strings.Contains(f.Data, "threshold") }) {
		text += r.ns.Run(r, "ipvsadm", "-L", "-n", "--thresholds")
	}
	return text
}

func (r *run) fifo(name string) {
	f := newFifo(name, filepath.Join(r.dir, name))
	r.fifos = append(r.fifos, f)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		f.follow(done)
	}()
	r.Cleanup(func() { close(done); <-ended })
}

func (r *run) takeEvents() string {
	text, err := r.events.take()
	r.must(err)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	for _, f := range r.fifos {
		text += f.take()
	}
	return text
}
