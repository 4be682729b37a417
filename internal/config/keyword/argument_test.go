package keyword

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// wrong are arguments that a keyword with a grammar of its own must refuse, each
// with what the finding must say is allowed.
var wrong = map[string][]struct{ args, allowed string }{
	"/virtual_server":       {{"example 80 {\n}", "IP address"}, {"192.0.2.1 65536 {\n}", "1-65535"}, {"192.0.2.1 x {\n}", "1-65535"}, {"fwmark 4294967296 {\n}", "0-4294967295"}, {"fwmark x {\n}", "0-4294967295"}},
	"/virtual_server_group": nil, // any name
	"/track_file":           nil, // any name
	"/vrrp_track_file":      nil, // any name

	"global_defs/lvs_timeouts":         {{"tcp 2678401", "0-2678400"}, {"tcp x", "0-2678400"}, {"tcp -1", "0-2678400"}, {"icmp 3", "tcp, tcpfin, udp"}, {"udp", "0-2678400"}},
	"global_defs/script_user":          nil, // any name; whether there is such a user is seen when it is needed
	"global_defs/include_check":        {{"readable", "read, match, wildcard_match, brace_match"}},
	"global_defs/smtp_server":          {{"mail 65536", "1-65535"}, {"mail x", "1-65535"}, {`""`, "HOST"}},
	"global_defs/smtp_connect_timeout": {{"0", "1-4294"}},
	"global_defs/lvs_notify_fifo":      {{`""`, "PATH"}, {"run/x", "path from /"}},
	"global_defs/notify_fifo":          {{`""`, "PATH"}, {"run/x", "path from /"}},
	"global_defs/lvs_sync_daemon": {
		{"eth0 id 256", "0-255"}, {"eth0 id x", "0-255"}, {"eth0 maxlen 0", "1-65507"}, {"eth0 maxlen 65508", "1-65507"}, {"eth0 port 65536", "1-65535"}, {"eth0 ttl 0", "1-255"}, {"eth0 ttl 256", "1-255"},
		{"eth0 group 192.0.2.1", "224.0.0.0/4"}, {"eth0 group x", "IP address"}, {"eth0 VI_1 colour", "inst, id, maxlen, port, ttl, group"}, {"eth0 VI_1 7", "id 7"}, {"eth0 id", "0..255"}, {"eth0 inst", "VRRP_INSTANCE"},
		{"sixteen_letters_", "1-15 bytes"}, {`""`, "1-15 bytes"},
	},
	"global_defs/control_group":        {{`""`, "name of a group"}, {`"load balancers"`, "name of a group"}, {"-x", "name of a group"}},
	"global_defs/control_read_group":   {{"a/b", "name of a group"}},
	"global_defs/lvs_sync_state":       {{"example", "off, master, backup, both, track_file"}, {"track_file", "track_file NAME"}, {"track_file t2", "no track_file t2"}},
	"global_defs/passive":              {{"maybe", "on, off, track_file"}, {"track_file", "track_file NAME"}, {"track_file t2", "no track_file t2"}},
	"global_defs/check_via_mark":       {{"0x10001", "multiple of 0x10000"}, {"0", "0x10000-0xffff0000"}, {"0x100000000", "0x10000-0xffff0000"}, {"x", "multiple of 0x10000"}, {"0xx", "multiple of 0x10000"}, {"99999999999999999999", "0x10000-0xffff0000"}, {"5", "multiple of 0x10000"}},
	"global_defs/nftables_ipvs":        {{strings.Repeat("x", 256), "255 bytes"}},
	"global_defs/vip_device":           {{"sixteen_letters_", "1-15 bytes"}, {`""`, "1-15 bytes"}, {"a/b", "without blanks, / and :"}, {"a:0", "without blanks, / and :"}, {`"a b"`, "without blanks"}, {"vip%d", "no device's name"}, {"..", "1-15 bytes"}},
	"global_defs/http_listen":          {{"127.0.0.1", "127.0.0.1:9476"}, {":9476", "[::]:9476"}, {"localhost:80", "address with a port"}, {"127.0.0.1:0", "address with a port"}, {"127.0.0.1:65536", "address with a port"}},
	"global_defs/http_admin":           {{"token", "path from /"}, {`""`, "path from /"}},
	"global_defs/checker_priority":     {{"20", "-20..19"}, {"-21", "-20..19"}, {"x", "-20..19"}},
	"global_defs/checker_rt_priority":  {{"0", "1-99"}, {"100", "1-99"}, {"x", "1-99"}},
	"global_defs/checker_cpu_affinity": {{"0 1024", "0-1023"}, {"0 x", "0-1023"}, {"-1", "0-1023"}},
	"global_defs/umask":                {{"01000", "0..0777"}, {"x", "IWGRP"}, {"022 IXOTH", "0..0777"}, {"IXOTH|", "IWGRP"}},

	"virtual_server/vip_device":              {{"sixteen_letters_", "1-15 bytes"}},
	"virtual_server/vip_address":             {{"example", "IP address"}, {"192.0.2.9-1", "the end is not a number"}, {"192.0.2.1/24", "192.0.2.0/24"}, {"2001:db8::1", "inet6"}, {"10.0.0.0/15", "65536"}},
	"virtual_server/lvs_sched":               {{"rrr", "rr, wrr, lc"}},
	"virtual_server/lb_algo":                 {{"rrr", "rr, wrr, lc"}},
	"virtual_server/lvs_method":              {{"nat", "NAT, DR or TUN"}, {"TUN type gre2", "ipip, gue, gre"}, {"TUN type gue port 65536", "1-65535"}, {"TUN colour", "nocsum, csum and remcsum"}},
	"virtual_server/lb_kind":                 {{"nat", "NAT, DR or TUN"}},
	"virtual_server/persistence_timeout":     {{"0", "1-2678400"}, {"2678401", "1-2678400"}, {"x", "1-2678400"}},
	"virtual_server/persistence_granularity": {{"24", "255.255.255.0"}, {"x", "dotted mask"}},
	"virtual_server/sorry_server":            {{"x", "IP address"}, {"10.0.0.1 65536", "1-65535"}},
	"virtual_server/sorry_server_lvs_method": {{"nat", "NAT, DR or TUN"}},
	"virtual_server/real_server":             {{"x {\n}", "IP address"}, {"10.0.0.1 65536 {\n}", "1-65535"}},
	"real_server/lvs_method":                 {{"nat", "NAT, DR or TUN"}},
	"virtual_server/label":                   {{`""`, "empty"}, {`" x"`, "blank"}, {strings.Repeat("ü", 65), "65 characters"}, {`a\b`, "cannot stand"}, {"a\x7fb", "cannot stand"}, {"a\xffb", "UTF-8"}},
	"real_server/label":                      {{`""`, "empty"}},
	"virtual_server/min_alive":               {{"0", "1-4294967295"}, {"x", "1-4294967295"}, {"0%", "1-100"}, {"101%", "1-100"}, {"%", "1-100"}},
	"virtual_server/flap_damping":            {{"0 60", "1-1000"}, {"1001 60", "1-1000"}, {"3 0", "0.000001-604800"}, {"3 5s", "0.000001-604800"}},
	"real_server/track_file":                 {{"t weight 2147483648", "-2147483647..2147483647"}, {"t weight x", "-2147483647..2147483647"}, {"t mass 3", `"weight"`}, {"t weight 3 back", "reverse, noreverse"}},
	"track_file/weight":                      {{"255", "-254..254"}, {"x", "-254..254"}, {"3 back", `"reverse"`}},
	"track_file/init_file":                   {{"2147483648", "-2147483648..2147483647"}, {"x", "-2147483648..2147483647"}},
	"FILE_CHECK/weight":                      {{"2147483648", "-2147483647..2147483647"}, {"x", "-2147483647..2147483647"}, {"3 back", "reverse, noreverse"}},
	"UDP_CHECK/payload":                      {{"0g", "hexadecimal"}, {"xx", "hexadecimal"}, {`""`, "hexadecimal"}},
	"UDP_CHECK/require_reply":                {{"0g", "x for any digit"}, {`""`, "hexadecimal"}},
	"MISC_CHECK/user":                        nil, // any name
	"DNS_CHECK/name":                         {{"a..b", "1-63 octets"}, {strings.Repeat("x", 64), "1-63 octets"}, {strings.Repeat("x.", 127) + "y", "253"}},
}

