package filter

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// rig is a Filter in a namespace of its own. Where a kernel was promised there has to be
// nftables; elsewhere a test runs if there is.
type rig struct {
	*testing.T
	ns *testkit.NS
	f  *Filter
}

func newRig(t *testing.T) *rig {
	t.Helper()
	promised := os.Getenv("SLUICE_KERNEL") == "1"
	if !promised && os.Geteuid() != 0 {
		t.Skip("needs root, to make network namespaces")
	}
	if promised {
		_ = exec.Command("modprobe", "nf_tables").Run()
	}
	r := &rig{T: t, ns: testkit.NewNS(t, "filter")}
	r.f = r.open()
	if err := r.f.look(); err != nil && !promised {
		t.Skipf("needs nftables: %v", err)
	}
	return r
}

// open returns another Filter, as another process has.
func (r *rig) open() *Filter {
	r.Helper()
	f, err := Open(r.ns.Path())
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { f.Close() })
	return f
}

func (r *rig) guard(f *Filter, want *edge.Guard) int {
	r.Helper()
	n, err := f.Guard(want)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

func (r *rig) marks(f *Filter, want *edge.Marking) int {
	r.Helper()
	n, err := f.Marks(want)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// nft runs a command of nft in the namespace.
func (r *rig) nft(command string) string {
	r.Helper()
	return r.ns.Run(r, "nft", strings.Fields(command)...)
}

// load adds what a file of nft says.
func (r *rig) load(text string) {
	r.Helper()
	r.ns.Run(r, "sh", "-c", "nft -f - <<'END'\n"+text+"END")
}

// elements returns those of a set as nft prints them, sorted.
func (r *rig) elements(family, table, kind, name string) []string {
	r.Helper()
	var out struct {
		Nftables []map[string]struct {
			Name string
			Elem []any
		}
	}
	text := r.ns.Run(r, "nft", "-j", "list", kind, family, table, name)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		r.Fatalf("%v of %s", err, text)
	}
	var all []string
	for _, object := range out.Nftables {
		for _, e := range object[kind].Elem {
			if pair, ok := e.([]any); ok {
				all = append(all, flat(pair[0])+" : "+flat(pair[1]))
				continue
			}
			all = append(all, flat(e))
		}
	}
	slices.Sort(all)
	return all
}

// flat writes an element as "tcp . 192.0.2.1 . 80".
func flat(e any) string {
	switch e := e.(type) {
	case map[string]any:
		var words []string
		for _, x := range e["concat"].([]any) {
			words = append(words, flat(x))
		}
		return strings.Join(words, " . ")
	case float64:
		return fmt.Sprint(int64(e))
	}
	return fmt.Sprint(e)
}

// count is for sets of thousands, with which nft takes a minute in an emulated machine.
func (r *rig) count(family nftables.TableFamily, table, name string) int {
	r.Helper()
	t, err := r.open().k.read(id{family, table})
	if err != nil {
		r.Fatal(err)
	}
	if s := t.set(name); s != nil {
		return len(s.elements)
	}
	return 0
}

func tcp(addr string) ipvs.ServiceKey { return key(ipvs.TCP, addr) }

func key(p ipvs.Protocol, addr string) ipvs.ServiceKey {
	a := netip.MustParseAddrPort(addr)
	k := ipvs.ServiceKey{Family: ipvs.INET, Protocol: p, Addr: a.Addr(), Port: a.Port()}
	if a.Addr().Is6() {
		k.Family = ipvs.INET6
	}
	return k
}

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func fwm(f ipvs.Family, mark uint32) ipvs.ServiceKey { return ipvs.ServiceKey{Family: f, FWMark: mark} }

func someGuard() *edge.Guard {
	return &edge.Guard{
		Addresses: addrs("192.0.2.10", "192.0.2.11", "2001:db8::10"),
		Services: []ipvs.ServiceKey{tcp("192.0.2.10:80"), key(ipvs.UDP, "192.0.2.10:53"), tcp("192.0.2.11:0"),
			tcp("[2001:db8::10]:443"), fwm(ipvs.INET, 7), fwm(ipvs.INET6, 8)},
	}
}

func some(table string) *edge.Marking {
	return &edge.Marking{
		NFTables: config.NFTables{Table: table, Priority: -1, FirstMark: 1000},
		Marks: map[edge.Mapped]uint32{
			{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort("192.0.2.10:80")}:      1000,
			{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort("192.0.2.11:0")}:       1000,
			{Protocol: ipvs.UDP, Addr: netip.MustParseAddrPort("192.0.2.10:53")}:      1001,
			{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort("[2001:db8::10]:80")}:  1000,
			{Protocol: ipvs.SCTP, Addr: netip.MustParseAddrPort("[2001:db8::10]:90")}: 1002,
		},
	}
}

func TestKernelGuardIsWhatNftLists(t *testing.T) {
	r := newRig(t)
	r.guard(r.f, someGuard())
	for name, want := range map[string][]string{
		"vip4":     {"192.0.2.10", "192.0.2.11"},
		"vip6":     {"2001:db8::10"},
		"service4": {"tcp . 192.0.2.10 . 80", "udp . 192.0.2.10 . 53"},
		"service6": {"tcp . 2001:db8::10 . 443"},
		"every4":   {"tcp . 192.0.2.11"},
		"every6":   nil,
		"marks4":   {"7"},
		"marks6":   {"8"},
	} {
		if got := r.elements("inet", GuardTable, "set", name); !slices.Equal(got, want) {
			t.Errorf("set %s has %q, want %q", name, got, want)
		}
	}
	text := r.nft("list table inet " + GuardTable)
	t.Log(text)
	if strings.Contains(strings.ReplaceAll(text, "reject ", ""), "ct ") {
		t.Error("the guard asks connection tracking")
	}
	if !strings.Contains(text, "type filter hook input priority 90; policy accept;") {
		t.Error("no chain at the input hook before IPVS")
	}

	// Only what differs is written, the rules stay.
	handles := r.nft("-a list chain inet " + GuardTable + " check4")
	g := someGuard()
	g.Services = append(g.Services[1:], tcp("192.0.2.10:81"))
	g.Addresses = g.Addresses[1:]
	if n := r.guard(r.f, g); n != 0 {
		t.Errorf("repaired %d where nobody broke anything", n)
	}
	if got, want := r.elements("inet", GuardTable, "set", "service4"), []string{"tcp . 192.0.2.10 . 81", "udp . 192.0.2.10 . 53"}; !slices.Equal(got, want) {
		t.Errorf("after a change service4 has %q, want %q", got, want)
	}
	if got, want := r.elements("inet", GuardTable, "set", "vip4"), []string{"192.0.2.11"}; !slices.Equal(got, want) {
		t.Errorf("after a change vip4 has %q, want %q", got, want)
	}
	// Another process takes over what it finds.
	if n := r.guard(r.open(), g); n != 0 {
		t.Errorf("a new process repaired %d", n)
	}
	if now := r.nft("-a list chain inet " + GuardTable + " check4"); now != handles {
		t.Errorf("the rules were written again:\n%s\nwere\n%s", now, handles)
	}

	r.guard(r.f, nil)
	if out := r.nft("list ruleset"); out != "" {
		t.Errorf("a guard that nobody wants leaves %s", out)
	}
	r.guard(r.f, nil)
	r.guard(r.open(), nil)
}

func TestKernelMarksAreWhatNftLists(t *testing.T) {
	r := newRig(t)
	r.marks(r.f, some("keepalived_ipvs"))
	t.Log(r.nft("list ruleset"))
	for _, c := range []struct {
		family, name string
		want         []string
	}{
		{"ip", "tcp_map", []string{"192.0.2.10 . 80 : 1000"}},
		{"ip", "tcp_every_map", []string{"192.0.2.11 : 1000"}},
		{"ip", "udp_map", []string{"192.0.2.10 . 53 : 1001"}},
		{"ip6", "tcp_map", []string{"2001:db8::10 . 80 : 1000"}},
		{"ip6", "sctp_map", []string{"2001:db8::10 . 90 : 1002"}},
	} {
		if got := r.elements(c.family, "keepalived_ipvs", "map", c.name); !slices.Equal(got, c.want) {
			t.Errorf("%s %s has %q, want %q", c.family, c.name, got, c.want)
		}
	}
	handles := r.nft("-a list chain ip keepalived_ipvs in")
	w := some("keepalived_ipvs")
	changed := edge.Mapped{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort("192.0.2.10:80")}
	w.Marks[changed] = 2000
	w.Marks[edge.Mapped{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort("192.0.2.12:80")}] = 1000
	r.marks(r.f, w)
	if got, want := r.elements("ip", "keepalived_ipvs", "map", "tcp_map"), []string{"192.0.2.10 . 80 : 2000", "192.0.2.12 . 80 : 1000"}; !slices.Equal(got, want) {
		t.Errorf("after a change tcp_map has %q, want %q", got, want)
	}
	if n := r.marks(r.open(), w); n != 0 {
		t.Errorf("a new process repaired %d", n)
	}
	if now := r.nft("-a list chain ip keepalived_ipvs in"); now != handles {
		t.Errorf("the rules were written again:\n%s\nwere\n%s", now, handles)
	}
	// Counters are other rules, and what they counted is not.
	w.Counters = true
	r.marks(r.f, w)
	if out := r.nft("list chain ip keepalived_ipvs in"); strings.Count(out, "counter packets 0") != 6 {
		t.Errorf("no counters in %s", out)
	}
	// Another name: the old table goes, whoever knew it.
	w.Table = "other"
	r.marks(r.f, w)
	if out := r.nft("list tables"); out != "table ip other\ntable ip6 other\n" {
		t.Errorf("after another name there are %q", out)
	}
	w.Table = "third"
	r.marks(r.open(), w)
	if out := r.nft("list tables"); out != "table ip third\ntable ip6 third\n" {
		t.Errorf("after another name in another process there are %q", out)
	}
	r.marks(r.open(), nil)
	if out := r.nft("list ruleset"); out != "" {
		t.Errorf("marks that nobody wants leave %s", out)
	}
}

// foreign is what other programs have.
const foreign = `
table inet filter {
	set admins { type ipv4_addr; elements = { 10.0.0.1 } }
	chain in { type filter hook input priority filter; policy accept; ip saddr @admins counter accept; }
}
table ip nat {
	chain post { type nat hook postrouting priority srcnat; policy accept; }
}
`

func TestKernelOtherTablesStay(t *testing.T) {
	r := newRig(t)
	r.load(foreign)
	before := r.nft("-j list ruleset")
	r.guard(r.f, someGuard())
	r.marks(r.f, some("keepalived_ipvs"))
	r.nft("delete rule inet " + GuardTable + " check4 handle " + r.handle("inet", GuardTable, "check4", "goto refuse"))
	r.guard(r.f, someGuard())
	r.guard(r.f, nil)
	r.marks(r.f, nil)
	if after := r.nft("-j list ruleset"); after != before {
		t.Errorf("other tables are\n%s\nwere\n%s", after, before)
	}

	// A name that is the operator's own table's.
	m := some("filter")
	r.load("table ip filter {\nchain input { type filter hook input priority 0; }\n}\n")
	before = r.nft("-j list ruleset")
	_, err := r.f.Marks(m)
	if err == nil || !strings.Contains(err.Error(), "nftables_ipvs: table ip filter is somebody else's, it has chain input") {
		t.Errorf("the error is %v", err)
	}
	if after := r.nft("-j list ruleset"); after != before {
		t.Errorf("a refused table changed the rule set to\n%s", after)
	}
	r.marks(r.f, nil)
	if after := r.nft("-j list ruleset"); after != before {
		t.Errorf("a refused table was removed: %s", after)
	}
}

func (r *rig) handle(family, table, chain, rule string) string {
	r.Helper()
	for line := range strings.Lines(r.nft("-a list chain " + family + " " + table + " " + chain)) {
		if strings.Contains(line, rule) {
			_, h, _ := strings.Cut(line, "# handle ")
			return strings.TrimSpace(h)
		}
	}
	r.Fatalf("no rule %q in chain %s", rule, chain)
	return ""
}

func TestKernelKeepalivedsTableIsReplaced(t *testing.T) {
	r := newRig(t)
	// As keepalived leaves it (facts 6.6).
	for _, family := range []string{"ip", "ip6"} {
		text := fmt.Sprintf(`table %s keepalived_ipvs {
			map tcp_map { type %sv%s_addr . inet_service : mark; flags interval; }
			chain in { type filter hook input priority -1; policy accept; meta mark set %s daddr . tcp dport map @tcp_map; }
		}`, family, "ip", map[string]string{"ip": "4", "ip6": "6"}[family], family)
		r.load(text + "\n")
	}
	// It may be at work, so that it stays if we have no such table.
	r.marks(r.f, nil)
	if out := r.nft("list tables"); out != "table ip keepalived_ipvs\ntable ip6 keepalived_ipvs\n" {
		t.Errorf("another program's table was removed: %q is left", out)
	}
	r.marks(r.open(), some("keepalived_ipvs"))
	if got, want := r.elements("ip", "keepalived_ipvs", "map", "tcp_map"), []string{"192.0.2.10 . 80 : 1000"}; !slices.Equal(got, want) {
		t.Errorf("tcp_map has %q, want %q", got, want)
	}
	if strings.Contains(r.nft("list ruleset"), "interval") {
		t.Error("the old table is there still")
	}
}

func TestKernelDamageIsRepairedAndCounted(t *testing.T) {
	g, m := someGuard(), some("keepalived_ipvs")
	r := newRig(t)
	r.guard(r.f, g)
	r.marks(r.f, m)
	before := r.nft("list ruleset")
	for _, c := range []struct {
		name, command string
		guard, marks  int
	}{
		{"an element gone", "delete element inet sluice_guard service4 { tcp . 192.0.2.10 . 80 }", 1, 0},
		{"an element more", "add element inet sluice_guard vip4 { 192.0.2.99 }", 1, 0},
		{"a set flushed", "flush set inet sluice_guard vip4", 2, 0},
		{"a rule more", "add rule inet sluice_guard input drop", 1, 0},
		{"a chain flushed", "flush chain inet sluice_guard input", 2, 0},
		{"a chain more", "add chain inet sluice_guard extra", 1, 0},
		{"a set more", "add set inet sluice_guard extra { type ipv4_addr; flags interval; }", 1, 0},
		{"the policy", "add chain inet sluice_guard input { policy drop ; }", 1, 0},
		{"another table", "add table inet extra ; delete table inet extra", 0, 0},
		{"a mark gone", "delete element ip keepalived_ipvs tcp_map { 192.0.2.10 . 80 }", 0, 1},
		{"a chain of marks flushed", "flush chain ip6 keepalived_ipvs in", 0, 6},
		{"the table gone", "delete table ip keepalived_ipvs", 0, 14},
		{"all gone", "flush ruleset", 30, 28},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.T = t
			r.nft(c.command)
			if n := r.guard(r.f, g); n != c.guard {
				t.Errorf("repaired %d of the guard, want %d", n, c.guard)
			}
			if n := r.marks(r.f, m); n != c.marks {
				t.Errorf("repaired %d of the marks, want %d", n, c.marks)
			}
			after := r.nft("list ruleset")
			if order(after) != order(before) {
				t.Errorf("there is\n%s\nwant\n%s", after, before)
			}
			if n := r.guard(r.f, g) + r.marks(r.f, m); n != 0 {
				t.Errorf("repaired %d once more", n)
			}
		})
	}
}

