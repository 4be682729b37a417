package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What a process may say to rtnetlink without changing anything, and how it begins to talk
// to nftables.
var (
	toRoute    = regexp.MustCompile(`nlmsg_type=(RTM_(?:NEW|DEL|SET)[A-Z]+)`)
	toNFTables = regexp.MustCompile(`socket\(AF_NETLINK, [^)]*NETLINK_NETFILTER\)`)
)

// writes are what a daemon with a file said to the kernel besides the table, from its start
// to its end.
func (b *bed) writes(text string) (route, filter []string) {
	b.Helper()
	b.write(text)
	trace := filepath.Join(b.dir, "trace")
	b.daemon = b.Director.Start(b.T, nil, "strace", "-f", "-e", "trace=socket,sendto,sendmsg,sendmmsg", "-e", "signal=none", "-o", trace,
		program(b.T, "sluiced"), "-f", b.conf, "--socket", b.socket, "--state-dir", b.stateDir())
	b.daemon.WaitLine(b.T, 2*patience, "Ready")
	b.until("1:1")
	// It goes on as it is told to: a reload, the tool that asks, and the stop.
	b.says(0, "", "reload")
	b.says(0, "198.51.100.10", "status")
	pid, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", b.daemon.PID()))
	if err != nil {
		b.Fatal(err)
	}
	b.Director.Run(b.T, "kill", strings.TrimSpace(string(pid)))
	b.daemon.Wait(b.T, 2*patience)
	out, err := os.ReadFile(trace)
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if m := toRoute.FindStringSubmatch(line); m != nil && !strings.Contains(line, "nlmsg_type=RTM_GET") && strings.Contains(line, "send") {
			route = append(route, m[1])
		}
		if toNFTables.MatchString(line) {
			filter = append(filter, strings.TrimSpace(line))
		}
	}
	if !strings.Contains(string(out), "NETLINK_GENERIC") {
		b.Errorf("the trace has not even the socket of the table:\n%.2000s", out)
	}
	return route, filter
}

// TestKernelEdgeOff: who asks for none of it has a daemon that says nothing to rtnetlink but
// questions, and nothing at all to nftables. The same eye sees both where they are asked for.
func TestKernelEdgeOff(t *testing.T) {
	b := newEdge(t, 1)
	rest := virtual("VIP 80", "ha_suspend", 1)
	b.Director.IP(t, "address add "+b.VIP.String()+"/32 dev front")
	route, filter := b.writes(edgeGlobals() + rest)
	if len(route) > 0 || len(filter) > 0 {
		t.Errorf("with nothing asked for it said to rtnetlink %q, and to nftables %q", route, filter)
	}
	rest = strings.Replace(rest, "ha_suspend", "", 1)
	b.Director.IP(t, "address del "+b.VIP.String()+"/32 dev front")
	route, filter = b.writes(edgeGlobals("#sluice vip_device "+device, "#sluice vip_guard on") + rest)
	if !strings.Contains(strings.Join(route, " "), "RTM_NEWADDR") || !strings.Contains(strings.Join(route, " "), "RTM_DELADDR") || len(filter) == 0 {
		t.Errorf("with an address and a guard the trace shows to rtnetlink %q, and to nftables %q", route, filter)
	}
}
