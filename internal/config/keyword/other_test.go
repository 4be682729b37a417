package keyword_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/keyword"
)

// globals reads a global_defs block.
func globals(t *testing.T, words string) (config.Global, diag.List) {
	t.Helper()
	cfg, list := load(t, "global_defs {\n"+words+"\n}\n")
	if cfg == nil {
		t.Fatal(list)
	}
	return cfg.Global, list
}

// checkOf reads the checkers of one real server.
func checkOf(t *testing.T, words string) ([]*config.Checker, diag.List) {
	t.Helper()
	cfg, list := load(t, "global_defs { enable_script_security }\n"+service("NAT", "real_server 10.0.0.1 80 {\n"+words+"\n}"))
	return one(t, cfg).RealServers[0].Checkers, list
}

func TestHexOfUDPChecks(t *testing.T) {
	for _, tt := range []struct {
		words       string
		reply, mask []byte
		codes       string
	}{
		{"00 ff", []byte{0, 0xff}, []byte{0xff, 0xff}, ""},
		{"00fF", []byte{0, 0xff}, []byte{0xff, 0xff}, ""},
		{"1 2", []byte{1, 2}, []byte{0xff, 0xff}, ""},
		{"123", []byte{0x12, 3}, []byte{0xff, 0xff}, ""},
		{"12 3 45", []byte{0x12, 3, 0x45}, []byte{0xff, 0xff, 0xff}, ""},
		{"xx", []byte{0}, []byte{0}, ""},
		{"X1 1x", []byte{1, 0x10}, []byte{0x0f, 0xf0}, ""},
		{"x", []byte{0}, []byte{0xf0}, ""}, // the digit that is not there is 0
		{`"00 11" 22`, []byte{0, 0x11, 0x22}, []byte{0xff, 0xff, 0xff}, ""},
		{"", nil, nil, ""},
		{"ZZ", nil, nil, "E141"},
		{"00 0g", nil, nil, "E141"},
		{"0x00", []byte{0, 0}, []byte{0xf0, 0xff}, ""}, // no prefix: 0 and any digit
	} {
		got, list := checkOf(t, "UDP_CHECK {\nrequire_reply "+tt.words+"\n}")
		u := got[0].UDP
		if codes(list) != tt.codes || !u.Require || string(u.Reply) != string(tt.reply) || string(u.Mask) != string(tt.mask) || (u.Reply == nil) != (tt.reply == nil) {
			t.Errorf("%q: %+v %v", tt.words, u, list)
		}
	}
	for words, want := range map[string]string{"00 ff": "\x00\xff", "1 2": "\x01\x02", "123": "\x12\x03"} {
		got, list := checkOf(t, "UDP_CHECK {\nrequire_reply\npayload "+words+"\n}")
		if u := got[0].UDP; string(u.Payload) != want || len(list) > 0 || u.Min != 0 || u.Max != 255 {
			t.Errorf("%q: %+v %v", words, u, list)
		}
	}
	for _, words := range []string{"xx", "0g", "0x"} {
		got, list := checkOf(t, "UDP_CHECK {\nrequire_reply\npayload "+words+"\n}")
		if u := got[0].UDP; u.Payload != nil || codes(list) != "E141" {
			t.Errorf("payload %q: %+v %v", words, u, list)
		}
	}
}

// TestC13UDPCheckThatCannotSeeADeadHost: a notice, once, and none where another
// check sees it; a configuration test still calls the file fine.
func TestC13UDPCheckThatCannotSeeADeadHost(t *testing.T) {
	for words, want := range map[string]string{
		"UDP_CHECK { }":                                  "N306",
		"UDP_CHECK { payload 00 }":                       "N306",
		"UDP_CHECK { }\nUDP_CHECK { }":                   "N306",
		"UDP_CHECK { require_reply }":                    "",
		"UDP_CHECK { }\nPING_CHECK { }":                  "",
		"UDP_CHECK { }\nUDP_CHECK { require_reply 00 }":  "",
		"UDP_CHECK { }\nMISC_CHECK { misc_path /bin/x }": "",
		"UDP_CHECK { }\nMISC_CHECK { }":                  "E150 N306",
	} {
		_, list := checkOf(t, words)
		got := strings.Fields(codes(list))
		if len(got) == 2 && got[0] == "N306" {
			got[0], got[1] = got[1], got[0]
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v", words, list)
		}
		if want == "N306" && (list.ExitCode() != 0 || list[0].Severity != diag.Notice || !strings.Contains(list[0].Hint, "PING_CHECK")) {
			t.Errorf("%s: status %d, %+v", words, list.ExitCode(), list[0])
		}
	}
}

