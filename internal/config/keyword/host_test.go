package keyword_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config"
)

// TestVIPWordsAreInherited from global_defs, and a virtual server says otherwise.
func TestVIPWordsAreInherited(t *testing.T) {
	const global = "#sluice vip_device vip0\n#sluice vip_follow quorum\n#sluice vip_guard on\n"
	for _, tt := range []struct {
		global, own string
		want        config.VIP
	}{
		{"", "", config.VIP{}},
		{global, "", config.VIP{Device: "vip0", Follow: config.VIPQuorum, Guard: true}},
		{global, "#sluice vip_device vip1\n#sluice vip_follow always\n#sluice vip_guard off", config.VIP{Device: "vip1"}},
		{global, "#sluice vip_device none", config.VIP{Guard: true}}, // nothing follows
		{"", "#sluice vip_device lo\n#sluice vip_guard", config.VIP{Device: "lo", Guard: true}},
		{"#sluice vip_device none\n", "#sluice vip_device lo", config.VIP{Device: "lo"}},
	} {
		cfg, list := load(t, "global_defs {\n"+tt.global+"}\n"+service("NAT", tt.own+"\nreal_server 10.0.0.1 80 {\n}"))
		if len(list) > 0 {
			t.Error(list)
		}
		if got := one(t, cfg).VIP; got != tt.want {
			t.Errorf("%q, %q: %+v", tt.global, tt.own, got)
		}
	}
}

// TestVIPFollowWithoutDeviceIsSaid once, where it stands.
func TestVIPFollowWithoutDeviceIsSaid(t *testing.T) {
	server := "real_server 10.0.0.1 80 {\n}"
	for text, want := range map[string]string{
		"global_defs {\n#sluice vip_follow quorum\n}\n" + service("NAT", server):                             "2: W239",
		"global_defs {\n#sluice vip_follow quorum\n}\n" + service("NAT", "#sluice vip_device vip0\n"+server): "",
		"global_defs {\n#sluice vip_follow always\n}\n" + service("NAT", server):                             "",
		service("NAT", "#sluice vip_follow quorum\n"+server):                                                 "5: W239",
	} {
		_, list := load(t, text)
		got := ""
		for _, d := range list {
			got += fmt.Sprintf("%d: %s", d.Pos.Line, d.Code)
		}
		if got != want {
			t.Errorf("%s\n%v", text, list)
		}
	}
}

// TestOneAddressOnOneDevice: the first virtual server decides, also for the second's
// other addresses.
func TestOneAddressOnOneDevice(t *testing.T) {
	on := func(addr, device string) string {
		return "virtual_server " + addr + " {\nprotocol TCP\nlvs_sched rr\nlvs_method NAT\n#sluice vip_device " + device + "\nreal_server 10.0.0.1 80 {\n}\n}\n"
	}
	const group = "virtual_server_group g {\n192.0.2.1 81\n192.0.2.2 81\n}\n"
	inGroup := func(device string) string {
		return strings.Replace(on("group g", device), "real_server", "# \nreal_server", 1)
	}
	for _, tt := range []struct{ text, want, codes string }{
		{on("192.0.2.1 80", "a") + on("192.0.2.1 443", "a"), "a a", ""},
		{on("192.0.2.1 80", "a") + on("192.0.2.1 443", "b"), "a a", "E162"},
		{on("192.0.2.1 80", "a") + on("192.0.2.1 443", "none"), "a ", ""},
		{on("192.0.2.1 80", "a") + on("192.0.2.2 443", "b"), "a b", ""},
		{group + on("192.0.2.1 80", "a") + inGroup("b") + on("192.0.2.2 80", "b"), "a a a", "E162 E162"},
		{group + on("192.0.2.1 80", "a") + on("192.0.2.2 80", "b") + inGroup("c"), "a b ", "E162"},
	} {
		cfg, list := load(t, tt.text)
		var got []string
		for _, vs := range cfg.VirtualServers {
			got = append(got, vs.VIP.Device)
		}
		if strings.Join(got, " ") != tt.want || codes(list) != tt.codes {
			t.Errorf("%s\ngot %q and %v", tt.text, got, list)
		}
	}
}

