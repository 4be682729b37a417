package keyword_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/keyword"
)

// service wraps statements into a virtual server that has no finding itself.
func service(method string, body string) string {
	return "virtual_server 192.0.2.10 80 {\nprotocol TCP\nlvs_sched rr\nlvs_method " + method + "\n" + body + "\n}\n"
}

// only returns the one finding of a list.
func only(t *testing.T, list diag.List) diag.Diagnostic {
	t.Helper()
	if len(list) != 1 {
		t.Fatalf("%d findings, want one: %v", len(list), list)
	}
	return list[0]
}

// one returns the one virtual server of a configuration.
func one(t *testing.T, cfg *config.Config) *config.VirtualServer {
	t.Helper()
	if cfg == nil || len(cfg.VirtualServers) != 1 {
		t.Fatalf("want one virtual server: %+v", cfg)
	}
	return cfg.VirtualServers[0]
}

func TestP04UnknownBlockDoesNotFallIntoItsParent(t *testing.T) {
	cfg, list := load(t, service("NAT", `
		real_sever 10.0.0.1 80 { weight 1
			lvs_sched lc }
		real_server 10.0.0.2 80 { weight 2 }`))
	d := only(t, list)
	if d.Code != "E101" || d.Pos.Line != 6 || d.Pos.Col != 3 || d.Width != 10 || !strings.Contains(d.Hint, `"real_server"`) {
		t.Errorf("finding %+v", d)
	}
	vs := one(t, cfg)
	if vs.Scheduler != "rr" || len(vs.RealServers) != 1 || vs.RealServers[0].Weight != 2 {
		t.Errorf("the block's content reached its parent: %+v", vs)
	}
}

func TestP04UnknownSchedulerOrMethodRejectsThatServiceAlone(t *testing.T) {
	good := service("NAT", "real_server 10.0.0.2 80 { }")
	for _, bad := range []string{
		"virtual_server 192.0.2.9 80 { protocol TCP\n lb_algo loadbalance\n lvs_method NAT\n real_server 10.0.0.1 80 { } }\n",
		"virtual_server 192.0.2.9 80 { protocol TCP\n lb_algo rr\n lb_kind DS\n real_server 10.0.0.1 80 { } }\n",
		"virtual_server 192.0.2.9 80 { protocol TCP\n lb_algo rr\n lb_kind dr\n real_server 10.0.0.1 80 { } }\n",
	} {
		cfg, list := load(t, bad+good)
		if d := only(t, list); d.Severity != diag.Error {
			t.Errorf("finding %v", d)
		}
		if vs := one(t, cfg); vs.Key.String() != "[192.0.2.10]:tcp:80" {
			t.Errorf("left is %s", vs.Key)
		}
	}
	// In a real server only that one is refused.
	cfg, list := load(t, service("DR", "real_server 10.0.0.1 80 { lvs_method TUNNEL }\nreal_server 10.0.0.2 80 { }"))
	only(t, list)
	if vs := one(t, cfg); len(vs.RealServers) != 1 || vs.RealServers[0].Key.Addr().String() != "10.0.0.2" {
		t.Errorf("left are %v", vs.RealServers)
	}
}

func TestP05BracesInEveryWayMakeTheSame(t *testing.T) {
	spread, list := load(t, "track_file f\n{\nfile /x\n}\n"+service("NAT", `
		real_server 10.0.0.1 514
		{
			FILE_CHECK
			{
				track_file f
			}
			TCP_CHECK
			{
				connect_timeout 2
			}
		}`))
	if len(list) > 0 {
		t.Fatal(list)
	}
	for _, text := range []string{
		"track_file f{ file /x }\n" + service("NAT", "real_server 10.0.0.1 514{ FILE_CHECK { track_file f }\nTCP_CHECK{\nconnect_timeout 2 } }"),
		"track_file f {\nfile /x }\n" + service("NAT", "real_server 10.0.0.1 514 {FILE_CHECK{track_file f}TCP_CHECK{connect_timeout 2}}"),
	} {
		cfg, list := load(t, text)
		if len(list) > 0 {
			t.Error(list)
		}
		if diff := cmp.Diff(spread, cfg, ignorePositions); diff != "" {
			t.Errorf("%s\n%s", text, diff)
		}
	}
}