func TestChecksWithoutAPort(t *testing.T) {
	const mark = "virtual_server fwmark 5 {\nlvs_sched rr\nlvs_method DR\nreal_server 10.0.0.1 {\n"
	for words, want := range map[string]string{
		"PING_CHECK { }": "", "MISC_CHECK { misc_path /bin/x }": "", "DNS_CHECK { }": "E132", "SMTP_CHECK { }": "E132", "UDP_CHECK { require_reply }": "E132", "TCP_CHECK { }": "E132",
		"DNS_CHECK { connect_port 53 }": "", "SMTP_CHECK { host { connect_port 25 } }": "",
	} {
		cfg, list := load(t, "global_defs { enable_script_security }\n"+mark+words+"\n}\n}\n")
		left := len(one(t, cfg).RealServers[0].Checkers)
		if codes(list) != want || (left == 1) != (want == "") {
			t.Errorf("%s: %d left, %v", words, left, list)
		}
	}
	got, _ := checkOf(t, "PING_CHECK {\nconnect_ip 10.0.0.2\nconnect_port 7\nfwmark 3\nbind_if eth0\n}")
	if c := got[0].Conn; c.Target.String() != "10.0.0.2:0" || c.FWMark != 3 || c.BindIf != "eth0" {
		t.Errorf("%+v", c)
	}
	if got, list := checkOf(t, "PING_CHECK {\nconnect_ip fe80::1\n}"); len(got) != 0 || codes(list) != "E139" {
		t.Errorf("link-local: %v", list)
	}
}

func TestDNSAndSMTPDefaults(t *testing.T) {
	got, list := checkOf(t, "DNS_CHECK { }\nDNS_CHECK {\ntype dnskey\nname a.example.com.\n}\nDNS_CHECK { name . }\nSMTP_CHECK { }\nSMTP_CHECK {\nhelo_name a.example.com\nhost { connect_ip 10.0.0.9 }\n}")
	if len(list) > 0 {
		t.Error(list)
	}
	want := []*config.Checker{{DNS: &config.DNS{Type: "SOA"}}, {DNS: &config.DNS{Type: "DNSKEY", Name: "a.example.com."}}, {DNS: &config.DNS{Type: "SOA", Name: "."}}, {SMTP: &config.SMTP{Helo: config.DefaultHelo}}, {SMTP: &config.SMTP{Helo: "a.example.com"}}}
	for i, w := range want {
		if diff := cmp.Diff(w.DNS, got[i].DNS); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(w.SMTP, got[i].SMTP); diff != "" {
			t.Error(diff)
		}
	}
	if len(got) != 5 || got[4].Conn.Target.String() != "10.0.0.9:80" {
		t.Errorf("%d checkers, the last to %v", len(got), got[4].Conn.Target)
	}
}

func TestUserOfAScript(t *testing.T) {
	text := func(words string) string {
		return "global_defs {\nenable_script_security\nscript_user svc adm\n}\n" + service("NAT", "real_server 10.0.0.1 80 {\nMISC_CHECK {\n"+words+"\n}\n}")
	}
	for words, want := range map[string][2]string{
		"misc_path /bin/x":                        {"svc", "adm"},
		"user nobody\nmisc_path /bin/x":           {"nobody", ""},
		"misc_path /bin/x\nuser nobody nogroup":   {"nobody", "nogroup"},
		"misc_path \"/bin/x\"\nuser a b\nuser c ": {"c", ""},
	} {
		cfg, list := load(t, text(words))
		if s := one(t, cfg).RealServers[0].Checkers[0].Misc.Script; [2]string{s.User, s.Group} != want || len(list) > 0 {
			t.Errorf("%q: %+v %v", words, s, list)
		}
	}
	// What stands before script_user does not get it, as in keepalived.
	cfg, _ := load(t, service("NAT", "real_server 10.0.0.1 80 {\nnotify_up /bin/x\n}")+"global_defs { script_user svc }\n")
	if s := one(t, cfg).RealServers[0].NotifyUp; s.User != "" || cfg.Global.ScriptUser != "svc" {
		t.Errorf("%+v", s)
	}
}

