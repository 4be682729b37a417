package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// fails waits until status, metrics and the command line tell of a feature that does not
// work, with a text; "" is one that does.
func (b *bed) fails(feature, text string) {
	b.Helper()
	testkit.Eventually(b.T, 2*patience, func() string {
		reason := ""
		if e := b.status().Edge; e != nil {
			for _, f := range e.Failures {
				if f.Feature == feature {
					reason = f.Reason
				}
			}
		}
		if (reason == "") != (text == "") || !strings.Contains(reason, text) {
			return fmt.Sprintf("status says of %s %q, want %q", feature, reason, text)
		}
		up := 1
		if text != "" {
			up = 0
		}
		if want := fmt.Sprintf("sluice_feature_up{feature=%q} %d\n", feature, up); !strings.Contains(b.asks("/metrics")+"\n", want) {
			return "the metrics do not have " + want
		}
		return ""
	})
	if text != "" {
		out, _ := b.Director.Output(program(b.T, "sluice"), "status", "--socket", b.socket)
		if !strings.Contains(out, feature) || !strings.Contains(out, text) {
			b.Errorf("sluice status does not tell of %s, %q:\n%s", feature, text, out)
		}
	}
}

const listens = "#sluice http_listen 127.0.0.1:9476"

// TestKernelEdgeRefused: what keeps addresses and guard from working is told everywhere,
// nothing else suffers from it, and it works once the cause is gone.
func TestKernelEdgeRefused(t *testing.T) {
	b := newEdge(t, 1)
	before := machine(t, b.Director)
	rest := virtual("VIP 80", "", 1) + virtual("198.51.100.11 80", "", 1)
	b.write(edgeGlobals("#sluice vip_device "+device, "#sluice vip_guard on", listens) + rest)
	b.Director.IP(t, "link add name "+device+" type veth peer name sluice1", "link set dev "+device+" up")
	b.Director.IP(t, "address add "+b.VIP.String()+"/32 dev front")
	b.start()
	b.until("1:1")

	// A device of this name that is no dummy.
	b.daemon.SeeLine(t, patience, "ERROR Virtual addresses are not where they belong.*vip_device "+device+".*veth")
	b.fails("vip_device", "a device of this name exists and is a veth, not a dummy")
	b.fails("vip_guard", "")
	if got := b.Director.Run(t, "nft", "list", "table", "inet", "sluice_guard"); !strings.Contains(got, b.VIP.String()) {
		t.Errorf("the guard is\n%s", got)
	}
	if got := addresses(t, b.Director, device); got != "" {
		t.Errorf("somebody else's veth has %q", got)
	}
	b.holds(b.VIP, 80, 1).Abort() // by the address that is on another device

	// The veth goes, and one address is still somewhere else.
	b.Director.IP(t, "link del dev "+device)
	b.on(device, "198.51.100.11/32")
	b.fails("vip_device", b.VIP.String()+" is on device front already")
	b.holds(netip.MustParseAddr("198.51.100.11"), 80, 1).Abort()
	b.Director.IP(t, "address del "+b.VIP.String()+"/32 dev front")
	b.on(device, "198.51.100.10/32 198.51.100.11/32")
	b.fails("vip_device", "")
	b.daemon.WaitLine(t, patience, "Virtual addresses are where they belong again")

	// Somebody takes away an address, the device, and the guard's table.
	for _, c := range []string{"ip address del 198.51.100.11/32 dev " + device, "ip link del dev " + device, "ip link set dev " + device + " down"} {
		words := strings.Fields(c)
		b.Director.Run(t, words[0], words[1:]...)
		b.daemon.WaitLine(t, patience, "Somebody else has changed virtual addresses")
		b.on(device, "198.51.100.10/32 198.51.100.11/32")
		b.holds(b.VIP, 80, 1).Abort()
	}
	b.daemon.Signal(t, syscall.SIGTERM)
	b.daemon.Wait(t, patience)
	b.isAgain(before)

	// Without the right to change the network neither the table nor anything around it can
	// be written; checks and everything that tells of them go on.
	b.daemon = b.Director.Start(t, nil, "setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin",
		program(t, "sluiced"), "-f", b.conf, "--socket", b.socket, "--state-dir", b.stateDir())
	b.daemon.WaitLine(t, patience, "IPVS table not reachable.*CAP_NET_ADMIN")
	b.shows(1, engine.StateUp, "")
	out, _ := b.Director.Output(program(t, "sluice"), "status", "--socket", b.socket)
	if !strings.Contains(out, "CAP_NET_ADMIN") || !strings.Contains(out, "NOT ANNOUNCED") {
		t.Errorf("without the right to change the network sluice status says\n%s", out)
	}
	t.Logf("without CAP_NET_ADMIN:\n%s", out)
	if why := difference(before, machine(t, b.Director)); why != "" {
		t.Error(why)
	}
}