func TestP08WeightZeroIsKept(t *testing.T) {
	cfg, list := load(t, service("NAT", "weight 5\nreal_server 10.0.0.1 80 {\nweight 0\nTCP_CHECK { }\n}\nreal_server 10.0.0.2 80 { }"))
	if len(list) > 0 {
		t.Error(list)
	}
	vs := one(t, cfg)
	if a, b := vs.RealServers[0], vs.RealServers[1]; a.Weight != 0 || len(a.Checkers) != 1 || b.Weight != 5 {
		t.Errorf("weights %d and %d", a.Weight, b.Weight)
	}
}

func TestP09PortsByKindOfService(t *testing.T) {
	const vs4 = "virtual_server 192.0.2.10 80 {\nprotocol TCP\n"
	const every = "virtual_server 192.0.2.10 {\nprotocol TCP\npersistence_timeout 60\n"
	const mark = "virtual_server fwmark 5 {\n"
	const group = "virtual_server_group g {\n192.0.2.10 80\n192.0.2.10 443\n}\nvirtual_server group g {\nprotocol TCP\n"
	for _, tt := range []struct {
		name, head, method, port string
		connect                  string
		wantPort, wantCheck      uint16 // wantCheck 0: the checker is dropped
		codes                    string
	}{
		{"address NAT", vs4, "NAT", "8080", "", 8080, 8080, ""},
		{"address NAT without", vs4, "NAT", "", "", 80, 80, "N305"},
		{"address DR", vs4, "DR", "80", "", 80, 80, ""},
		{"address DR without", vs4, "DR", "0", "", 80, 80, "N305"},
		{"address DR other", vs4, "DR", "8080", "", 80, 8080, "W206"},
		{"address TUN other", vs4, "TUN", "8080", "connect_port 9", 80, 9, "W206"},
		{"every port DR", every, "DR", "0", "connect_port 9", 0, 9, ""},
		{"every port DR other", every, "DR", "8080", "", 0, 8080, "W206"},
		{"every port DR no port at all", every, "DR", "", "", 0, 0, "E132"},
		{"mark DR", mark, "DR", "0", "connect_port 9", 0, 9, ""},
		{"mark DR other", mark, "DR", "8080", "", 0, 8080, "W206"},
		{"mark DR no port at all", mark, "DR", "", "", 0, 0, "E132"},
		{"mark NAT", mark, "NAT", "8080", "", 8080, 8080, ""},
		{"mark NAT without", mark, "NAT", "", "connect_port 9", 0, 9, ""},
		{"group DR", group, "DR", "", "connect_port 9", 0, 9, ""},
		{"group DR other", group, "DR", "8080", "", 8080, 8080, "W222"},
		{"group NAT", group, "NAT", "", "", 0, 0, "E132"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, list := load(t, tt.head+"lvs_sched rr\nlvs_method "+tt.method+"\nreal_server 10.0.0.1 "+tt.port+" {\nTCP_CHECK {\n"+tt.connect+"\n}\n}\n}\n")
			if got := codes(list); got != tt.codes {
				t.Errorf("codes %q, want %q: %v", got, tt.codes, list)
			}
			rs := one(t, cfg).RealServers[0]
			if rs.Key.Port() != tt.wantPort {
				t.Errorf("port %d, want %d", rs.Key.Port(), tt.wantPort)
			}
			var check uint16
			if len(rs.Checkers) > 0 {
				check = rs.Checkers[0].Conn.Target.Port()
			}
			if check != tt.wantCheck {
				t.Errorf("check on port %d, want %d", check, tt.wantCheck)
			}
		})
	}
}

func TestP13EveryURLAndEveryFormOfStatus(t *testing.T) {
	cfg, list := load(t, service("NAT", `real_server 10.0.0.1 80 {
		HTTP_GET {
			url { path /one
				status_code 200 204
				status_code 301-303
				status_code 4xx }
			url { path /two }
		}
	}`))
	if got := codes(list); got != "N303" {
		t.Errorf("findings %v", list)
	}
	urls := one(t, cfg).RealServers[0].Checkers[0].HTTP.URLs
	want := [][]config.StatusRange{{{First: 200, Last: 200}, {First: 204, Last: 204}, {First: 301, Last: 303}, {First: 400, Last: 499}}, {{First: 200, Last: 299}}}
	if len(urls) != 2 {
		t.Fatalf("%d urls", len(urls))
	}
	for i := range urls {
		if diff := cmp.Diff(want[i], urls[i].Status); diff != "" {
			t.Errorf("%s: %s", urls[i].Path, diff)
		}
	}
}