// TestTestOfAFile: "<" and a path is no program. Checks and the scripts at start
// and stop may be one, and none of it is a matter of script security.
func TestTestOfAFile(t *testing.T) {
	for _, form := range []string{"</run/x", `"</run/x"`, `"< /run/x"`, `"<	/run/x"`} {
		cfg, list := load(t, "global_defs {\nstartup_script "+form+"\n}\n"+service("NAT", "real_server 10.0.0.1 80 {\nMISC_CHECK {\nmisc_path "+form+"\n}\n}"))
		if len(list) > 0 {
			t.Errorf("%s: %v", form, list)
			continue
		}
		for _, s := range []*config.Script{one(t, cfg).RealServers[0].Checkers[0].Misc.Script, cfg.Global.StartupScript} {
			if diff := cmp.Diff([]string{"</run/x"}, s.Argv); diff != "" {
				t.Errorf("%s: %s", form, diff)
			}
		}
	}
	cfg, list := load(t, "global_defs { enable_script_security\nnotify_fifo /run/f\nnotify_fifo_script </run/x\n}\n"+service("NAT", "quorum_up \"< /run/x\"\nreal_server 10.0.0.1 80 {\nnotify_down </run/x\n}"))
	vs := one(t, cfg)
	if codes(list) != "E116 E116 E116" || vs.QuorumUp != nil || vs.RealServers[0].NotifyDown != nil || cfg.Global.FIFOs[0].Script != nil {
		t.Error(list)
	}
}

func TestMail(t *testing.T) {
	g, list := globals(t, `notification_email {
		a@example.com b@example.com
		"Third <c@example.com>"
	}
	notification_email { d@example.com }
	notification_email_from "LVS One <lvs@example.com>"
	smtp_server mail-1.example.com
	smtp_helo_name lb
	smtp_connect_timeout 7
	no_checker_emails`)
	want := config.Mail{
		To: []string{"a@example.com", "b@example.com", "Third <c@example.com>", "d@example.com"}, From: "LVS One <lvs@example.com>",
		Server: "mail-1.example.com", Port: 25, Helo: "lb", Timeout: 7 * time.Second, NoCheckerEmails: true,
	}
	if diff := cmp.Diff(want, g.Mail); diff != "" || len(list) > 0 {
		t.Error(diff, list)
	}
	if g, _ := globals(t, "smtp_connect_timeout 0"); g.Mail.Timeout != time.Second {
		t.Errorf("0 is %v", g.Mail.Timeout)
	}
	if g, _ := globals(t, ""); g.Mail.Timeout != 30*time.Second || g.Mail.Server != "" {
		t.Errorf("default %+v", g.Mail)
	}
	if g, _ := globals(t, "smtp_server 192.0.2.1\nsmtp_server ::1 587"); g.Mail.Server != "::1" || g.Mail.Port != 587 {
		t.Errorf("%+v", g.Mail)
	}
}