func TestVIPAddresses(t *testing.T) {
	mark := func(words string) string {
		return "virtual_server fwmark 5 {\nlvs_sched rr\nlvs_method TUN\n" + words + "\nreal_server 10.0.0.1 {\n}\n}\n"
	}
	cfg, list := load(t, mark("ip_family inet\n#sluice vip_address 192.0.2.9 192.0.2.1-2\n#sluice vip_address 192.0.2.4/31 192.0.2.9"))
	if got := fmt.Sprint(one(t, cfg).VIPAddresses); len(list) > 0 || got != "[192.0.2.1 192.0.2.2 192.0.2.4 192.0.2.5 192.0.2.9]" {
		t.Error(got, list)
	}
	// A bound holds over all lines, and what is beyond it is left out alone.
	cfg, list = load(t, mark("#sluice vip_address 10.0.0.0/17 192.0.2.1\n#sluice vip_address 10.1.0.0/17 192.0.2.2"))
	if d := only(t, list); d.Code != "E138" || len(one(t, cfg).VIPAddresses) != 1<<15+2 {
		t.Error(list, len(one(t, cfg).VIPAddresses))
	}
	// A group of both families takes both.
	cfg, list = load(t, "virtual_server_group g {\n192.0.2.1 80\n2001:db8::1 80\nfwmark 3 inet\n}\nvirtual_server group g {\nprotocol TCP\nlvs_sched rr\nlvs_method TUN\n#sluice vip_address 192.0.2.2 2001:db8::2\nreal_server 10.0.0.1 80 {\n}\n}\n")
	if got := fmt.Sprint(one(t, cfg).Addresses()); len(list) > 0 || got != "[192.0.2.1 192.0.2.2 2001:db8::1 2001:db8::2]" {
		t.Error(got, list)
	}
}

// TestCheckViaGoesWhereClientsGo: address and port by the kind of service.
func TestCheckViaGoesWhereClientsGo(t *testing.T) {
	const tcp = "TCP_CHECK {\n}"
	block := func(head, words, server string) string {
		return "virtual_server " + head + " {\nlvs_sched rr\n" + words + "\n#sluice check_via vip\nreal_server " + server + "\n}\n}\n"
	}
	group := "virtual_server_group g {\n192.0.2.20 443\n192.0.2.20 80\n192.0.2.10-11 8080\n2001:db8::1 53\nfwmark 9 inet\n}\n"
	for _, tt := range []struct{ text, target string }{
		{block("192.0.2.10 80", "protocol TCP\nlvs_method DR", "10.0.0.1 80 {\n"+tcp), "192.0.2.10:80"},
		{block("192.0.2.10 80", "protocol TCP\nlvs_method DR", "10.0.0.1 {\n"+tcp), "192.0.2.10:80"},
		{block("192.0.2.10 80", "protocol TCP\nlvs_method DR", "10.0.0.1 80 {\nTCP_CHECK {\nconnect_port 81\n}"), "192.0.2.10:81"},
		{block("192.0.2.10 80", "protocol TCP\nlvs_method DR", "10.0.0.1 80 {\nPING_CHECK {\n}"), "192.0.2.10:0"},
		{block("192.0.2.10 0", "persistence_timeout 9\nprotocol TCP\nlvs_method TUN", "10.0.0.1 {\nTCP_CHECK {\nconnect_port 81\n}"), "192.0.2.10:81"},
		{block("2001:db8::1 80", "protocol TCP\nlvs_method TUN type gre", "2001:db8::2 80 {\n"+tcp), "[2001:db8::1]:80"},
		{block("fwmark 5", "ip_family inet\nlvs_method DR\n#sluice vip_address 192.0.2.9 192.0.2.7", "10.0.0.1 0 {\nTCP_CHECK {\nconnect_port 81\n}"), "192.0.2.7:81"},
		{group + block("group g", "protocol TCP\nlvs_method TUN", "10.0.0.1 {\n"+tcp), "192.0.2.10:8080"},
		{group + block("group g", "protocol TCP\nlvs_method TUN", "2001:db8::9 {\n"+tcp), "[2001:db8::1]:53"},
		{group + block("group g", "protocol TCP\nlvs_method TUN\n#sluice vip_address 192.0.2.1", "10.0.0.1 85 {\n"+tcp), "192.0.2.1:85"},
	} {
		cfg, list := load(t, tt.text)
		if len(list.Errors()) > 0 {
			t.Errorf("%s\n%v", tt.text, list)
			continue
		}
		rs := one(t, cfg).RealServers[0]
		c := rs.Checkers[0].Conn
		if c.Target != netip.MustParseAddrPort(tt.target) || c.Via == nil || *c.Via != (config.Via{Server: rs.Key.Addr(), Forward: rs.Forward}) {
			t.Errorf("%s\n%+v", tt.text, c)
		}
	}
}