func TestP15SameRealServerTwiceMergesTheCheckers(t *testing.T) {
	cfg, list := load(t, service("NAT", `
		real_server 10.0.0.1 80 { weight 3
			TCP_CHECK { } }
		real_server 10.0.0.1 80 { weight 9
			HTTP_GET { url { path / } } }
		real_server 10.0.0.1 81 { }`))
	d := only(t, list)
	if d.Code != "E130" || d.Notes[0] != "the first one is on line 6" {
		t.Errorf("finding %+v", d)
	}
	rs := one(t, cfg).RealServers
	if len(rs) != 2 || rs[0].Weight != 3 || len(rs[0].Checkers) != 2 || rs[0].Checkers[1].Kind != config.HTTPGet {
		t.Errorf("real servers %+v", rs)
	}
	// With DR ports cannot differ, so that these are one.
	cfg, list = load(t, service("DR", "real_server 10.0.0.1 80 { }\nreal_server 10.0.0.1 8080 { TCP_CHECK { } }"))
	if got := codes(list); got != "E130 W206" {
		t.Errorf("findings %v", list)
	}
	if rs := one(t, cfg).RealServers; len(rs) != 1 || rs[0].Checkers[0].Conn.Target.Port() != 8080 {
		t.Errorf("real servers %+v", rs)
	}
}

func TestP16SameServiceTwice(t *testing.T) {
	first := service("DR", "real_server 10.0.0.1 80 { }")
	cfg, list := load(t, first+service("TUN", "real_server 10.0.0.2 80 { }"))
	if d := only(t, list); d.Code != "W207" || d.Pos.Line != 7 || d.Notes[0] != "the first one is on line 1" {
		t.Errorf("finding %+v", d)
	}
	if rs := one(t, cfg).RealServers; len(rs) != 2 || rs[0].Forward.Method != config.DR || rs[1].Forward.Method != config.TUN {
		t.Errorf("real servers %+v", rs)
	}
	for _, other := range []string{"lvs_sched wrr", "quorum 2", "hysteresis 1", "persistence_timeout 5", "persistence_granularity 255.255.255.0", "flag-1", "omega", "quorum_up /bin/a", "#sluice drain_timeout 5"} {
		first := strings.Replace(first, "real_server", "quorum_up /bin/b\nreal_server", 1)
		cfg, list := load(t, first+service("DR", other+"\nreal_server 10.0.0.2 80 { }"))
		list = slices.DeleteFunc(list, func(d diag.Diagnostic) bool { return d.Code == "W201" || d.Code == "W215" })
		if d := only(t, list); d.Code != "E131" || d.Notes[0] != "the first one is on line 1" {
			t.Errorf("%s: %+v", other, d)
		}
		if rs := one(t, cfg).RealServers; len(rs) != 1 || rs[0].Key.Addr().String() != "10.0.0.1" {
			t.Errorf("%s: real servers %+v", other, rs)
		}
	}
}

func TestP16QuorumIsJudgedAfterTheMerge(t *testing.T) {
	cfg, list := load(t, service("DR", "quorum 2\nreal_server 10.0.0.1 80 { }")+service("DR", "quorum 2\nreal_server 10.0.0.2 80 { }"))
	if got := codes(list); got != "W207" {
		t.Error(list)
	}
	if q := one(t, cfg).Quorum; q != 2 {
		t.Errorf("quorum %d", q)
	}
}

func TestP16GroupsThatShareAService(t *testing.T) {
	groups := "virtual_server_group a {\n192.0.2.1 80\n192.0.2.2 80\n}\nvirtual_server_group b {\n192.0.2.2 80\n192.0.2.3 80\n}\n"
	vs := func(group, sched, rs string) string {
		return "virtual_server group " + group + " {\nprotocol TCP\nlvs_method DR\nlvs_sched " + sched + "\nreal_server " + rs + " 80 { }\n}\n"
	}
	cfg, list := load(t, groups+vs("a", "rr", "10.0.0.1")+vs("b", "rr", "10.0.0.2"))
	if len(list) > 0 || len(cfg.VirtualServers) != 2 || len(cfg.VirtualServers[1].Entries) != 2 {
		t.Errorf("agreeing groups: %v", list)
	}
	cfg, list = load(t, groups+vs("a", "rr", "10.0.0.1")+vs("b", "lc", "10.0.0.2"))
	if d := only(t, list); d.Code != "E131" || !strings.Contains(d.Message, "group a") {
		t.Errorf("%v", d)
	}
	if e := cfg.VirtualServers[1].Entries; len(e) != 1 || e[0].Addr.String() != "192.0.2.3:80" {
		t.Errorf("left to the second: %v", e)
	}
}

