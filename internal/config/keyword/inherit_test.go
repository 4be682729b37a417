package keyword_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// inherits is what a checker takes from where; "" is what it has no word for.
type inherits struct{ loop, before, warmup, timeout, retry, rise string }

// checkerBlocks are all that run by the clock, with what their type gives them.
var checkerBlocks = []struct {
	name, block string
	def         inherits
}{
	{"TCP_CHECK", "TCP_CHECK {\n%s\n}", inherits{"1m0s", "1s", "1m0s", "5s", "1", "1"}},
	{"HTTP_GET", "HTTP_GET {\n%s\nurl { path / }\n}", inherits{"1m0s", "3s", "1m0s", "5s", "1", "2"}},
	{"SSL_GET", "SSL_GET {\n%s\nurl { path / }\n}", inherits{"1m0s", "3s", "1m0s", "5s", "1", "2"}},
	{"HTTP_GET fast_recovery", "HTTP_GET {\nfast_recovery\n%s\nurl { path / }\n}", inherits{"1m0s", "3s", "1m0s", "5s", "1", "1"}},
	{"SMTP_CHECK", "SMTP_CHECK {\n%s\n}", inherits{"1m0s", "1s", "1m0s", "5s", "1", "1"}},
	{"SMTP_CHECK host", "SMTP_CHECK {\nhost {\n%s\n}\n}", inherits{"1m0s", "1s", "1m0s", "5s", "1", "1"}},
	{"DNS_CHECK", "DNS_CHECK {\n%s\n}", inherits{"1m0s", "1m0s", "1m0s", "5s", "3", "1"}},
	{"UDP_CHECK", "UDP_CHECK {\nrequire_reply\n%s\n}", inherits{"1m0s", "1s", "1m0s", "5s", "1", "1"}},
	{"PING_CHECK", "PING_CHECK {\n%s\n}", inherits{"1m0s", "1s", "1m0s", "5s", "1", "1"}},
	{"MISC_CHECK", "MISC_CHECK {\nmisc_path /bin/x\n%s\n}", inherits{"1m0s", "1s", "1m0s", "", "0", "1"}},
}

// inherit reads one checker, with words of the virtual and the real server.
func inherit(t *testing.T, vs, rs, checker string) *config.Checker {
	t.Helper()
	cfg, list := load(t, "global_defs { enable_script_security }\n"+service("NAT", vs+"\nreal_server 10.0.0.1 80 {\n"+rs+"\n"+checker+"\n}"))
	if len(list) > 0 {
		t.Fatal(list)
	}
	return one(t, cfg).RealServers[0].Checkers[0]
}

func TestP19OneTableOfDefaultsAndInheritance(t *testing.T) {
	const vs = "delay_loop 11\ndelay_before_retry 12\nwarmup 13\nconnect_timeout 14\nretry 15\n#sluice rise 16\nalpha\n"
	const rs = "delay_loop 21\ndelay_before_retry 22\nwarmup 23\nconnect_timeout 24\nretry 25\n#sluice rise 26\nalpha off\n"
	const own = "delay_loop 31\ndelay_before_retry 32\nwarmup 33\nretry 0\n#sluice rise 36\nalpha\n"
	fromVS := inherits{"11s", "12s", "13s", "14s", "15", "16"}
	fromRS := inherits{"21s", "22s", "23s", "24s", "25", "26"}
	fromOwn := inherits{"31s", "32s", "33s", "34s", "0", "36"}
	for _, c := range checkerBlocks {
		self := own
		if c.name != "MISC_CHECK" {
			self += "connect_timeout 34\n"
		}
		for _, tt := range []struct {
			name, vs, rs, own string
			want              inherits
			alpha             bool
		}{
			{"its type's", "", "", "", c.def, false},
			{"the virtual server's", vs, "", "", fromVS, true},
			{"the real server's before the virtual server's", vs, rs, "", fromRS, false},
			{"the real server's alone", "", rs, "", fromRS, false},
			{"its own before both", vs, rs, self, fromOwn, true},
			{"its own alone", "", "", self, fromOwn, true},
		} {
			t.Run(c.name+"/"+tt.name, func(t *testing.T) {
				got := inherit(t, tt.vs, tt.rs, fmt.Sprintf(c.block, tt.own))
				if c.def.timeout == "" {
					tt.want.timeout = "0s" // it makes no connection
				}
				show := inherits{got.DelayLoop.String(), got.DelayBeforeRetry.String(), got.Warmup.String(), got.Conn.Timeout.String(), fmt.Sprint(got.Retry), fmt.Sprint(got.Rise)}
				if show != tt.want || got.Alpha != tt.alpha {
					t.Errorf("got %v alpha %v, want %v alpha %v", show, got.Alpha, tt.want, tt.alpha)
				}
			})
		}
		// A warmup that nobody gives is the checker's own delay_loop.
		if got := inherit(t, "delay_loop 6", "", fmt.Sprintf(c.block, "delay_loop 9")); got.Warmup != 9*time.Second {
			t.Errorf("%s: warmup %v", c.name, got.Warmup)
		}
	}
	// So is delay_before_retry of DNS_CHECK, wherever delay_loop comes from.
	for from, words := range map[string][3]string{"virtual server": {"delay_loop 8"}, "real server": {"delay_loop 7", "delay_loop 8"}, "check": {"delay_loop 6", "delay_loop 7", "delay_loop 8"}} {
		if got := inherit(t, words[0], words[1], "DNS_CHECK {\n"+words[2]+"\n}"); got.DelayBeforeRetry != 8*time.Second {
			t.Errorf("delay_loop of the %s: delay_before_retry %v", from, got.DelayBeforeRetry)
		}
	}
}