// order makes what nft lists independent of the order of a hash.
func order(text string) string {
	words := strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' || c == '\n' || c == '\t' })
	slices.Sort(words)
	return strings.Join(words, " ")
}

// many returns a guard and marks of n addresses.
func many(n int) (*edge.Guard, *edge.Marking) {
	g := &edge.Guard{}
	m := &edge.Marking{NFTables: config.NFTables{Table: "keepalived_ipvs", Priority: -1}, Marks: make(map[edge.Mapped]uint32, n)}
	a := netip.MustParseAddr("10.1.0.0")
	six := netip.MustParseAddr("2001:db8:1::")
	for i := range n {
		var next netip.Addr
		if i%4 == 3 {
			six = six.Next()
			next = six
		} else {
			a = a.Next()
			next = a
		}
		ap := netip.AddrPortFrom(next, 80)
		g.Addresses = append(g.Addresses, next)
		g.Services = append(g.Services, tcp(ap.String()))
		m.Marks[edge.Mapped{Protocol: ipvs.TCP, Addr: ap}] = 1000
	}
	return g, m
}

func TestKernelTenThousandAddresses(t *testing.T) {
	sizes := []int{10_000}
	if os.Getenv("SLUICE_KERNEL") != "1" {
		sizes = append(sizes, 50_000) // An emulated machine is no judge of more.
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t)
			g, m := many(n)
			took := func(what string, fn func() int) {
				t.Helper()
				start := time.Now()
				if n := fn(); n != 0 {
					t.Errorf("%s repaired %d", what, n)
				}
				t.Logf("%d addresses: %s took %v", n, what, time.Since(start).Round(10*time.Microsecond))
			}
			took("guard, at once", func() int { return r.guard(r.f, g) })
			took("marks, at once", func() int { return r.marks(r.f, m) })
			took("guard, no change", func() int { return r.guard(r.f, g) })
			fewer := &edge.Guard{Addresses: g.Addresses, Services: g.Services[1:]}
			took("guard, one change", func() int { return r.guard(r.f, fewer) })
			took("marks, no change", func() int { return r.marks(r.f, m) })
			r.nft("add table inet other")
			took("guard, read and compared", func() int { return r.guard(r.f, fewer) })
			took("marks, read and compared", func() int { return r.marks(r.f, m) })
			count := r.count(nftables.TableFamilyINet, GuardTable, "service4") + r.count(nftables.TableFamilyINet, GuardTable, "service6")
			if count != n-1 {
				t.Errorf("the guard has %d services, want %d", count, n-1)
			}
			another := r.open()
			took("guard, taken over", func() int { return r.guard(another, fewer) })
			took("marks, removed", func() int { return r.marks(r.f, nil) })
			took("guard, removed", func() int { return r.guard(r.f, nil) })
		})
	}
}