func init() {
	for _, u := range []string{blockURL, blockTLSURL} {
		wrong[u+"/digest"] = []struct{ args, allowed string }{{"abc", "32 hexadecimal digits"}, {strings.Repeat("x", 32), "32 hexadecimal digits"}}
		wrong[u+"/status_code"] = []struct{ args, allowed string }{{"99", "100-599"}, {"600", "100-599"}, {"x", "100-599"}, {"300-200", "100-599"}}
		wrong[u+"/regex"] = []struct{ args, allowed string }{{`""`, "PATTERN"}, {`"a`, "quote"}}
		wrong[u+"/regex_options"] = []struct{ args, allowed string }{{"nocase", "caseless, dollar_endonly"}}
		wrong[u+"/regex_stack"] = nil // it has no effect
	}
}

// wrongArgs lists what a keyword must refuse, from its grammar.
func wrongArgs(k *keyword) []struct{ args, allowed string } {
	list := append([]struct{ args, allowed string }(nil), wrong[k.block+"/"+k.name]...)
	add := func(args, allowed string) {
		list = append(list, struct{ args, allowed string }{args, allowed})
	}
	switch a := k.arg; a.kind {
	case argBool:
		for _, s := range []string{"On", "1", "maybe"} {
			add(s, "on, off, true, false, yes, no")
		}
	case argNumber:
		within := limits(a.min, a.max)
		add(fmt.Sprint(a.max+1), within)
		add(fmt.Sprint(a.min-1), within)
		add("x", within)
		add("5x", within)
		add("1.5", within)
		add("99999999999999999999", within)
	case argTimer:
		within := seconds(time.Duration(a.min)) + "-" + seconds(time.Duration(a.max))
		add("-1", within)
		add("x", within)
		add("5s", within)
		add("99999999999", within)
		if a.min > 0 {
			add("0", within)
		}
	case argWord:
		add("example", strings.Join(a.words, ", "))
	case argAddress:
		add("example", "IP address")
		add("10.0.0.256", "IP address")
	case argPort:
		for _, s := range []string{"0", "65536", "x", "-1"} {
			add(s, "1-65535")
		}
	case argText:
		if a.limit > 0 {
			add(strings.Repeat("x", a.limit+1), fmt.Sprintf("%d bytes", a.limit))
		}
	case argScript:
		add(`"/bin/x`, "quote")
		add(`""`, "empty")
		if k.block != blockMisc && k.name != "startup_script" && k.name != "shutdown_script" {
			add("</etc/passwd", "misc_path")
		}
	}
	return list
}

