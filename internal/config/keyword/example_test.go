package keyword

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// placed is a configuration with every kind of block and with one line put into
// one of them.
type placed struct {
	text string
	// line is the number of the line put in, 0 for none.
	line int
}

// load reads it with a table that is there, since tests read thousands of these.
func (p placed) load(x *index) (*config.Config, diag.List) {
	tree, list := syntax.ParseString("test.conf", p.text, syntax.Options{OpensBlock: x.opensBlock})
	return finish(x, tree, list, false)
}

// required are words without which a block means nothing. They make room for
// another value.
var required = map[string]string{
	blockTrackFile + "/file": "file /run/t", blockFile + "/track_file": "track_file t",
	blockURL + "/path": "path /", blockTLSURL + "/path": "path /", blockMisc + "/misc_path": "misc_path /bin/check",
	blockBFD + "/name":         "name b",
	blockVirtual + "/protocol": "protocol TCP", blockVirtual + "/lvs_sched": "lvs_sched rr", blockVirtual + "/lvs_method": "lvs_method NAT",
	blockVirtual + "/quorum": "quorum 3", blockVirtual + "/delay_loop": "delay_loop 20",
}

// place puts a keyword's line, after others that it needs, into its block. An
// empty line leaves the configuration as it is.
func place(block, name, needs, line string) placed {
	var b strings.Builder
	p := placed{}
	in := func(at string, words ...string) {
		for _, w := range words {
			if at != block || w != name || line == "" {
				fmt.Fprintln(&b, required[at+"/"+w])
			}
		}
		if at != block {
			return
		}
		if needs != "" {
			fmt.Fprintln(&b, needs)
		}
		if line != "" {
			p.line = strings.Count(b.String(), "\n") + 1
			fmt.Fprintln(&b, line)
		}
	}
	open := func(s string) { fmt.Fprintln(&b, s+" {") }
	shut := func() { fmt.Fprintln(&b, "}") }

	open("bfd_instance b")
	shut()
	open("global_defs")
	fmt.Fprintln(&b, "enable_script_security")
	in(blockGlobal)
	shut()
	if block == blockSSL {
		open("SSL")
		in(blockSSL)
		shut()
	}
	open("track_file t")
	in(blockTrackFile, "file")
	shut()
	open("track_file u")
	fmt.Fprintln(&b, "file /run/u")
	shut()
	open("virtual_server_group g")
	fmt.Fprintln(&b, "192.0.2.20 80")
	shut()
	if name == "ip_family" || name == "vip_address" {
		open("virtual_server fwmark 7") // an address says its family itself
	} else {
		open("virtual_server 192.0.2.10 80")
	}
	in(blockVirtual, "protocol", "lvs_sched", "lvs_method", "quorum", "delay_loop")
	open("real_server 10.0.0.12 80")
	shut()
	open("real_server 10.0.0.11 80")
	fmt.Fprintln(&b, "#sluice track_file t weight 2")
	in(blockReal)
	if block != blockReal || name != "weight" {
		fmt.Fprintln(&b, "weight 10")
	}
	for _, c := range []string{blockTCP, blockPing, blockDNS, blockUDP, blockBFD} {
		if c == blockBFD && block != c {
			continue
		}
		open(c)
		if c == blockBFD {
			in(c, "name")
		} else {
			in(c)
		}
		shut()
	}
	open(blockSMTP)
	open("host")
	in(blockHost)
	shut()
	in(blockSMTP)
	shut()
	open(blockMisc)
	in(blockMisc, "misc_path")
	shut()
	open(blockFile)
	in(blockFile, "track_file")
	shut()
	for _, pair := range [][2]string{{blockHTTP, blockURL}, {blockTLS, blockTLSURL}} {
		c, url := pair[0], pair[1]
		if c == blockTLS && block != blockTLS && block != blockTLSURL {
			continue
		}
		open(c)
		in(c)
		open("url")
		in(url, "path")
		shut()
		shut()
	}
	shut()
	shut()
	in(blockTop)
	p.text = b.String()
	return p
}

// example is what a keyword can say. Where the grammar is the keyword's own, or
// something else must stand before it, it is written here.
type example struct {
	args  string
	needs string
}