func TestFIFOs(t *testing.T) {
	for _, tt := range []struct {
		words string
		want  []config.FIFO
		codes string
	}{
		{"", nil, ""},
		{"notify_fifo /n", []config.FIFO{{Path: "/n"}}, ""},
		{"notify_fifo /n u g\nlvs_notify_fifo /l u", []config.FIFO{{Path: "/l", User: "u"}, {Path: "/n", User: "u", Group: "g"}}, ""},
		{"script_user s t\nlvs_notify_fifo /l", []config.FIFO{{Path: "/l", User: "s", Group: "t"}}, ""},
		{"script_user s t\nlvs_notify_fifo /l u", []config.FIFO{{Path: "/l", User: "u"}}, ""},
		{"lvs_notify_fifo /l\nlvs_notify_fifo_script \"/bin/r x\" u", []config.FIFO{{Path: "/l", Script: &config.Script{Argv: []string{"/bin/r", "x"}, User: "u"}}}, ""},
		{"lvs_notify_fifo_script /bin/r\nlvs_notify_fifo /l", []config.FIFO{{Path: "/l", Script: &config.Script{Argv: []string{"/bin/r"}}}}, ""},
		{"lvs_notify_fifo /l\nlvs_notify_fifo /m", []config.FIFO{{Path: "/l"}}, "E109"},
		{"notify_fifo /x u\nlvs_notify_fifo /x\nlvs_notify_fifo_script /bin/r", []config.FIFO{{Path: "/x", User: "u"}}, "W229"},
		{"vrrp_notify_fifo /x\nlvs_notify_fifo /x\nlvs_notify_fifo_script /bin/r", []config.FIFO{{Path: "/x", Script: &config.Script{Argv: []string{"/bin/r"}}}}, ""},
		{"vrrp_notify_fifo /x\nlvs_notify_fifo /x\nlvs_notify_fifo_script /bin/r\nvrrp_notify_fifo_script /bin/v", []config.FIFO{{Path: "/x"}}, "W229"},
		{"vrrp_notify_fifo /y\nlvs_notify_fifo /x\nlvs_notify_fifo_script /bin/r\nvrrp_notify_fifo_script /bin/v", []config.FIFO{{Path: "/x", Script: &config.Script{Argv: []string{"/bin/r"}}}}, ""},
		{"notify_fifo_script /bin/r", nil, "W229"},
	} {
		g, list := globals(t, "enable_script_security\n"+tt.words)
		if diff := cmp.Diff(tt.want, g.FIFOs, ignorePositions); diff != "" || codes(list) != tt.codes {
			t.Errorf("%s: %s %v", tt.words, diff, list)
		}
	}
}

func TestSyncDaemon(t *testing.T) {
	for _, tt := range []struct {
		words, want, codes string
	}{
		{"lvs_sync_daemon eth0", "eth0 id 0|both", ""},
		{"lvs_sync_daemon eth0 id 7 maxlen 1400 port 8848 ttl 3 group 224.0.0.81", "eth0 id 7 maxlen 1400 port 8848 ttl 3 group 224.0.0.81|both", ""},
		{"lvs_sync_daemon eth0 VI_1", "eth0 inst VI_1 id 0|off", "W228"},
		{"lvs_sync_daemon eth0 inst VI_1 id 3", "eth0 inst VI_1 id 3|off", "W228"},
		{"lvs_sync_daemon eth0 id 3 inst VI_1", "eth0 inst VI_1 id 3|off", "W228"},
		{"lvs_sync_daemon eth0 VI_1 3", "eth0 inst VI_1 id 3|off", "E108 W228"},
		{"lvs_sync_daemon eth0 VI_1 3 id 4", "eth0 inst VI_1 id 4|off", "E108 W228"},
		{"lvs_sync_daemon eth0 3", "eth0 inst 3 id 0|off", "W228"},
		{"lvs_sync_daemon eth0 VI_1\n#sluice lvs_sync_state master", "eth0 inst VI_1 id 0|master", ""},
		{"#sluice lvs_sync_state both\nlvs_sync_daemon eth0 VI_1", "eth0 inst VI_1 id 0|both", ""},
		{"lvs_sync_daemon eth0\n#sluice lvs_sync_state off", "eth0 id 0|off", ""},
		{"lvs_sync_daemon eth0 VI_1\n#sluice lvs_sync_state off", "eth0 inst VI_1 id 0|off", ""},
		{"lvs_sync_daemon eth0 VI_1 inst VI_2", "eth0 inst VI_1 id 0|off", "E109 W228"},
		{"lvs_sync_daemon eth0 id 256 group ff02::81", "eth0 id 0 group ff02::81|both", "E103"},
		{"lvs_sync_daemon eth0 id 2 colour id 3", "eth0 id 3|both", "E108"},
		{"lvs_sync_daemon eth0\nlvs_sync_daemon eth1 id 3", "eth0 id 0|both", "E109"},
		{"lvs_sync_daemon a_much_too_long_name", "", "E144"},
		{"#sluice lvs_sync_state both", "", "W228"},
		{"lvs_sync_daemon eth0 inst", "eth0 id 0|both", "E149"},
	} {
		cfg, list := load(t, "global_defs {\n"+tt.words+"\n}\n")
		var b strings.Builder
		if err := config.Print(&b, cfg); err != nil {
			t.Fatal(err)
		}
		line, state := "", ""
		for l := range strings.Lines(b.String()) {
			l = strings.TrimSpace(l)
			if s, ok := strings.CutPrefix(l, "lvs_sync_daemon "); ok {
				line = s + "|"
			}
			if s, ok := strings.CutPrefix(l, "#sluice lvs_sync_state "); ok {
				state = s
			}
		}
		if line+state != tt.want || sorted(list) != tt.codes {
			t.Errorf("%s: %q %v", tt.words, line+state, list)
		}
	}
}