func TestP18OtherHalvesAreNamedOnce(t *testing.T) {
	cfg, list := load(t, "static_ipaddress { 192.0.2.9/32 dev eth0 }\nvrrp_instance a { interface eth0\n track_file { x } }\nvrrp_instance b { }\n"+service("NAT", "real_server 10.0.0.1 80 { }"))
	d := only(t, list)
	if d.Code != "N301" || d.Class != diag.ClassNone || !strings.HasSuffix(d.Message, "static_ipaddress, vrrp_instance (2 times)") {
		t.Errorf("%+v", d)
	}
	one(t, cfg)
}

func TestP21MissingParameterIsFatalAndTheRestIsStillJudged(t *testing.T) {
	cfg, list := load(t, service("NAT", "real_server 10.0.0.1 80 {\nTCP_CHECK {\nconnect_port\n}\nweigth 1\n}"))
	if cfg != nil || codes(list) != "F101 E101" || list.ExitCode() != 2 {
		t.Errorf("%v %v", cfg, list)
	}
}

func TestP23ShellSignsInAScript(t *testing.T) {
	for script, warns := range map[string]bool{
		`" ip addr add 192.0.2.10/32 dev lo ; ip addr add 192.0.2.11/32 dev lo ;"`: true,
		`"ip addr add a; ip addr add b;"`:                                          true,
		`"/bin/echo $(date)"`:                                                      true,
		"\"/bin/echo `date`\"":                                                     true,
		`"/bin/echo x > /tmp/y"`:                                                   true,
		`"/bin/echo x 2>/dev/null"`:                                                true,
		`"/bin/a && /bin/b"`:                                                       true,
		`"/bin/a | /bin/b"`:                                                        true,
		`"/bin/sh -c 'a; b | c > d'"`:                                              false,
		`"/usr/bin/curl http://x/?a=1&b=2"`:                                        false,
		`/tmp/up.sh`:                                                               false,
		`"/sbin/ifconfig dummy0:7 down" root wheel`:                                false,
	} {
		cfg, list := load(t, service("NAT", "quorum_up "+script+"\nreal_server 10.0.0.1 80 { }"))
		want := "W215"
		if warns {
			want = "W215 W210"
		}
		if got := codes(list); got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
		if one(t, cfg).QuorumUp == nil {
			t.Errorf("%s: no script", script)
		}
	}
	cfg, _ := load(t, service("NAT", "quorum_up \"/bin/x 'a b' c\" user group\nreal_server 10.0.0.1 80 { }"))
	s := one(t, cfg).QuorumUp
	if diff := cmp.Diff(&config.Script{Argv: []string{"/bin/x", "a b", "c"}, User: "user", Group: "group"}, s, ignorePositions); diff != "" {
		t.Error(diff)
	}
}

func TestQ06QuorumAboveTheWeights(t *testing.T) {
	cfg, list := load(t, service("NAT", "quorum 10\nreal_server 10.0.0.1 80 { weight 9 }"))
	if d := only(t, list); d.Message != "quorum 10 cannot be met by total weight 9" || d.Severity != diag.Warning {
		t.Errorf("%v", d)
	}
	if q := one(t, cfg).Quorum; q != 9 {
		t.Errorf("quorum %d", q)
	}
}

func TestSameMistakeHasTheSameKeyOnAnotherLine(t *testing.T) {
	text := "SSL { key a }\nSSL { }\n" + service("NAT", "delay_lop 3\nreal_server 10.0.0.1 80 { }\nreal_server 10.0.0.1 80 { }") + service("NAT", "quorum 3\nreal_server 10.0.0.2 80 { }")
	_, a := load(t, text)
	_, b := load(t, "\n\n# moved\n"+text)
	if len(a) == 0 || len(a) != len(b) {
		t.Fatal(a, b)
	}
	for i := range a {
		if a[i].Key() != b[i].Key() {
			t.Errorf("%q and %q", a[i].Key(), b[i].Key())
		}
	}
}