var examples = map[string]example{
	"/global_defs":          {args: "{\nrouter_id x\n}"},
	"/SSL":                  {args: "{\nkey /x\n}"},
	"/virtual_server_group": {args: "h {\n192.0.2.30 80\n}\nvirtual_server group h {\nprotocol TCP\nlvs_sched rr\nlvs_method NAT\nreal_server 10.0.0.1 80 {\n}\n}"},
	"/virtual_server":       {args: "192.0.2.11 80 {\nprotocol TCP\nlvs_sched rr\nlvs_method NAT\nreal_server 10.0.0.1 80 {\n}\n}"},
	"/track_file":           {args: "w {\nfile /run/w\n}\nvirtual_server 192.0.2.11 80 {\nprotocol TCP\nlvs_sched rr\nlvs_method NAT\nreal_server 10.0.0.1 80 {\nFILE_CHECK {\ntrack_file w\n}\n}\n}"},
	"/vrrp_track_file":      {args: "w {\nfile /run/w\n}\nvirtual_server 192.0.2.11 80 {\nprotocol TCP\nlvs_sched rr\nlvs_method NAT\nreal_server 10.0.0.1 80 {\nFILE_CHECK {\ntrack_file w\n}\n}\n}"},
	"/net_namespace_ipvs":   {args: "x"},
	"/use_pid_dir":          {needs: "global_defs {\nreload_file\n}"},

	"global_defs/lvs_timeouts":           {args: "tcp 5"},
	"global_defs/script_user":            {args: "nobody"},
	"global_defs/enable_script_security": {args: ""},
	"global_defs/notification_email":     {args: "{\nops@example.com\n}"},
	"global_defs/smtp_server":            {args: "192.0.2.1 26"},
	"global_defs/smtp_connect_timeout":   {args: "5"},
	"global_defs/lvs_notify_fifo":        {args: "/run/l nobody"},
	"global_defs/notify_fifo":            {args: "/run/n"},
	"global_defs/lvs_notify_fifo_script": {args: "/bin/x", needs: "lvs_notify_fifo /run/l"},
	"global_defs/notify_fifo_script":     {args: "/bin/x", needs: "notify_fifo /run/n"},
	"global_defs/lvs_sync_daemon":        {args: "eth0 id 3"},
	"global_defs/lvs_sync_state":         {args: "master", needs: "lvs_sync_daemon eth0"},
	"global_defs/checker_priority":       {args: "-5"},
	"global_defs/checker_rt_priority":    {args: "5"},
	"global_defs/checker_cpu_affinity":   {args: "0 1"},
	"global_defs/umask":                  {args: "022"},
	"global_defs/http_listen":            {args: "127.0.0.1:9999"},
	"global_defs/http_admin":             {args: "/etc/sluice/token"},
	"global_defs/withdraw_delay":         {args: "5"},
	"global_defs/vip_device":             {args: "vip0"},
	"global_defs/vip_follow":             {args: "quorum", needs: "vip_device vip0"},
	"global_defs/check_via_mark":         {args: "0x7f010000"},
	"global_defs/passive":                {args: "track_file t"},
	"global_defs/include_check":          {args: "read"},
	"global_defs/control_group":          {args: "adm"},
	"global_defs/control_read_group":     {args: "adm"},

	"virtual_server/vip_device":              {args: "vip0"},
	"virtual_server/vip_follow":              {args: "quorum", needs: "vip_device vip0"},
	"virtual_server/vip_address":             {args: "192.0.2.10 192.0.2.16-19 192.0.2.32/30"},
	"virtual_server/check_via":               {args: "vip", needs: "lvs_method DR"},
	"real_server/check_via":                  {args: "vip", needs: "lvs_method DR"},
	"virtual_server/ip_family":               {args: "inet6", needs: "lvs_method TUN"},
	"virtual_server/lvs_sched":               {args: "wrr"},
	"virtual_server/lb_algo":                 {args: "wrr"},
	"virtual_server/lvs_method":              {args: "DR"},
	"virtual_server/lb_kind":                 {args: "DR"},
	"virtual_server/ops":                     {needs: "protocol UDP"},
	"virtual_server/sh-port":                 {needs: "lvs_sched sh"},
	"virtual_server/sh-fallback":             {needs: "lvs_sched sh"},
	"virtual_server/mh-port":                 {needs: "lvs_sched mh"},
	"virtual_server/mh-fallback":             {needs: "lvs_sched mh"},
	"virtual_server/persistence_timeout":     {args: "30"},
	"virtual_server/persistence_granularity": {args: "255.255.255.0"},
	"virtual_server/hysteresis":              {args: "1"},
	"virtual_server/quorum":                  {args: "2"},
	"virtual_server/sorry_server":            {args: "10.0.0.9 80"},
	"virtual_server/sorry_server_inhibit":    {needs: "sorry_server 10.0.0.9 80"},
	"virtual_server/sorry_server_lvs_method": {args: "DR", needs: "sorry_server 10.0.0.9 80"},
	"virtual_server/real_server":             {args: "10.0.0.13 80 {\n}"},
	"real_server/lvs_method":                 {args: "TUN type gre csum"},
	"virtual_server/min_alive":               {args: "50%"},
	"virtual_server/label":                   {args: `"web shop"`},
	"real_server/label":                      {args: "web1"},
	"virtual_server/flap_damping":            {args: "3 60"},
	"real_server/track_file":                 {args: "t weight 5 reverse"},
	"real_server/HTTP_GET":                   {args: "{\nurl {\npath /\n}\n}"},
	"real_server/SSL_GET":                    {args: "{\nurl {\npath /\n}\n}"},
	"real_server/FILE_CHECK":                 {args: "{\ntrack_file t\n}"},
	"real_server/BFD_CHECK":                  {args: "{\nname b\n}"},
	"BFD_CHECK/name":                         {args: "b"},
	"real_server/MISC_CHECK":                 {args: "{\nmisc_path /bin/x\n}"},
	"SSL_GET/tls_ca":                         {args: "/etc/ssl/ours.pem", needs: "tls_verify on"},
	"HTTP_GET/url":                           {args: "{\npath /x\n}"},
	"SSL_GET/url":                            {args: "{\npath /x\n}"},
	"SMTP_CHECK/host":                        {args: "{\nconnect_port 99\n}"},
	"track_file/weight":                      {args: "5 reverse"},
	"track_file/init_file":                   {args: "7 overwrite"},
	"FILE_CHECK/weight":                      {args: "5"},
	"FILE_CHECK/track_file":                  {args: "u"},
	"UDP_CHECK/payload":                      {args: "00 ff"},
	"UDP_CHECK/require_reply":                {args: "0x"},
	"MISC_CHECK/user":                        {args: "nobody nogroup"},
	"DNS_CHECK/name":                         {args: "example.com"},
}