// sorted lists codes by name and not by place.
func sorted(list diag.List) string {
	s := strings.Fields(codes(list))
	for i := range s {
		for j := i + 1; j < len(s); j++ {
			if s[j] < s[i] {
				s[i], s[j] = s[j], s[i]
			}
		}
	}
	return strings.Join(s, " ")
}

func TestProcess(t *testing.T) {
	for _, tt := range []struct {
		words string
		want  config.Process
		codes string
	}{
		{"", config.Process{}, ""},
		{"process_name a", config.Process{Name: "a"}, ""},
		{"process_name a\nprocess_names", config.Process{Name: "keepalived_lvs"}, ""},
		{"process_names\nchecker_process_name b\nprocess_name a", config.Process{Name: "b"}, ""},
		{"lvs_process_name b", config.Process{Name: "b"}, "W209"},
		{"process_name sixteen_letters_", config.Process{Name: "sixteen_letters"}, "E144"},
		{"checker_priority -20\nchecker_no_swap", config.Process{Nice: -20, NiceSet: true, NoSwap: true}, ""},
		{"checker_priority 0", config.Process{NiceSet: true}, ""},
		{"checker_priority -5\nchecker_priority 20", config.Process{NiceSet: true}, "E103"},
		{"checker_priority x", config.Process{NiceSet: true}, "E102"},
		{"checker_rt_priority 7", config.Process{RealTime: 7, RealTimeLimit: 10 * time.Millisecond}, ""},
		{"checker_rt_priority 0", config.Process{RealTime: 1, RealTimeLimit: 10 * time.Millisecond}, "E103"},
		{"checker_rt_priority -99999999999999999999", config.Process{RealTime: 1, RealTimeLimit: 10 * time.Millisecond}, "E103"},
		{"checker_rt_priority 1000", config.Process{RealTime: 99, RealTimeLimit: 10 * time.Millisecond}, "E103"},
		{"checker_rt_priority x", config.Process{}, "E102"},
		{"checker_rlimit_rttime 1", config.Process{RealTimeLimit: 2 * time.Microsecond}, ""},
		{"checker_rlimit_rtime 5000\nchecker_rt_priority 5", config.Process{RealTime: 5, RealTimeLimit: 5 * time.Millisecond}, "W209"},
		{"checker_cpu_affinity 3 0 3", config.Process{CPUs: []int{0, 3}}, ""},
		{"checker_cpu_affinity 3 x 1", config.Process{CPUs: []int{1, 3}}, "E102"},
		{"checker_cpu_affinity x", config.Process{}, "E102"},
		{"checker_cpu_affinity 3\nchecker_cpu_affinity 1", config.Process{CPUs: []int{1}}, ""},
		{"umask 0177", config.Process{Umask: 0o177, UmaskSet: true}, ""},
		{"umask 0x7f", config.Process{Umask: 0o177, UmaskSet: true}, ""},
		{"umask 127", config.Process{Umask: 0o177, UmaskSet: true}, ""},
		{"umask 0", config.Process{UmaskSet: true}, ""},
		{"umask IRWXU|IRWXG|IRWXO", config.Process{Umask: 0o777, UmaskSet: true}, ""},
		{"umask IRUSR | IWUSR| IXUSR |IRGRP|IWGRP | IXGRP", config.Process{Umask: 0o770, UmaskSet: true}, ""},
		{"umask IROTH|IWOTH|IXOTH", config.Process{Umask: 0o007, UmaskSet: true}, ""},
		{"umask IRUSR IWUSR", config.Process{}, "E108"},
		{"umask S_IRUSR", config.Process{}, "E108"},
		{"umask IRWXUSR", config.Process{}, "E108"},
		{"umask IRU", config.Process{}, "E108"},
		{"umask 0o17", config.Process{}, "E102"},
		{"umask 0b11", config.Process{}, "E102"},
		{"umask 1_0", config.Process{}, "E102"},
		{"umask 08", config.Process{}, "E102"},
		{"umask 512", config.Process{}, "E103"},
		{"umask 99999999999999999999", config.Process{}, "E103"},
	} {
		g, list := globals(t, tt.words)
		if diff := cmp.Diff(tt.want, g.Process); diff != "" || codes(list) != tt.codes {
			t.Errorf("%s: %s %v", tt.words, diff, list)
		}
	}
}