// TestCheckViaIsInherited and a real server may say off; what connects to nothing is
// left as it is.
func TestCheckViaIsInherited(t *testing.T) {
	cfg, list := load(t, "global_defs {\nenable_script_security\n}\n"+service("DR", "#sluice check_via vip\n"+
		"real_server 10.0.0.1 80 {\nTCP_CHECK {\n}\nMISC_CHECK {\nmisc_path /bin/true\n}\n}\n"+
		"real_server 10.0.0.2 80 {\n#sluice check_via off\nTCP_CHECK {\n}\n}\n"+
		"real_server 10.0.0.1 80 {\n#sluice check_via off\nTCP_CHECK {\n}\n}\n"+ // merged into the first
		"real_server 10.0.0.3 80 {\nTCP_CHECK {\n}\n}"))
	if codes(list) != "E130" {
		t.Fatal(list)
	}
	var got []string
	for _, rs := range one(t, cfg).RealServers {
		for _, c := range rs.Checkers {
			got = append(got, fmt.Sprint(rs.Key.Addr(), c.Kind, c.Conn.Target, c.Conn.Via != nil))
		}
	}
	want := []string{"10.0.0.1TCP_CHECK192.0.2.10:80 true", "10.0.0.1MISC_CHECKinvalid AddrPort false", "10.0.0.1TCP_CHECK10.0.0.1:80 false", "10.0.0.2TCP_CHECK10.0.0.2:80 false", "10.0.0.3TCP_CHECK192.0.2.10:80 true"}
	for i := range want {
		want[i] = strings.Replace(want[i], "TCP_CHECK", " TCP_CHECK ", 1)
		want[i] = strings.Replace(want[i], "MISC_CHECK", " MISC_CHECK ", 1)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestCheckViaOfAMergedVirtualServer: its real servers bring their checks along, and
// a real server that is in both is asked by both ways.
func TestCheckViaOfAMergedVirtualServer(t *testing.T) {
	check := "TCP_CHECK {\n}\n"
	cfg, list := load(t, service("DR", "real_server 10.0.0.1 80 {\n"+check+"}")+
		service("DR", "#sluice check_via vip\nreal_server 10.0.0.1 80 {\n"+check+"}\nreal_server 10.0.0.2 80 {\n"+check+"}"))
	if codes(list) != "W207 E130" && codes(list) != "E130 W207" {
		t.Error(list)
	}
	var got []string
	for _, rs := range one(t, cfg).RealServers {
		for _, c := range rs.Checkers {
			got = append(got, c.Conn.Target.String())
		}
	}
	if fmt.Sprint(got) != "[10.0.0.1:80 192.0.2.10:80 192.0.2.10:80]" {
		t.Error(got)
	}
	// One that is there with NAT has no virtual address, whatever the other block says.
	cfg, list = load(t, "virtual_server fwmark 3 {\nlvs_sched rr\n#sluice vip_address 192.0.2.1\n#sluice check_via vip\n"+
		"real_server 10.0.0.1 0 {\nlvs_method NAT\n#sluice check_via off\nTCP_CHECK {\nconnect_port 5\n}\n}\nreal_server 10.0.0.1 0 {\nlvs_method DR\nTCP_CHECK {\nconnect_port 6\n}\n}\n}\n")
	if c := one(t, cfg).RealServers[0].Checkers[1].Conn; codes(list) != "E165 E130" || c.Via != nil || c.Target.String() != "10.0.0.1:6" {
		t.Error(list, c)
	}
}

// TestOneWayIsOneValue, over virtual servers: there are as many ways as real servers.
func TestOneWayIsOneValue(t *testing.T) {
	text := ""
	for i := range 3 {
		text += fmt.Sprintf("virtual_server 192.0.2.%d 80 {\nprotocol TCP\nlvs_sched rr\nlvs_method DR\n#sluice check_via vip\nreal_server 10.0.0.1 80 {\nTCP_CHECK {\n}\nPING_CHECK {\n}\n}\n}\n", i+1)
	}
	cfg, list := load(t, text)
	ways := map[*config.Via]int{}
	for _, vs := range cfg.VirtualServers {
		for _, c := range vs.RealServers[0].Checkers {
			ways[c.Conn.Via]++
		}
	}
	if len(list) > 0 || len(ways) != 1 {
		t.Error(list, ways)
	}
	marks, err := config.Assign(cfg, config.Marks{})
	if err != nil || len(marks.Via) != 1 {
		t.Fatal(marks, err)
	}
	// The next configuration has its own values, and its checks are the same ones.
	next, _ := load(t, text)
	if _, err := config.Assign(next, marks); err != nil || !config.SameVirtualServer(cfg.VirtualServers[0], next.VirtualServers[0]) {
		t.Error("a reload makes the check another one")
	}
}

// TestATrackFileOfTheDaemon may be defined after its use, and is kept for it.
func TestATrackFileOfTheDaemon(t *testing.T) {
	const file = "track_file t {\nfile /run/t\nweight 7 reverse\n}\n"
	cfg, list := load(t, "global_defs {\n#sluice passive track_file t\nlvs_sync_daemon eth0\n#sluice lvs_sync_state track_file t\n}\n"+file)
	use := config.TrackFileUse{Name: "t", Weight: 1}
	if g := cfg.Global; len(list) > 0 || len(cfg.TrackFiles) != 1 || *g.Passive.File != use || *g.Sync.File != use || g.Sync.State != config.SyncOff || g.Passive.On {
		t.Errorf("%v %+v", list, g)
	}
	// The last one holds.
	cfg, list = load(t, "global_defs {\n#sluice passive track_file t\n#sluice passive on\nlvs_sync_daemon eth0\n#sluice lvs_sync_state track_file t\n#sluice lvs_sync_state backup\n}\n"+file)
	if g := cfg.Global; len(list) > 0 || len(cfg.TrackFiles) != 0 || g.Passive != (config.Passive{On: true}) || g.Sync.File != nil || g.Sync.State != config.SyncBackup {
		t.Errorf("%v %+v", list, g)
	}
}

// TestNFTablesWordsFollowIt: keepalived sets the others anew at nftables_ipvs.
func TestNFTablesWordsFollowIt(t *testing.T) {
	g, list := globals(t, "nftables_counters\nnftables_ipvs\nnftables_ipvs_priority 5\nnftables_ipvs_start_fwmark 7\nnftables_ipvs other")
	g.NFTables.Pos = config.NFTables{}.Pos
	if codes(list) != "E109" || *g.NFTables != (config.NFTables{Table: "keepalived_ipvs", Priority: 5, FirstMark: 7, Counters: true}) {
		t.Errorf("%v %+v", list, g.NFTables)
	}
	g, list = globals(t, "nftables_ipvs_priority 5\nnftables_ipvs_start_fwmark 7\nnftables_counters")
	if codes(list) != "W241 W241" || g.NFTables != nil {
		t.Errorf("%v %+v", list, g.NFTables)
	}
}
