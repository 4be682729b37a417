package host

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// netlinked is a network of a test.
type netlinked struct {
	devices []Device
	err     error
	closed  *bool
}

func (n netlinked) Devices() ([]Device, error) { return n.devices, n.err }
func (n netlinked) Route(a netip.Addr) Route   { return Route{Device: "to-" + a.String()} }
func (n netlinked) Rules() ([]Rule, error)     { return []Rule{{Table: 255, Ours: true}}, n.err }
func (n netlinked) Chains() ([]Chain, error)   { return []Chain{{Name: "input", Hook: "input"}}, n.err }
func (n netlinked) Ask(list []Question, routes map[netip.Addr]Route) map[Question]Answer {
	all := map[Question]Answer{}
	for _, q := range list {
		all[q] = Answer{Yes: true, Unknown: routes[q.Server].Device}
	}
	return all
}
func (n netlinked) Close() error { *n.closed = true; return nil }

// director is a root folder with what a director's /proc shows.
func director(t *testing.T) string {
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/sys/kernel/osrelease":                  "6.1.0-57-amd64\n",
		"proc/sys/net/ipv4/ip_forward":               "1\n",
		"proc/sys/net/ipv4/ping_group_range":         "1\t0\n",
		"proc/sys/net/ipv4/conf/all/rp_filter":       "0\n",
		"proc/sys/net/ipv4/conf/eth0.7/rp_filter":    "2\n",
		"proc/modules":                               "ip_vs_wlc 16384 3 - Live 0x0000000000000000\nnf_tables 1 0 - Live 0x0\nip_vs 204800 5 ip_vs_wlc, Live 0x0\n",
		"lib/modules/6.1.0-57-amd64/modules.dep":     "kernel/net/netfilter/ipvs/ip_vs_mh.ko.xz: kernel/net/netfilter/ipvs/ip_vs.ko.xz\nkernel/net/netfilter/nf-odd.ko:\n",
		"lib/modules/6.1.0-57-amd64/modules.builtin": "kernel/net/ipv6/ipv6.ko\n",
		"proc/thread-self/net/ip_vs":                 "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\nTCP  C000020A:0050 wlc persistent 300 FFFFFFFF\n  -> 0A000001:0050      Masq    1      10         5\n  -> 0A000002:0050      Masq    0      2          0\n",
		"proc/77/status":                             "Name:\tsluiced\nUid:\t5\t6\t5\t5\nGid:\t7\t8\t7\t7\nGroups:\t9 10 \nCapEff:\t0000000000003000\n",
		"proc/77/limits":                             "Limit                     Soft Limit           Hard Limit           Units\nMax open files            1024                 unlimited            files\n",
		"proc/77/comm":                               "sluiced\n",
		"proc/80/comm":                               "keepalived\n",
		"proc/80/cmdline":                            "/usr/sbin/keepalived\x00-nlP\x00",
		"proc/81/comm":                               "perl\n",
		"proc/81/cmdline":                            "/usr/bin/perl\x00/usr/sbin/ldirectord\x00start\x00",
		"proc/82/comm":                               "perl\n",
		"proc/82/cmdline":                            "/usr/bin/perl\x00x.pl\x00",
		"proc/83/comm":                               "kube-proxy\n",
		"proc/1/comm":                                "init\n",
		"proc/84/comm":                               "bash\n",
		"var/lib/sluice/state":                       "",
	} {
		write(t, filepath.Join(root, name), text, 0o644)
	}
	for pid, ns := range map[string]string{"thread-self": "net:[1]", "80": "net:[1]", "83": "net:[2]"} {
		if err := os.MkdirAll(filepath.Join(root, "proc", pid, "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(ns, filepath.Join(root, "proc", pid, "ns/net")); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestFacts(t *testing.T) {
	closed := false
	devices := []Device{{Name: "eth0.7", Up: true}}
	a := netip.MustParseAddr("10.0.0.1")
	f := Machine{Root: director(t), Network: netlinked{devices: devices, closed: &closed}}.Facts(Query{
		Routes: []netip.Addr{a}, Rules: true, Chains: true, Questions: []Question{{a, a}}, PID: 77, Paths: []string{"/var/lib/sluice", "/none"},
		Settings: []string{"net.ipv4.ip_forward", "net.ipv4.ping_group_range", "net.ipv4.conf.*.rp_filter", "net.ipv4.vs.conntrack"},
	})
	if !closed {
		t.Error("the network was not closed")
	}
	p := f.Paths["/var/lib/sluice"]
	if p.Mode&0o777 != 0o755 || !f.Paths["/none"].Absent {
		t.Errorf("paths %+v", f.Paths)
	}
	f.Paths, f.Root = nil, false
	want := &Facts{
		Kernel: "6.1.0-57-amd64",
		Modules: Modules{Loaded: map[string]bool{"ip_vs": true, "ip_vs_wlc": true, "nf_tables": true}, OnDisk: map[string]bool{"ip_vs_mh": true, "nf_odd": true},
			Builtin: map[string]bool{"ipv6": true}},
		Table: Table{Present: true, Size: 4096, Connections: 17},
		Settings: map[string]Setting{
			"net.ipv4.ip_forward": {Value: "1"}, "net.ipv4.ping_group_range": {Value: "1 0"}, "net.ipv4.vs.conntrack": {Absent: true},
			"net.ipv4.conf.all.rp_filter": {Value: "0"}, "net.ipv4.conf.eth0.7.rp_filter": {Value: "2"},
		},
		Devices: devices,
		Routes:  map[netip.Addr]Route{a: {Device: "to-10.0.0.1"}},
		Rules:   []Rule{{Table: 255, Ours: true}}, Chains: []Chain{{Name: "input", Hook: "input"}},
		Answers: map[Question]Answer{{a, a}: {Yes: true, Unknown: "to-10.0.0.1"}},
		Writers: []Writer{
			{PID: 80, Name: "keepalived", Args: []string{"/usr/sbin/keepalived", "-nlP"}},
			{PID: 81, Name: "ldirectord", Args: []string{"/usr/bin/perl", "/usr/sbin/ldirectord", "start"}},
			{PID: 83, Name: "kube-proxy", Args: []string{""}, Elsewhere: true},
		},
		Daemon: Credentials{PID: 77, UID: 6, GID: 8, Groups: []int{9, 10}, Effective: 0x3000, Files: 1024, FilesHard: ^uint64(0)},
	}
	if d := cmp.Diff(want, f, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestFactsUnknown: of a machine that shows nothing all is unknown, with reasons, and
// nothing has a value.
func TestFactsUnknown(t *testing.T) {
	hidden := t.TempDir()
	write(t, filepath.Join(hidden, "proc/84/comm"), "bash\n", 0o644)
	if _, unknown := (Machine{Root: hidden}).writers(0); !strings.Contains(unknown, "hidepid") {
		t.Errorf("processes are hidden: %q", unknown)
	}
	closed := false
	f := Machine{Root: t.TempDir(), Network: netlinked{err: errors.New("no netlink"), closed: &closed}}.Facts(Query{PID: 77, Settings: []string{"net.ipv4.ip_forward"}})
	for what, reason := range map[string]string{
		"modules": f.Modules.LoadedUnknown, "modules on disk": f.Modules.DiskUnknown, "devices": f.DevicesUnknown,
		"processes": f.WritersUnknown, "daemon": f.Daemon.Unknown,
	} {
		if reason == "" {
			t.Errorf("%s: no reason", what)
		}
	}
	if f.Table.Present || !f.Settings["net.ipv4.ip_forward"].Absent {
		t.Errorf("%+v", f)
	}
}

// TestFactsForbidden: what only root may read is unknown to others, and they are told.
func TestFactsForbidden(t *testing.T) {
	root := director(t)
	for _, name := range []string{"proc/thread-self/net/ip_vs", "proc/sys/net/ipv4/ip_forward", "proc/77/status", "proc/modules"} {
		if err := os.Chmod(filepath.Join(root, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() {
		closed := false
		f := Machine{Root: root, Network: netlinked{closed: &closed}}.Facts(Query{PID: 77, Settings: []string{"net.ipv4.ip_forward"}})
		if f.Kernel == "" {
			t.Error("nothing at all can be read")
		}
		for what, reason := range map[string]string{"table": f.Table.Unknown, "sysctl": f.Settings["net.ipv4.ip_forward"].Unknown,
			"daemon": f.Daemon.Unknown, "modules": f.Modules.LoadedUnknown} {
			if !strings.Contains(reason, "permission denied; run as root") {
				t.Errorf("%s: %q", what, reason)
			}
		}
		if !f.Table.Present {
			t.Error("a table that may not be read is there all the same")
		}
	})
}

// asNobody runs f on a thread whose file accesses are a plain user's.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: it ends with the goroutine
		if err := unix.Setfsuid(65534); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// TestFactsOfThisMachine: the kernel's own answers, whatever they are here.
func TestFactsOfThisMachine(t *testing.T) {
	loop, six := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
	f := Machine{}.Facts(Query{Routes: []netip.Addr{loop, six}, Settings: []string{"net.ipv4.ip_forward"}})
	if f.Kernel == "" || f.DevicesUnknown != "" || f.Daemon.Unknown != "" || f.Daemon.Files == 0 || f.WritersUnknown != "" {
		t.Errorf("%+v", f)
	}
	if f.Settings["net.ipv4.ip_forward"].Value == "" {
		t.Error("no ip_forward")
	}
	if r := f.Routes[loop]; !r.Local || r.Device != "lo" {
		t.Errorf("route to %s: %+v", loop, r)
	}
	for _, d := range f.Devices {
		if d.Name == "lo" && (!d.Loopback || d.MTU == 0) {
			t.Errorf("%+v", d)
		}
	}
}

func FuzzFactsOfText(f *testing.F) {
	f.Add([]byte("IP Virtual Server version 1.2.1 (size=4096)\n  -> 0A000001:0050 Masq 1 10 5\n"), "Max open files 1 2 files")
	f.Fuzz(func(t *testing.T, b []byte, limit string) {
		root := t.TempDir()
		write(t, filepath.Join(root, "proc/thread-self/net/ip_vs"), string(b), 0o644)
		Machine{Root: root}.table()
		moduleNames(b)
		limits(limit)
	})
}
