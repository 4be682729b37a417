package keyword

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

func TestTableIsWhole(t *testing.T) {
	x := newIndex()
	seen := map[string]bool{}
	for _, k := range x.rows {
		at := k.block + "/" + k.name
		if seen[at] {
			t.Errorf("%s stands twice", at)
		}
		seen[at] = true
		if k.doc == "" {
			t.Errorf("%s has no documentation", at)
		}
		if k.status == NotServed && meanings[k.feature] == "" {
			t.Errorf("%s: nothing says what it means that %q is missing", at, k.feature)
		}
		if k.opens != "" && !free(k.opens) && len(x.names(k.opens)) == 0 {
			t.Errorf("%s opens the unknown block %s", at, k.opens)
		}
		if k.extension && (k.status != Built || (k.set == nil && k.opens == "")) {
			t.Errorf("%s is an extension without effect", at)
		}
		if k.old != "" && x.lookup(k.block, k.old) == nil {
			t.Errorf("%s: its new spelling %s does not exist", at, k.old)
		}
	}
}

// TestTableHasAllOfKeepalived counts against keepalived's own tables: 25 at the
// top level, 140 in global_defs and so on. Extensions and old spellings beyond
// them are counted out.
func TestTableHasAllOfKeepalived(t *testing.T) {
	x := newIndex()
	for block, want := range map[string]int{
		blockTop: 25, blockGlobal: 140, blockSSL: 4, blockVirtual: 39, blockReal: 16 + 10, blockTCP: 13, blockPing: 13, blockDNS: 15,
		blockUDP: 17, blockSMTP: 15, blockHost: 13, blockHTTP: 20, blockTLS: 21, blockURL: 10, blockTLSURL: 11, blockMisc: 10, blockFile: 2,
		blockBFD: 2, blockTrackFile: 3,
	} {
		n := 0
		for _, name := range x.names(block) {
			if !x.lookup(block, name).extension {
				n++
			}
		}
		if n != want {
			t.Errorf("%q has %d keywords, keepalived %d: %v", block, n, want, x.names(block))
		}
	}
}

func TestCodesAreStable(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range codes() {
		if seen[c.id] || len(c.id) != 4 || c.title == "" {
			t.Errorf("code %+v", c)
		}
		seen[c.id] = true
		if c.severity() >= diag.Error && c.class == diag.ClassNone {
			t.Errorf("%s: an error that a test run would call fine", c.id)
		}
	}
}

