package play

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config/keyword"
	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/bench/backend"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// Both daemons must take the files as they stand, without a word.
func TestFilesAreWithoutFindings(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{TCP, HTTP} {
		spec := Spec{Mode: mode, Services: 3, Each: 10, Delay: 2, Warmup: 1, Extra: 1}
		cfg, list := keyword.LoadString("bench.conf", spec.Conf(), keyword.Options{})
		for _, d := range list {
			t.Errorf("%s: %v", mode, d)
		}
		if len(cfg.VirtualServers) != spec.Services {
			t.Fatalf("%s: %d virtual servers, want %d", mode, len(cfg.VirtualServers), spec.Services)
		}
		total := 0
		for _, vs := range cfg.VirtualServers {
			total += len(vs.RealServers)
		}
		if total != spec.Servers() {
			t.Errorf("%s: %d real servers, want %d", mode, total, spec.Servers())
		}
	}
}

// The cheap end must be sluice's alone: keepalived gets the same bytes but for a
// comment.
func TestTheCheapEndIsAComment(t *testing.T) {
	t.Parallel()
	spec := Spec{Mode: TCP, Services: 1, Each: 1, Delay: 1}
	polite := spec.Conf()
	spec.Mode = Reset
	var rest []string
	for line := range strings.Lines(spec.Conf()) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#sluice checker_close reset") {
			rest = append(rest, line)
		}
	}
	if diff := cmp.Diff(polite, strings.Join(rest, "")); diff != "" || len(rest) == strings.Count(spec.Conf(), "\n") {
		t.Errorf("beside one comment (-polite +cheap):\n%s", diff)
	}
}

// One more server must leave all others as they are, and fail with neither group's
// count wrong.
func TestGroupsThatFail(t *testing.T) {
	t.Parallel()
	for _, spec := range []Spec{{Services: 1, Each: 10}, {Services: 100, Each: 10}, {Services: 3, Each: 5, Extra: 1}} {
		byPort := map[string]int{}
		for line := range strings.Lines(spec.Rules()) {
			for _, p := range Ports {
				if strings.Contains(line, fmt.Sprintf(":%d -m", p)) {
					byPort[fmt.Sprint(p)]++
				}
			}
		}
		if got, want := byPort[fmt.Sprint(portHalf)], spec.failing(); got != want {
			t.Errorf("%s: %d servers on the port of the half, failing says %d", spec.Shape(), got, want)
		}
		if byPort[fmt.Sprint(portOne)] != 1 {
			t.Errorf("%s: %d servers can fail alone", spec.Shape(), byPort[fmt.Sprint(portOne)])
		}
	}
	spec := Spec{Services: 2, Each: 4, Delay: 1}
	before := spec.Conf()
	spec.Extra = 1
	more := strings.Split(strings.TrimSpace(spec.Conf()), "\n")
	for line := range strings.SplitSeq(strings.TrimSpace(before), "\n") {
		i := slices.Index(more, line)
		if i < 0 {
			t.Fatalf("one more server took away %q", line)
		}
		more = slices.Delete(more, i, i+1)
	}
	if text := strings.Join(more, "\n"); strings.Count(text, "real_server") != 1 || !strings.Contains(text, backend.Addr(8).String()) {
		t.Errorf("one more server adds\n%s", text)
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	line := func(name string) string {
		return "42 (" + name + ") S 7 42 42 0 -1 4194560 500 0 0 0 123 45 6 7 20 0 3 0 99 1000000 250"
	}
	for _, name := range []string{"sluiced", "a b", "x) S 1 2 (y", ")"} {
		parent, ticks, err := parseStat(line(name))
		if err != nil || parent != 7 || ticks != 168 {
			t.Errorf("%q: parent %d, %d ticks, %v; want 7 and 168", name, parent, ticks, err)
		}
	}
	for _, text := range []string{"", "1 sluiced S", "1 (x) S 2 3", "1 (x) S a 42 42 0 -1 4194560 500 0 0 0 123 45 6"} {
		if _, _, err := parseStat(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("42 (x) S 7 42 42 0 -1 4194560 500 0 0 0 123 45 6 7")
	f.Add("1 ()) S")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _, _ = parseStat(text)
		_, _, _ = parseSchedstat(text)
		_, _ = parseField(text, "VmRSS")
	})
}

// tree makes files below a folder that stands for /proc.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestUsageIsThatOfAllThreads(t *testing.T) {
	t.Parallel()
	proc := tree(t, map[string]string{
		"9/stat":              "9 (d) S 1 9 9 0 -1 0 0 0 0 0 10 5 0 0",
		"9/status":            "Name:\td\nVmRSS:\t    2048 kB\n",
		"9/task/9/schedstat":  "1000 5 1\n",
		"9/task/9/status":     "Name:\td\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t100\n",
		"9/task/10/schedstat": "234 6 1\n",
		"9/task/10/status":    "voluntary_ctxt_switches:\t4\n",
		"11/stat":             "11 (e) S 9 0 0 0 0 0 0 0 0 0 1 1 0",
		"12/stat":             "12 (f) S 1 0 0 0 0 0 0 0 0 0 1 1 0",
		"self/stat":           "x",
		"loadavg":             "3.25 1.00 0.50 2/345 6789\n",
	})
	if l, err := load(proc); err != nil || l != 3.25 {
		t.Errorf("load %v, %v; want 3.25", l, err)
	}
	u, err := readUsage(proc, 9)
	if want := (usage{cpu: 1234, wait: 11, ticks: 15, switches: 7}); err != nil || u != want {
		t.Errorf("usage %+v, %v; want %+v", u, err, want)
	}
	if kib, err := readRSS(proc, 9); err != nil || kib != 2048 {
		t.Errorf("RSS %d, %v", kib, err)
	}
	if kids, err := children(proc, 9); err != nil || !slices.Equal(kids, []int{11}) {
		t.Errorf("children %v, %v; want 11", kids, err)
	}
	if _, err := readUsage(proc, 11); err == nil {
		t.Error("a process without threads has a usage")
	}
}