func TestKernelCutTransaction(t *testing.T) {
	r := newRig(t)
	r.f.k.most = 1 << 15
	g, m := many(5000)
	r.guard(r.f, g)
	r.marks(r.f, m)
	if n := r.guard(r.open(), g) + r.marks(r.open(), m); n != 0 {
		t.Errorf("another process repaired %d", n)
	}
	r.nft("delete table inet " + GuardTable)
	if n := r.guard(r.f, g); n != 30 {
		t.Errorf("repaired %d things of a table of 30", n)
	}
	if got := r.count(nftables.TableFamilyINet, GuardTable, "vip6"); got != 1250 {
		t.Errorf("vip6 has %d addresses, want 1250", got)
	}
}

// TestInAContainer: in a user namespace of its own nobody may make a socket's
// buffer larger than the machine allows, so that a large transaction is cut.
func TestInAContainer(t *testing.T) {
	const size = 12_000
	if os.Getenv("SLUICE_FILTER_CONTAINER") == "1" {
		g, m := many(size)
		var f, another Filter
		steps := plan(nil, guardOf(g))
		if err := f.k.transact(steps); !errors.Is(err, unix.EMSGSIZE) {
			fmt.Printf("the transaction at once: %v, want EMSGSIZE\n", err)
		}
		for range 2 {
			n, err := f.Guard(g)
			n2, err2 := f.Marks(m)
			n3, err3 := another.Guard(g)
			fmt.Println(n, err, n2, err2, n3, err3)
		}
		os.Exit(0)
	}
	if b, err := os.ReadFile("/proc/sys/net/core/wmem_max"); err != nil || len(b) > len("212992\n") {
		t.Skipf("needs a machine with the kernel's own net.core.wmem_max, this one has %s", b)
	}
	r := newRig(t)
	out, err := r.ns.Output("env", "SLUICE_FILTER_CONTAINER=1", "unshare", "--user", "--map-root-user", "--net", os.Args[0], "-test.run=^TestInAContainer$")
	if want := strings.Repeat("0 <nil> 0 <nil> 0 <nil>\n", 2); err != nil || out != want {
		t.Errorf("%v, output %q, want %q", err, out, want)
	}
}