func TestStrictRefusesErrorsAndNotWarnings(t *testing.T) {
	text := service("NAT", "quorum 3\nreal_server 10.0.0.1 80 { }")
	if cfg, list := keyword.LoadString("x", text, keyword.Options{Strict: true}); cfg == nil || len(list) != 1 {
		t.Errorf("warning: %v", list)
	}
	if cfg, _ := keyword.LoadString("x", text+"delay_lop 3\n", keyword.Options{Strict: true}); cfg != nil {
		t.Error("an error was let through")
	}
	if cfg, _ := keyword.LoadString("x", text+"delay_lop 3\n", keyword.Options{}); cfg == nil {
		t.Error("refused without strict")
	}
}

func TestTenThousandRealServersLoadWithinASecond(t *testing.T) {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "virtual_server 192.0.2.%d 80 {\nprotocol TCP\nlvs_sched wlc\nlvs_method NAT\ndelay_loop 6\n", i)
		for j := range 100 {
			fmt.Fprintf(&b, "real_server 10.0.%d.%d 80 {\nweight 1\nHTTP_GET {\nurl {\npath /health\nstatus_code 200\n}\nconnect_timeout 3\nretry 3\ndelay_before_retry 2\n}\n}\n", i, j)
		}
		b.WriteString("}\n")
	}
	var cfg *config.Config
	var list diag.List
	took := cpuTime(t, func() { cfg, list = load(t, b.String()) })
	if len(list) > 0 || len(cfg.VirtualServers) != 100 || len(cfg.VirtualServers[99].RealServers) != 100 {
		t.Fatal(list)
	}
	limit := time.Second
	if raceEnabled {
		limit = 15 * time.Second
	}
	if took > limit {
		t.Errorf("took %v", took)
	}
}