// at returns the findings on a line.
func at(list diag.List, line int) diag.List {
	var found diag.List
	for _, d := range list {
		if int(d.Pos.Line) == line {
			found = append(found, d)
		}
	}
	return found
}

// text is all that a finding says.
func saying(d diag.Diagnostic) string { return d.Message + "\n" + d.Hint }

// TestBadArguments gives each word a wrong, a missing and a surplus argument. Each
// must be found at its place, with what is allowed and what happens now.
func TestBadArguments(t *testing.T) {
	x := newIndex()
	told := 0
	for i := range x.rows {
		k := &x.rows[i]
		if k.status == Skipped || k.arg.kind == argAny {
			continue // a word of another daemon is not judged
		}
		t.Run(strings.TrimPrefix(k.block+"/"+k.name, "/"), func(t *testing.T) {
			args, needs := exampleOf(k)
			check := func(p placed, severity diag.Severity, allowed ...string) {
				t.Helper()
				line := strings.Split(p.text, "\n")[p.line-1]
				_, list := p.load(x)
				found := at(list, p.line)
				for _, d := range found {
					told++
					if d.Pos.File() != "test.conf" || d.Pos.Col < 1 || int(d.Pos.Col) > len(line) || d.Source != line || d.Hint == "" {
						t.Errorf("%q: %+v", line, d)
					}
				}
				for _, d := range found {
					missing := false
					for _, a := range allowed {
						missing = missing || !strings.Contains(saying(d), a)
					}
					if !missing && d.Severity >= severity {
						return
					}
				}
				t.Errorf("%q: no finding of at least %s says %q: %v", line, severity, allowed, list)
			}
			for _, w := range wrongArgs(k) {
				severity := diag.Error
				if k.name == "regex_options" || k.name == "persistence_timeout" || strings.HasSuffix(k.name, "notify_fifo") {
					severity = diag.Warning // keepalived is silent, or means the same
				}
				check(place(k.block, k.name, needs, k.name+" "+w.args), severity, w.allowed)
			}
			if _, known := wrong[k.block+"/"+k.name]; !known && k.arg.kind == argCustom {
				t.Error("there is no wrong argument for it")
			}

			if missing, is := missingLine(k); is {
				check(place(k.block, k.name, needs, missing), diag.Error, k.name+" needs a parameter", "write "+k.name+" "+k.arg.String())
			}

			block := ""
			good := args[0]
			if head, rest, found := strings.Cut(good, "{"); found {
				good, block = head, "{"+rest
			}
			if k.arg.kind == argFlag {
				good = ""
			}
			check(place(k.block, k.name, needs, strings.TrimSpace(k.name+" "+fill(k, good))+" surplus "+block), diag.Warning, "surplus")
		})
	}
	if told < 1500 {
		t.Errorf("only %d findings were looked at", told)
	}
}

// missingLine is a line without the argument it needs, if it needs one.
func missingLine(k *keyword) (string, bool) {
	switch k.arg.kind {
	case argNone, argFlag:
		return "", false
	case argCustom:
		if k.arg.want == 0 {
			return "", false
		}
	default:
		if k.arg.optional {
			return "", false
		}
	}
	if k.opens != "" {
		return k.name + " {\n}", true
	}
	return k.name, true
}

// fill gives optional arguments too, so that what follows is surplus.
func fill(k *keyword, good string) string {
	switch k.block + "/" + k.name {
	case "global_defs/script_user", "MISC_CHECK/user":
		return "nobody nogroup"
	case "global_defs/lvs_notify_fifo", "global_defs/notify_fifo":
		return "/run/x nobody nogroup"
	case "global_defs/passive", "global_defs/lvs_sync_state":
		return "track_file t"
	case "global_defs/lvs_sync_daemon":
		return "eth0 VI_1"
	case "track_file/weight", "FILE_CHECK/weight":
		return "5 reverse"
	case "virtual_server/persistence_timeout":
		return "30"
	}
	if k.arg.kind == argScript {
		return `"/bin/example" nobody nogroup`
	}
	return good
}