func TestAbsentNFTablesIsNamed(t *testing.T) {
	for _, errno := range []syscall.Errno{unix.EINVAL, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT} {
		err := explain("vip_guard", absent(fmt.Errorf("receive: %w", errno)))
		if !errors.Is(err, errno) || !strings.HasPrefix(err.Error(), "vip_guard: this kernel has no nftables (modprobe nf_tables): ") {
			t.Errorf("%v is told as %v", errno, err)
		}
	}
	if err := explain("vip_guard", fmt.Errorf("rule: %w", unix.ENOENT)); !strings.Contains(err.Error(), "lacks a part of nftables") {
		t.Errorf("an unknown expression is told as %v", err)
	}
	if err := explain("vip_guard", fmt.Errorf("rule: %w", unix.EINVAL)); strings.Contains(err.Error(), "no nftables") {
		t.Errorf("a rule that is wrong is told as %v", err)
	}
}

func TestKernelWithoutCapability(t *testing.T) {
	if os.Getenv("SLUICE_FILTER_ERRORS") == "1" {
		f := &Filter{}
		_, guardErr := f.Guard(someGuard())
		_, marksErr := f.Marks(some("x"))
		fmt.Printf("%v\n%v\n", guardErr, marksErr)
		if !errors.Is(guardErr, unix.EPERM) || !errors.Is(marksErr, unix.EPERM) {
			os.Exit(3)
		}
		os.Exit(0)
	}
	r := newRig(t)
	out, err := r.ns.Output("env", "SLUICE_FILTER_ERRORS=1", "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", os.Args[0], "-test.run=^TestKernelWithoutCapability$")
	if err != nil {
		t.Fatal(err, out)
	}
	for _, keyword := range []string{"vip_guard: ", "nftables_ipvs: "} {
		if !strings.Contains(out, keyword+"nftables may be written with CAP_NET_ADMIN only") {
			t.Errorf("no error that names %s in %s", keyword, out)
		}
	}
}