func TestHASuspend(t *testing.T) {
	const group = "virtual_server_group g {\n192.0.2.1 80\n%s\n}\nvirtual_server group g {\nprotocol TCP\nlvs_sched rr\nlvs_method NAT\nha_suspend\nreal_server 10.0.0.1 80 { }\n}\n"
	for name, tt := range map[string]struct {
		text, codes string
		want        bool
	}{
		"an address":         {service("NAT", "ha_suspend\nreal_server 10.0.0.1 80 { }"), "", true},
		"a mark":             {"virtual_server fwmark 3 {\nlvs_sched rr\nlvs_method NAT\nha_suspend\nreal_server 10.0.0.1 80 { }\n}\n", "E136", false},
		"a group":            {strings.ReplaceAll(group, "%s", ""), "N307", true},
		"a group with marks": {strings.ReplaceAll(group, "%s", "fwmark 3"), "E136", false},
	} {
		cfg, list := load(t, tt.text)
		if codes(list) != tt.codes || one(t, cfg).HASuspend != tt.want {
			t.Errorf("%s: %v %v", name, one(t, cfg).HASuspend, list)
		}
	}
}

// TestOldSpellings: those that keepalived takes work; those of other times and
// programs are errors that say what to write.
func TestOldSpellings(t *testing.T) {
	for line, want := range map[string]string{"lb_algo lc": "", "lb_kind DR": ""} {
		if _, list := load(t, "virtual_server 192.0.2.1 80 {\nprotocol TCP\nlvs_sched rr\nlvs_method NAT\n"+line+"\nreal_server 10.0.0.1 80 { }\n}\n"); codes(list) != want {
			t.Errorf("%s: %v", line, list)
		}
	}
	for text, hint := range map[string]string{
		"global_defs {\nlvs_id x\n}":                                   `did you mean "router_id"?`,
		service("NAT", "delay 6\nreal_server 10.0.0.1 80 { }"):         `did you mean "delay_loop"?`,
		service("NAT", "real_server 10.0.0.1 80 { nb_get_retry 3 }"):   "write retry",
		service("NAT", "real_server 10.0.0.1 80 { lb_kind NAT }"):      "write lvs_method",
		service("NAT", "quorum_max 3\nreal_server 10.0.0.1 80 { }"):    "no such keyword",
		"global_defs {\nlvs_sync_deamon eth0\n}":                       `did you mean "lvs_sync_daemon"?`,
		"global_defs {\nstate_file_location /x\n}":                     "the line is ignored",
		"global_defs {\nnotification_emial {\na@example.com\n}\n}":     `did you mean "notification_email"?`,
		service("NAT", "real_server 10.0.0.1 80 {\nSMPT_CHECK { }\n}"): `did you mean "SMTP_CHECK"?`,
	} {
		_, list := load(t, text)
		if d := only(t, list); d.Code != "E101" || !strings.Contains(d.Hint, hint) {
			t.Errorf("%s: %+v", text, d)
		}
	}
}