// TestKernelReloadWaitsForAddresses: sluice reload --wait returns when the address is on its
// device, and says what keeps it away if it does not come there.
func TestKernelReloadWaitsForAddresses(t *testing.T) {
	b := newEdge(t, 1)
	b.write(edgeGlobals() + virtual("VIP 80", "", 1))
	b.Director.IP(t, "address add "+b.VIP.String()+"/32 dev front")
	b.start()
	b.until("1:1")
	edged := edgeGlobals("#sluice vip_device "+device, "#sluice vip_guard on") + virtual("VIP 80", "#sluice vip_follow quorum", 1)

	b.write(edged)
	b.says(4, "not in place: vip_device "+device+": "+b.VIP.String()+" is on device front already", "reload", "--wait")

	b.Director.IP(t, "address del "+b.VIP.String()+"/32 dev front")
	b.says(0, "all is in place", "reload", "--wait")
	if got := addresses(t, b.Director, device); got != b.VIP.String()+"/32" {
		t.Errorf("the reload has ended, and %s has %q", device, got)
	}

	// What quorum keeps away is not waited for.
	b.write(edged + virtual("198.51.100.11 80", "#sluice vip_follow quorum\n real_server RS1 9 {\n TCP_CHECK {\n connect_timeout 1\n retry 0\n }\n }"))
	b.says(0, "all is in place", "reload", "--wait")
	if got := addresses(t, b.Director, device); got != b.VIP.String()+"/32" {
		t.Errorf("without the quorum %s has %q", device, got)
	}

	b.write(edgeGlobals() + virtual("VIP 80", "", 1))
	b.says(0, "all is in place", "reload", "--wait")
	if got := addresses(t, b.Director, device); got != "-" && got != "" {
		t.Errorf("without vip_device %s has %q", device, got)
	}
}

// unloadable keeps the kernel from having nftables until the test ends, in a guest that is
// the tests' own.
func unloadable(t *testing.T) {
	t.Helper()
	conf := "/run/modprobe.d/sluice-test.conf"
	if err := os.MkdirAll(filepath.Dir(conf), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(conf, []byte("install nf_tables /bin/false\nblacklist nf_tables\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(conf) })
	// What uses it is unloaded first; tables of namespaces that ended may take a moment.
	testkit.Eventually(t, patience, func() string {
		text, err := os.ReadFile("/proc/modules")
		if err != nil {
			return err.Error()
		}
		left := ""
		for line := range strings.Lines(string(text)) {
			if name, _, _ := strings.Cut(line, " "); strings.HasPrefix(name, "nft_") || name == "nf_tables" {
				if out, err := exec.Command("rmmod", name).CombinedOutput(); err != nil {
					left += strings.TrimSpace(string(out)) + "; "
				}
			}
		}
		return left
	})
}

// TestKernelEdgeWithoutNFTables: a kernel without nftables has no guard and no marks, but
// addresses and services; it is told, and works when there is one.
func TestKernelEdgeWithoutNFTables(t *testing.T) {
	if !guest() {
		t.Log("left out: it would unload nftables from this machine's kernel")
		return
	}
	b := newEdge(t, 1)
	unloadable(t)
	b.write(edgeGlobals("nftables_ipvs", "#sluice vip_device "+device, "#sluice vip_guard on", listens) +
		"virtual_server_group g {\n 198.51.100.40-41 80\n}\n" + virtual("VIP 80", "", 1) + virtual("group g", "", 1))
	b.start()
	b.until("1:1")
	for _, feature := range []string{"vip_guard", "nftables_ipvs"} {
		b.fails(feature, "no nftables (modprobe nf_tables)")
	}
	b.fails("vip_device", "")
	// An address without its mark would have no service.
	b.on(device, "198.51.100.10/32")
	b.holds(b.VIP, 80, 1).Abort()
	if err := os.Remove("/run/modprobe.d/sluice-test.conf"); err != nil {
		t.Fatal(err)
	}
	b.on(device, "198.51.100.10/32 198.51.100.40/32 198.51.100.41/32")
	for _, feature := range []string{"vip_guard", "nftables_ipvs"} {
		b.fails(feature, "")
	}
	b.holds(netip.MustParseAddr("198.51.100.41"), 80, 1).Abort()
	b.refuses("198.51.100.40:22")
}