func TestGroupOfTheLargestSize(t *testing.T) {
	var cfg *config.Config
	var list diag.List
	took := cpuTime(t, func() {
		cfg, list = load(t, "virtual_server_group g {\n10.0.0.0/16 80\n}\nvirtual_server group g {\nprotocol TCP\nlvs_sched rr\nlvs_method NAT\nreal_server 10.9.0.1 80 { }\n}\n")
	})
	if len(list) > 0 {
		t.Fatal(list)
	}
	e := one(t, cfg).Entries
	if len(e) != 65536 || e[0].Addr.String() != "10.0.0.0:80" || e[65535].Addr.String() != "10.0.255.255:80" {
		t.Errorf("%d entries", len(e))
	}
	if took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestPersistenceEngineKeepsServicesApart(t *testing.T) {
	with := func(engine string) string {
		return service("DR", "persistence_timeout 5\npersistence_engine "+engine+"\nreal_server 10.0.0.1 80 { }")
	}
	if _, list := load(t, with("sip")+with("pis")); codes(list) != "E131" {
		t.Error(list)
	}
}

func TestFamilyOfMarksAndGroups(t *testing.T) {
	const mark = "virtual_server fwmark 5 {\nlvs_sched rr\n"
	group := func(entries string) string {
		return "virtual_server_group g {\n" + entries + "\n}\nvirtual_server group g {\nprotocol TCP\nlvs_sched rr\n"
	}
	for _, tt := range []struct {
		name, head, body string
		want             []config.Family // of the entries; none: not served
		codes            string
	}{
		{"said", mark, "ip_family inet6\nlvs_method TUN\nreal_server 10.0.0.1 { }", []config.Family{config.IPv6}, ""},
		{"granularity with a dot", mark, "persistence_granularity 255.0.0.0\nlvs_method TUN\nreal_server ::1 { }", []config.Family{config.IPv4}, ""},
		{"granularity without a dot", mark, "persistence_granularity 64\nlvs_method TUN\nreal_server 10.0.0.1 { }", []config.Family{config.IPv6}, ""},
		{"granularity against ip_family", mark, "ip_family inet\npersistence_granularity 64\nlvs_method NAT\nreal_server 10.0.0.1 { }", []config.Family{config.IPv4}, "E137"},
		{"first that is not tunnelled", mark, "lvs_method TUN\nreal_server 10.0.0.1 { }\nreal_server ::1 {\nlvs_method DR\n}", []config.Family{config.IPv6}, ""},
		{"first that is not tunnelled drops the others", mark, "lvs_method NAT\nreal_server ::1 { }\nreal_server 10.0.0.1 { }", []config.Family{config.IPv6}, "E127"},
		{"sorry server that is not tunnelled", mark, "lvs_method TUN\nreal_server 10.0.0.1 { }\nsorry_server ::2\nsorry_server_lvs_method NAT", []config.Family{config.IPv6}, ""},
		{"all tunnelled, of one family", mark, "lvs_method TUN\nreal_server ::1 { }\nsorry_server ::2", []config.Family{config.IPv6}, ""},
		{"all tunnelled, real servers mixed", mark, "lvs_method TUN\nreal_server ::1 { }\nreal_server 10.0.0.1 { }\nreal_server ::2 { }", []config.Family{config.IPv4}, ""},
		{"all tunnelled, sorry server of the other", mark, "lvs_method TUN\nreal_server ::1 { }\nsorry_server 10.0.0.2", []config.Family{config.IPv4}, ""},

		{"group's own", group("192.0.2.1 80\nfwmark 3"), "lvs_method NAT\nreal_server 10.0.0.1 80 { }", []config.Family{config.IPv4, config.IPv4}, ""},
		{"group's own, IPv6", group("fwmark 3\n2001:db8::1 80"), "lvs_method NAT\nreal_server ::1 80 { }", []config.Family{config.IPv6, config.IPv6}, ""},
		{"marks alone follow the servers", group("fwmark 3"), "lvs_method NAT\nreal_server ::1 80 { }", []config.Family{config.IPv6}, "W211"},
		{"marks alone follow ip_family", group("fwmark 3"), "ip_family inet6\nlvs_method TUN\nreal_server 10.0.0.1 80 { }", []config.Family{config.IPv6}, "W211"},
		{"one mark said twice", group("fwmark 3\nfwmark 3 inet"), "lvs_method NAT\nreal_server 10.0.0.1 80 { }", []config.Family{config.IPv4}, "W211"},
		{"group against ip_family", group("192.0.2.1 80"), "ip_family inet6\nlvs_method TUN\nreal_server 10.0.0.1 80 { }", nil, "E148"},
		{"both families and all tunnelled", group("192.0.2.1 80\n2001:db8::1 80"), "lvs_method TUN\nreal_server 10.0.0.1 80 { }\nreal_server ::1 80 { }\nsorry_server ::2 80", []config.Family{config.IPv4, config.IPv6}, ""},
		{"both families, real server not tunnelled", group("192.0.2.1 80\n2001:db8::1 80"), "lvs_method TUN\nreal_server 10.0.0.1 80 {\nlvs_method DR\n}", nil, "E148"},
		{"both families, sorry server not tunnelled", group("192.0.2.1 80\n2001:db8::1 80"), "lvs_method TUN\nreal_server 10.0.0.1 80 { }\nsorry_server 10.0.0.2 80\nsorry_server_lvs_method NAT", nil, "E148"},
		{"other family in a group", group("192.0.2.1 80"), "lvs_method DR\nreal_server ::1 80 { }\nreal_server 10.0.0.1 80 { }\nsorry_server ::2 80", []config.Family{config.IPv4}, "E127 E127"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, list := load(t, tt.head+tt.body+"\n}\n")
			if got := codes(list); got != tt.codes {
				t.Errorf("codes %q, want %q: %v", got, tt.codes, list)
			}
			var got []config.Family
			for _, vs := range cfg.VirtualServers {
				for _, e := range vs.Entries {
					got = append(got, e.Family)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMethodIsTakenWhereAServerIsDeclared(t *testing.T) {
	cfg, list := load(t, "virtual_server 192.0.2.10 80 {\nprotocol TCP\nlvs_sched rr\nreal_server 10.0.0.1 80 { }\nsorry_server 10.0.0.8 80\nlvs_method DR\nreal_server 10.0.0.2 80 { }\nlvs_method TUN\nreal_server 10.0.0.3 80 { }\n}\n")
	if len(list) > 0 {
		t.Error(list)
	}
	vs := one(t, cfg)
	got := []config.Method{vs.RealServers[0].Forward.Method, vs.RealServers[1].Forward.Method, vs.RealServers[2].Forward.Method, vs.Sorry.Forward.Method}
	if diff := cmp.Diff([]config.Method{config.TUN, config.DR, config.TUN, config.TUN}, got); diff != "" {
		t.Error(diff)
	}
}

func TestMailDefaultsDifferByBlock(t *testing.T) {
	for globals, want := range map[string][2]bool{
		"":                                   {false, true},
		"smtp_alert":                         {true, true},
		"smtp_alert off":                     {false, false},
		"smtp_alert\nsmtp_alert_checker off": {false, false},
	} {
		cfg, _ := load(t, "global_defs {\n"+globals+"\n}\n"+service("NAT", "real_server 10.0.0.1 80 { }"))
		vs := one(t, cfg)
		if got := [2]bool{vs.SMTPAlert, vs.RealServers[0].SMTPAlert}; got != want {
			t.Errorf("%q: %v", globals, got)
		}
	}
}

func TestSameServiceTwiceWithSorryServers(t *testing.T) {
	with := func(sorry, rs string) string {
		return service("DR", sorry+"\nreal_server "+rs+" 80 { }")
	}
	cfg, list := load(t, with("", "10.0.0.1")+with("sorry_server 10.0.0.9 80", "10.0.0.2"))
	if codes(list) != "W207" || one(t, cfg).Sorry == nil {
		t.Error(list)
	}
	for _, other := range []string{"sorry_server 10.0.0.8 80", "sorry_server 10.0.0.9 80\nsorry_server_inhibit", "sorry_server 10.0.0.9 80\nsorry_server_lvs_method NAT"} {
		if _, list := load(t, with("sorry_server 10.0.0.9 80", "10.0.0.1")+with(other, "10.0.0.2")); codes(list) != "E131" {
			t.Errorf("%s: %v", other, list)
		}
	}
}

func TestMarkIsOneServiceWhateverTheProtocol(t *testing.T) {
	text := "virtual_server_group g {\n192.0.2.1 80\nfwmark 3\n}\nvirtual_server fwmark 3 {\nlvs_method NAT\nlvs_sched rr\nreal_server 10.0.0.1 80 { }\n}\nvirtual_server group g {\nprotocol TCP\nlvs_method NAT\nlvs_sched lc\nreal_server 10.0.0.1 80 { }\n}\n"
	cfg, list := load(t, text)
	if d := only(t, list); d.Code != "E131" || !strings.Contains(d.Message, "share fwmark 3") {
		t.Error(list)
	}
	if e := cfg.VirtualServers[1].Entries; len(e) != 1 || e[0].FWMark != 0 {
		t.Errorf("entries %v", e)
	}
}

func TestMiscPathLooksAtItsFirstWordAlone(t *testing.T) {
	_, list := load(t, service("NAT", "real_server 10.0.0.1 80 {\nMISC_CHECK {\nmisc_path /bin/check one two\n}\n}"))
	if codes(list) != "W215 W214" {
		t.Error(list)
	}
}

func TestTrackFileWeightMayBeGivenAgainAfterOne(t *testing.T) {
	for body, want := range map[string]int64{"weight 1\nweight 7": 7, "weight 5\nweight 7": 5, "weight 300\nweight 7": 7} {
		cfg, _ := load(t, "track_file f {\nfile /x\n"+body+"\n}\n"+service("NAT", "real_server 10.0.0.1 80 {\nFILE_CHECK { track_file f }\n}"))
		if got := cfg.TrackFiles[0].Weight; got != want || one(t, cfg).RealServers[0].Checkers[0].File.Weight != want {
			t.Errorf("%q: %d", body, got)
		}
	}
}

// TestSameServerByTwoMethods: in a group, NAT and DR may name one address and port;
// it is still one real server.
func TestSameServerByTwoMethods(t *testing.T) {
	text := "virtual_server_group g {\n192.0.2.10 80\n}\nvirtual_server group g {\nprotocol TCP\nlvs_sched rr\nlvs_method NAT\n" +
		"real_server 10.0.0.1 80 { }\nreal_server 10.0.0.1 80 {\nlvs_method DR\n}\n}\n"
	cfg, list := load(t, text)
	if n := len(one(t, cfg).RealServers); n != 1 || codes(list) != "E130" {
		t.Errorf("%d real servers, %s", n, codes(list))
	}
}