// TestEveryKeywordAndEveryFindingHasItsFile looks for each row of the table in
// the files whose readings are held, and for each code in their reports.
func TestEveryKeywordAndEveryFindingHasItsFile(t *testing.T) {
	x := newIndex()
	used := map[*keyword]bool{}
	reported := map[string]bool{}
	var walk func(block string, nodes []*syntax.Node)
	walk = func(block string, nodes []*syntax.Node) {
		for _, n := range nodes {
			k := x.lookup(block, n.Keyword())
			if k == nil {
				continue
			}
			used[k] = true
			if k.opens != "" {
				walk(k.opens, n.Children)
			}
		}
	}
	err := filepath.WalkDir("../../../testdata/conf", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".conf" {
			return err
		}
		tree, list := syntax.Parse(path, syntax.Options{Resolver: syntax.OS{}, OpensBlock: x.opensBlock})
		walk(blockTop, tree.Nodes)
		_, more := build(x, tree)
		for _, f := range append(list, more...) {
			reported[f.Code] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.rows {
		if k := &x.rows[i]; !used[k] {
			t.Errorf("no file uses %s in %q", k.name, k.block)
		}
	}
	for _, c := range codes() {
		if !reported[c.id] {
			t.Errorf("no file gives %s (%s)", c.id, c.title)
		}
	}
}

func TestOpensBlock(t *testing.T) {
	opens := newIndex().opensBlock
	for path, want := range map[string]bool{
		"virtual_server":                                     true,
		"virtual_server real_server":                         true,
		"virtual_server real_server TCP_CHECK":               true,
		"virtual_server real_server HTTP_GET url":            true,
		"virtual_server real_server SSL_GET url":             true,
		"virtual_server real_server SMTP_CHECK host":         true,
		"vrrp_instance":                                      true,
		"global_defs notification_email":                     true,
		"real_server":                                        false,
		"virtual_server protocol":                            false,
		"virtual_server real_server TCP_CHECK url":           false,
		"vrrp_instance virtual_ipaddress":                    false,
		"virtual_server real_server track_file":              false,
		"virtual_server_group virtual_server":                false,
		"virtual_server real_server HTTP_GET url path":       false,
		"unknown virtual_server":                             false,
		"virtual_server real_server MISC_CHECK misc_path no": false,
	} {
		if got := opens(strings.Fields(path)); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if opens(nil) {
		t.Error("nothing opens a block")
	}
}

// parser makes a frame that values can be read in, and a statement.
func parser(words ...string) (*frame, *syntax.Node) {
	b := &builder{}
	n := &syntax.Node{Raw: strings.Join(words, " "), Pos: diag.At("f", 1, 1)}
	for _, w := range words {
		n.Words = append(n.Words, syntax.Word{Text: w, Pos: n.Pos})
	}
	return &frame{b: b}, n
}

func TestTimers(t *testing.T) {
	kw := &keyword{name: "delay_loop", arg: timer(time.Microsecond, maxTimer)}
	for in, want := range map[string]time.Duration{
		"1": time.Second, "0.25": 250 * time.Millisecond, ".5": 500 * time.Millisecond, "5.": 5 * time.Second, "0.000001": time.Microsecond,
		" 7": 7 * time.Second, "007": 7 * time.Second, "4294967295": maxTimer, "1.000000": time.Second,
	} {
		f, n := parser("delay_loop", in)
		if v, ok := f.parse(kw, n); !ok || v.dur != want || len(f.b.list) > 0 {
			t.Errorf("%q: %+v %v", in, v, f.b.list)
		}
	}
	for in, want := range map[string]string{
		"5s": "E104", "1.5x": "E104", "2ms": "E104", "x": "E104", "": "E104", ".": "E104", "1e3": "E104", "1.2.3": "E104", "+1": "E104",
		"-1": "E103", "0": "E103", "0.0000001": "E103", "4294967296": "E103", "99999999999999999999": "E103", "4294967295.5": "E103",
	} {
		f, n := parser("delay_loop", in)
		if v, ok := f.parse(kw, n); ok || len(f.b.list) != 1 || f.b.list[0].Code != want {
			t.Errorf("%q: %+v %v", in, v, f.b.list)
		}
	}
	// More than six decimals round half up, with an error, and are used.
	for in, want := range map[string]time.Duration{"1.2345674": 1234567 * time.Microsecond, "1.2345675": 1234568 * time.Microsecond, "0.9999999": time.Second} {
		f, n := parser("delay_loop", in)
		if v, ok := f.parse(kw, n); !ok || v.dur != want || f.b.list[0].Code != "E147" {
			t.Errorf("%q: %+v %v", in, v, f.b.list)
		}
	}
}

func TestTimersSayWhatKeepalivedWouldWait(t *testing.T) {
	for in, want := range map[string]string{"5s": "5 µs", "1.5x": "15 µs", "2ms": "2 µs"} {
		if got, ok := keepalivedTimer(in); !ok || got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
	if _, ok := keepalivedTimer("x"); ok {
		t.Error("no digits are no time")
	}
}

func TestNumbers(t *testing.T) {
	kw := &keyword{name: "weight", arg: number(0, maxInt32)}
	for in, want := range map[string]int64{"0": 0, "2147483647": maxInt32, " 5": 5, "007": 7} {
		f, n := parser("weight", in)
		if v, ok := f.parse(kw, n); !ok || v.num != want || len(f.b.list) > 0 {
			t.Errorf("%q: %+v %v", in, v, f.b.list)
		}
	}
	for in, want := range map[string]string{
		"x": "keepalived outside -t would use 0", "5x": "keepalived outside -t would use 5", "": "keepalived outside -t would use 0",
		"0x10": "would use 0", "+5": "would use 0", "-1": "ignored", "2147483648": "ignored", "-x": "ignored", "99999999999999999999": "ignored",
	} {
		f, n := parser("weight", in)
		if _, ok := f.parse(kw, n); ok || len(f.b.list) != 1 || !strings.Contains(f.b.list[0].Hint, want) {
			t.Errorf("%q: %+v", in, f.b.list)
		}
	}
	// A strict number is refused by keepalived as well.
	f, n := parser("retry", "5x")
	if _, ok := f.parse(&keyword{name: "retry", arg: strictNumber(1, 9)}, n); ok || strings.Contains(f.b.list[0].Hint, "keepalived") {
		t.Errorf("%v", f.b.list)
	}
}

func TestBooleans(t *testing.T) {
	kw := &keyword{name: "alpha", arg: boolean()}
	for in, want := range map[string]bool{"": true, "on": true, "true": true, "yes": true, "off": false, "false": false, "no": false} {
		f, n := parser(append([]string{"alpha"}, strings.Fields(in)...)...)
		if v, ok := f.parse(kw, n); !ok || v.yes != want || len(f.b.list) > 0 {
			t.Errorf("%q: %+v %v", in, v, f.b.list)
		}
	}
	for _, in := range []string{"On", "1", "0", "none", "enable"} {
		f, n := parser("alpha", in)
		if _, ok := f.parse(kw, n); ok || f.b.list[0].Code != "E105" {
			t.Errorf("%q: %v", in, f.b.list)
		}
	}
}

// TestAMisspeltProtectionHolds: what is no word of a safe boolean is an error, and on.
func TestAMisspeltProtectionHolds(t *testing.T) {
	kw := &keyword{name: "tls_verify", arg: onOtherwise()}
	f, n := parser("tls_verify", "maybe")
	if v, ok := f.parse(kw, n); !ok || !v.yes || len(f.b.list) != 1 || f.b.list[0].Code != "E105" || !strings.Contains(f.b.list[0].Hint, "counts as on") {
		t.Errorf("%v", f.b.list)
	}
	for in, want := range map[string]bool{"off": false, "no": false, "on": true} {
		f, n := parser("tls_verify", in)
		if v, ok := f.parse(kw, n); !ok || v.yes != want || len(f.b.list) > 0 {
			t.Errorf("%q: %v", in, f.b.list)
		}
	}
}

func TestGroupRanges(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1":                            "192.0.2.1 192.0.2.1 1",
		"192.0.2.1-9":                          "192.0.2.1 192.0.2.9 9",
		"192.0.2.1-255":                        "192.0.2.1 192.0.2.255 255",
		"192.0.2.250-192.0.3.10":               "192.0.2.250 192.0.3.10 17",
		"10.255.255.255-11.0.0.0":              "10.255.255.255 11.0.0.0 2",
		"192.0.2.0/23":                         "192.0.2.0 192.0.3.255 512",
		"192.0.2.4/30":                         "192.0.2.4 192.0.2.7 4",
		"192.0.2.9/32":                         "192.0.2.9 192.0.2.9 1",
		"192.0.2.9-192.0.2.9":                  "192.0.2.9 192.0.2.9 1",
		"2001:db8::1-f":                        "2001:db8::1 2001:db8::f 15",
		"2001:db8::fffe-2001:db8::1:1":         "2001:db8::fffe 2001:db8::1:1 4",
		"2001:db8::/120":                       "2001:db8:: 2001:db8::ff 256",
		"2001:db8::9/128":                      "2001:db8::9 2001:db8::9 1",
		"2001:db8:0:0:ffff:ffff:ffff:fff0/124": "2001:db8::ffff:ffff:ffff:fff0 2001:db8::ffff:ffff:ffff:ffff 16",
	} {
		a, b, why := addressRange(in)
		n, small := rangeSize(a, b)
		if got := fmt.Sprint(a, b, n); got != strings.ReplaceAll(want, " ", " ") && got != want || why != "" || !small {
			t.Errorf("%s: %s (%s)", in, got, why)
		}
	}
	for _, in := range []string{"", "x", "192.0.2.1-", "192.0.2.9-9", "192.0.2.9-8", "192.0.2.9-256", "192.0.2.9-1f", "192.0.2.1/24", "192.0.2.0/0", "192.0.2.0/",
		"2001:db8::f-1", "2001:db8::1-10000", "2001:db8::/129", "fe80::1%eth0", "192.0.2.1-2001:db8::1", "192.0.2.9-192.0.2.1"} {
		if _, _, why := addressRange(in); why == "" {
			t.Errorf("%q was accepted", in)
		}
	}
	for _, in := range []string{"0.0.0.0/1", "10.0.0.0/15", "2001:db8::/64", "2001:db8::/111", "192.0.2.0-192.4.2.0"} {
		a, b, why := addressRange(in)
		if _, small := rangeSize(a, b); small || why != "" {
			t.Errorf("%s is small (%s)", in, why)
		}
	}
	if a := dotted(24); a != netip.MustParseAddr("255.255.255.0") {
		t.Error(a)
	}
	if a := dotted(32); a != netip.MustParseAddr("255.255.255.255") {
		t.Error(a)
	}
}

func TestDocumentationNamesEveryKeyword(t *testing.T) {
	var b bytes.Buffer
	if err := Doc(&b); err != nil {
		t.Fatal(err)
	}
	for _, k := range newIndex().rows {
		if !strings.Contains(b.String(), "`"+k.name+"`") {
			t.Errorf("%s is missing", k.name)
		}
	}
}