// TestWordsThatLoseNothingAreSilent: SNMP and what belongs to keepalived's
// processes is read without a word, and still judged.
func TestWordsThatLoseNothingAreSilent(t *testing.T) {
	_, list := load(t, "child_wait_time 5\nglobal_defs {\nenable_snmp_checker\nenable_traps\nsnmp_socket udp:127.0.0.1:705\nsnmp_vs_stats_update_interval 5\nenable_dbus\nvrrp_strict whatever it takes\nrandom_seed 5\n"+
		"reload_check_config\nmax_auto_priority\nlvs_netlink_cmd_rcv_bufs 0\nstats_dump_file /x\njson_dump_file /x\njson_version 2\n}\n"+service("NAT", "snmp_name a\nreal_server 10.0.0.1 80 { snmp_name b }"))
	if len(list) > 0 {
		t.Error(list)
	}
	_, list = load(t, "global_defs {\nsnmp_vs_stats_update_interval 31\nrandom_seed x\nmin_auto_priority_delay 0\n}\n")
	if codes(list) != "E103 E102 E103" {
		t.Error(list)
	}
	_, list = load(t, "bfd_instance a {\n}\nbfd_instance b {\n}\n"+service("NAT", "real_server 10.0.0.1 80 {\nBFD_CHECK { name a }\nBFD_CHECK { name b }\n}"))
	list = list[1:] // that BFD is not for this daemon
	if d := only(t, list); d.Code != "W201" || d.Notes[0] != "and 1 more in this configuration" {
		t.Error(list)
	}
}

// TestBFDCheckNeedsItsInstance: it is not run here, but a file that keepalived finds
// wanting is.
func TestBFDCheckNeedsItsInstance(t *testing.T) {
	for check, want := range map[string]string{
		"BFD_CHECK { name a }":                       "W201",
		"BFD_CHECK { }":                              "E152 W201",
		"BFD_CHECK { name c }":                       "W201 E152",
		"BFD_CHECK { name a }\nBFD_CHECK { name a }": "W201 E152",
		"BFD_CHECK { name late }":                    "W201 E152",
	} {
		_, list := load(t, "bfd_instance a {\n}\n"+service("NAT", "real_server 10.0.0.1 80 {\n"+check+"\n}")+"bfd_instance late {\n}\n")
		list = slices.DeleteFunc(list, func(d diag.Diagnostic) bool { return d.Code == "N301" })
		if codes(list) != want {
			t.Errorf("%s: %v", check, list)
		}
	}
}

// TestMissingWhereKeepalivedGoesOn: some words count their parameters themselves,
// and the file is still used.
func TestMissingWhereKeepalivedGoesOn(t *testing.T) {
	for _, word := range []string{"lvs_sync_daemon", "lvs_notify_fifo", "notify_fifo_script", "lvs_timeouts", "lvs_timeouts tcp", "checker_priority", "smtp_helo_name"} {
		cfg, list := keyword.LoadString("test.conf", "global_defs {\n"+word+"\n}\n", keyword.Options{})
		if cfg == nil || codes(list) != "E149" || list.ExitCode() != 5 {
			t.Errorf("%s: %v", word, list)
		}
	}
}

// TestReloadFileWithoutAPath: where it is follows from words that may stand
// before or after it.
func TestReloadFileWithoutAPath(t *testing.T) {
	const word = "global_defs {\nreload_file\n}\n"
	for text, want := range map[string]string{
		"":                                    "",
		word:                                  "/run/keepalived.reload",
		word + "use_pid_dir\n":                "/run/keepalived/keepalived.reload",
		"use_pid_dir\n" + word:                "/run/keepalived/keepalived.reload",
		word + "instance blue\n":              "/run/keepalived/keepalived_blue.reload",
		"use_pid_dir\ninstance blue\n" + word: "/run/keepalived/keepalived_blue.reload",
		"use_pid_dir\n":                       "",
		word + "global_defs {\nreload_file /x\n}\n": "/x",
		"global_defs {\nreload_file /x\n}\n" + word: "/run/keepalived.reload",
	} {
		cfg, list := load(t, text)
		if len(list) > 0 || cfg.Global.Paths.ReloadFile != want {
			t.Errorf("%q: %q, want %q (%v)", text, cfg.Global.Paths.ReloadFile, want, list)
		}
	}
}