// TestC17RetryCountsTheSameInEveryChecker: what is configured is the number of
// failures that are forgiven, whatever the checker; only the defaults differ.
func TestC17RetryCountsTheSameInEveryChecker(t *testing.T) {
	for _, c := range checkerBlocks {
		for _, from := range []string{"virtual server", "real server", "check"} {
			words := map[string]string{from: "retry 3"}
			if got := inherit(t, words["virtual server"], words["real server"], fmt.Sprintf(c.block, words["check"])); got.Retry != 3 {
				t.Errorf("%s: retry 3 of the %s is %d", c.name, from, got.Retry)
			}
		}
	}
}

// TestTimeoutOfAScript: misc_timeout, else the virtual server's delay_loop and
// nobody else's.
func TestTimeoutOfAScript(t *testing.T) {
	for _, tt := range []struct {
		vs, rs, own string
		want        time.Duration
	}{
		{"", "", "", time.Minute},
		{"delay_loop 0.25", "", "", 250 * time.Millisecond},
		{"", "delay_loop 7", "delay_loop 8", time.Minute},
		{"delay_loop 9", "delay_loop 7", "delay_loop 8", 9 * time.Second},
		{"delay_loop 9", "", "misc_timeout 4", 4 * time.Second},
		{"delay_loop 9", "", "misc_timeout 0", 9 * time.Second},
		{"delay_loop 9", "", "misc_timeout 4\nmisc_timeout 0", 9 * time.Second},
		{"", "", "misc_timeout 4294", 4294 * time.Second},
	} {
		if got := inherit(t, tt.vs, tt.rs, "MISC_CHECK {\nmisc_path /bin/x\n"+tt.own+"\n}").Misc.Timeout; got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	// A real server that is merged into one of another virtual_server block keeps
	// the timeout of the block it stood in.
	cfg, _ := load(t, service("NAT", "delay_loop 3\nreal_server 10.0.0.1 80 { MISC_CHECK { misc_path /bin/x } }")+
		service("NAT", "delay_loop 4\nreal_server 10.0.0.2 80 { MISC_CHECK { misc_path /bin/x } }"))
	if vs := one(t, cfg); vs.RealServers[0].Checkers[0].Misc.Timeout != 3*time.Second || vs.RealServers[1].Checkers[0].Misc.Timeout != 4*time.Second {
		t.Error("timeouts after a merge")
	}
}

// TestTimeoutOfSMTPAfterTheCheck: keepalived's SMTP_CHECK inherits what stands
// before the end of its block. Here it inherits as every checker, and where that
// differs a warning says so.
func TestTimeoutOfSMTPAfterTheCheck(t *testing.T) {
	const check = "SMTP_CHECK { }"
	for _, tt := range []struct {
		vs, rs, after, late string
		want                time.Duration
		codes               string
	}{
		{"connect_timeout 7", "", "", "", 7 * time.Second, ""},
		{"", "", "connect_timeout 7", "", 7 * time.Second, "W227"},
		{"", "", "", "connect_timeout 7", 7 * time.Second, "W227"},
		{"connect_timeout 7", "", "connect_timeout 7", "", 7 * time.Second, ""},
		{"", "", "", "connect_timeout 5", 5 * time.Second, ""},
		{"", "connect_timeout 3", "", "connect_timeout 7", 3 * time.Second, ""},
	} {
		cfg, list := load(t, service("NAT", tt.vs+"\nreal_server 10.0.0.1 80 {\n"+tt.rs+"\n"+check+"\n"+tt.after+"\n}\n"+tt.late))
		if got := one(t, cfg).RealServers[0].Checkers[0].Conn.Timeout; got != tt.want || codes(list) != tt.codes {
			t.Errorf("%+v: %v, %v", tt, got, list)
		}
	}
	// Its own decides, and other checkers are not warned of.
	if _, list := load(t, service("NAT", "real_server 10.0.0.1 80 {\nSMTP_CHECK { connect_timeout 2 }\nTCP_CHECK { }\nconnect_timeout 7\n}")); len(list) > 0 {
		t.Error(list)
	}
}