func init() {
	for _, w := range []string{"_priority", "_start_fwmark"} {
		examples["global_defs/nftables_ipvs"+w] = example{args: "5", needs: "nftables_ipvs"}
	}
	examples["global_defs/nftables_counters"] = example{needs: "nftables_ipvs"}
	for _, u := range []string{blockURL, blockTLSURL} {
		examples[u+"/digest"] = example{args: "0123456789abcdef0123456789abcdef"}
		examples[u+"/status_code"] = example{args: "301 400-404"}
		examples[u+"/regex"] = example{args: `"a b"`}
		examples[u+"/regex_no_match"] = example{needs: "regex x"}
		examples[u+"/regex_options"] = example{args: "caseless", needs: "regex x"}
		examples[u+"/regex_min_offset"] = example{args: "5", needs: "regex x"}
		examples[u+"/regex_max_offset"] = example{args: "5", needs: "regex x"}
		examples[u+"/regex_stack"] = example{args: "1 2", needs: "regex x"}
	}
	for _, c := range []string{blockTCP, blockHTTP, blockTLS, blockSMTP, blockDNS, blockUDP, blockPing, blockHost} {
		examples[c+"/bind_port"] = example{args: "99", needs: "bindto 10.0.0.1"}
	}
}

// exampleOf lists good arguments of a keyword, and what they need.
func exampleOf(k *keyword) (args []string, needs string) {
	if e, ok := examples[k.block+"/"+k.name]; ok {
		return []string{e.args}, e.needs
	}
	if k.opens != "" {
		return []string{"{\n}"}, ""
	}
	switch a := k.arg; a.kind {
	case argBool:
		return []string{"yes", "no"}, ""
	case argNumber:
		return []string{fmt.Sprint(min(a.min+1, a.max)), fmt.Sprint(a.max), fmt.Sprint(a.min)}, ""
	case argTimer:
		return []string{seconds(time.Duration(min(a.max, int64(7500*time.Millisecond))))}, ""
	case argWord:
		return a.words, ""
	case argText:
		return []string{"example"}, ""
	case argAddress:
		return []string{"10.9.9.9"}, ""
	case argPort:
		return []string{"99"}, ""
	case argScript:
		return []string{`"/bin/example 'an argument'" nobody`}, ""
	}
	return []string{""}, ""
}