// The reader must fit the kernel that runs here.
func TestUsageOfThisProcess(t *testing.T) {
	t.Parallel()
	u, err := readUsage("/proc", os.Getpid())
	if err != nil || u.cpu <= 0 {
		t.Errorf("%+v, %v", u, err)
	}
	if kib, err := readRSS("/proc", os.Getpid()); err != nil || kib < 1000 {
		t.Errorf("RSS of %d KiB, %v", kib, err)
	}
}

func TestDestinationsAreAddedUp(t *testing.T) {
	t.Parallel()
	const services = 3
	answer := make([]byte, headSize+services*entrySize)
	for i, n := range []uint32{10, 0, 9990} {
		binary.NativeEndian.PutUint32(answer[headSize+i*entrySize+destsAt:], n)
	}
	if got := sumDests(answer, services); got != 10000 {
		t.Errorf("%d destinations, want 10000", got)
	}
	if got := sumDests(answer[:headSize+entrySize], services); got != 10 {
		t.Errorf("%d destinations of an answer that was cut, want 10", got)
	}
}

// Kernel: the layout above is what the kernel fills in.
func TestKernelTableIsCounted(t *testing.T) {
	testkit.Kernel(t)
	ns := testkit.NewNS(t, "bench")
	w := watch(t, ns)
	spec := Spec{Mode: TCP, Services: 3, Each: 5, Extra: 2}
	if services, c := w.look(t); services != 0 || c.Total != 0 {
		t.Fatalf("a new table has %d services and %d destinations", services, c.Total)
	}
	for line := range strings.Lines(spec.Rules()) {
		ns.Run(t, "ipvsadm", strings.Fields(line)...)
	}
	if services, c := w.look(t); services != 3 || c.Total != 17 {
		t.Errorf("%d services and %d destinations, want 3 and 17", services, c.Total)
	}
}

// A daemon that passes over a word measures something else in its row.
func TestAWordThatIsNotKnownIsSeen(t *testing.T) {
	t.Parallel()
	if got := refused([]string{"INFO Ready", `bench.conf:2:13: error: unknown keyword "checker_close"`}); !strings.Contains(got, "checker_close") {
		t.Errorf("found %q", got)
	}
	if got := refused([]string{"(Line 2) Unknown keyword 'x'"}); got == "" {
		t.Error("keepalived's words are not seen")
	}
	if got := refused([]string{"Reloading", "INFO Check failed"}); got != "" {
		t.Errorf("found %q in a log without it", got)
	}
}

func TestRoundsTurnRound(t *testing.T) {
	t.Parallel()
	p := &player{ctx: t.Context(), res: &Results{}, log: io.Discard}
	var order []string
	run := func(name string) func(int) error {
		return func(round int) error {
			order = append(order, name)
			p.sample("g", CPU, name, round, 1)
			if name == "b" && round == 1 {
				return errors.New("it broke")
			}
			return nil
		}
	}
	p.carryOut([]step{{name: "s", rounds: 3, runs: []func(int) error{run("a"), run("b")}}})
	if got := strings.Join(order, ""); got != "abbaab" {
		t.Errorf("the order is %s, want abbaab", got)
	}
	if len(p.res.Problems) != 1 || !strings.Contains(p.res.Problems[0], "s, round 2: it broke") {
		t.Errorf("problems %q, want the one of round 2", p.res.Problems)
	}
}

// keepalived calls these; one that is missing would reach for the kernel.
func TestTheLibraryWithoutIPVSIsComplete(t *testing.T) {
	t.Parallel()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc to compile test/bench/noipvs with: apt-get install gcc libc6-dev")
	}
	library := filepath.Join(t.TempDir(), "noipvs.so")
	if out, err := exec.Command(gcc, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, "../noipvs/noipvs.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	nm, err := exec.LookPath("nm")
	if err != nil {
		t.Skip("no nm to look into the library with: apt-get install binutils")
	}
	out, err := exec.Command(nm, "-D", "--defined-only", library).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"genl_connect", "genl_ctrl_resolve", "nl_socket_modify_cb", "nl_send_auto", "nl_recvmsgs_default"} {
		if !strings.Contains(string(out), " T "+name+"\n") {
			t.Errorf("%s is not in it:\n%s", name, out)
		}
	}
}
