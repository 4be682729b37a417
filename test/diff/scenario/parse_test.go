package scenario

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const whole = `title A whole one
# a comment
quick
covers weight delay_loop
sluice-args --observe
keepalived-args -a  -b
timeline 1.5
differs table:up sluice puts it in first
expect up sluice want.txt

addr del 192.0.2.9
backend [2001:db8::1]:80 http 503 "not\tnow"
fifo f
test a.conf -i left
start a.conf
settle 0.5
table up
kernel ipvsadm -A -f 5 | true
write w.conf  two  words
reload w.conf
events up
output timeouts ipvsadm -L --timeout
remove w.conf
stop
test a.conf -i left
-- a.conf --
virtual_server { weight
delay_loop }
-- want.txt --
`

func parse(t *testing.T, text string) *Scenario {
	t.Helper()
	s, err := Parse("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParse(t *testing.T) {
	t.Parallel()
	// up is both a table and events here, so that the expectation has to say which.
	got := parse(t, strings.Replace(whole, "expect up", "expect table:up", 1))
	want := &Scenario{
		Name: "x", Title: "A whole one", Quick: true, Covers: []string{"weight", "delay_loop"},
		SluiceArgs: []string{"--observe"}, KeepalivedArgs: []string{"-a", "-b"}, Timeline: 1.5,
		Commands: []Command{
			{Line: 11, Verb: "addr", Args: []string{"del", "192.0.2.9"}},
			{Line: 12, Verb: "backend", Text: `[2001:db8::1]:80 http 503 "not\tnow"`,
				Behaviour: &Behaviour{Addr: netip.MustParseAddrPort("[2001:db8::1]:80"), Kind: "http", Status: 503, Body: "not\tnow"}},
			{Line: 13, Verb: "fifo", Args: []string{"f"}},
			{Line: 14, Verb: "test", Args: []string{"a.conf", "-i", "left"}, Record: "test:a.conf -i left"},
			{Line: 15, Verb: "start", Args: []string{"a.conf"}, Record: "start"},
			{Line: 16, Verb: "settle", Args: []string{"0.5"}},
			{Line: 17, Verb: "table", Args: []string{"up"}, Record: "table:up"},
			{Line: 18, Verb: "kernel", Text: "ipvsadm -A -f 5 | true"},
			{Line: 19, Verb: "write", Args: []string{"w.conf"}, Text: "two  words"},
			{Line: 20, Verb: "reload", Args: []string{"w.conf"}},
			{Line: 21, Verb: "events", Args: []string{"up"}, Record: "events:up"},
			{Line: 22, Verb: "output", Args: []string{"timeouts"}, Text: "ipvsadm -L --timeout", Record: "output:timeouts"},
			{Line: 23, Verb: "remove", Args: []string{"w.conf"}},
			{Line: 24, Verb: "stop", Record: "exit"},
			{Line: 25, Verb: "test", Args: []string{"a.conf", "-i", "left"}, Record: "test:a.conf -i left#2"},
		},
		Files:   []File{{"a.conf", "virtual_server { weight\ndelay_loop }\n"}, {"want.txt", ""}},
		differs: map[string]Claim{"table:up": {8, "sluice puts it in first"}},
		expects: map[string]Expectation{"table:up": {Line: 9, File: "want.txt"}},
		names:   []string{"test:a.conf -i left", "start", "table:up", "events:up", "output:timeouts", "exit", "test:a.conf -i left#2", "timeline"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Scenario{}), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	// body stands behind a title, so its first line is line 2.
	const files = "\n-- a.conf --\nx\n"
	for _, tt := range []struct{ name, body, want string }{
		{"unknown command", "tabel up", "x:2: tabel: no such command"},
		{"too few words", "settle", "x:2: settle: 0 words behind it, want 1"},
		{"too many words", "table a b", "x:2: table: 2 words behind it, want 1"},
		{"missing text", "differs up", "x:2: differs: something is missing"},
		{"second title", "title again", "x:2: a second title"},
		{"seconds", "settle soon", `x:2: "soon": want seconds`},
		{"no width of a timeline", "timeline 0", "x:2: timeline 0"},
		{"verb of addr", "addr move 192.0.2.1", "x:2: addr move: want add or del"},
		{"address", "addr add 192.0.2.300", "x:2: ParseAddr"},
		{"backend without a port", "backend 192.0.2.1 tcp", "x:2: want ADDR:PORT"},
		{"no behaviour", "backend 192.0.2.1:80", "x:2: : what it does is missing"},
		{"unknown behaviour", "backend 192.0.2.1:80 sleep", "x:2: sleep: no such behaviour"},
		{"surplus word of a behaviour", "backend 192.0.2.1:80 tcp 5", `x:2: tcp: unexpected "5"`},
		{"status", "backend 192.0.2.1:80 http 99", `x:2: http: "99": want a number from 100 to 999`},
		{"rcode", "backend 192.0.2.1:53 dns 16", `x:2: dns: "16": want a number from 0 to 15`},
		{"udp", "backend 192.0.2.1:53 udp loud", "x:2: udp: want echo, reply HEX or silent"},
		{"hex", "backend 192.0.2.1:53 udp reply 0g", "x:2: udp reply: encoding/hex"},
		{"smtp unquoted", "backend 192.0.2.1:25 smtp 220", "x:2: smtp: want quoted strings"},
		{"smtp too much", `backend 192.0.2.1:25 smtp "1" "2" "3" "4"`, "x:2: smtp: want banner"},
		{"escape", `backend 192.0.2.1:80 http-raw \q`, "x:2: http-raw: "},
		{"file outside", "start ../a.conf", "x:2: start ../a.conf: want a name below"},
		{"absolute file", "write /etc/passwd x", "x:2: write /etc/passwd: want a name below"},
		{"start of nothing", "start b.conf\nstop", "x:2: start: no file b.conf"},
		{"reload of nothing", "start a.conf\nreload b.conf\nstop", "x:3: reload: no file b.conf"},
		{"start twice", "start a.conf\nstart a.conf\nstop", "x:3: start: the daemon runs already"},
		{"reload before start", "reload a.conf\nstop", "x:2: reload: no start before it"},
		{"stop before start", "stop", "x:2: stop: no start before it"},
		{"no stop", "start a.conf", "x: no stop at the end"},
		{"label twice", "table a\ntable a", "x:3: table a: the label is taken"},
		{"excuse for nothing", "table a\ndiffers b why", "x:3: differs: no record is named b; there are: table:a"},
		{"ambiguous excuse", "table a\nevents a\ndiffers a why", "x:4: differs: a may mean table:a or events:a"},
		{"excused twice", "table a\ndiffers a why\ndiffers table:a because", "x:4: differs: table:a is excused in line 3"},
		{"excuse for a time line that is not compared", "table a\ndiffers timeline why", "no record is named timeline"},
		{"expectation of whom", "table a\nexpect a keepalived a.conf", `x:3: expect: "keepalived": want sluice or both`},
		{"expectation without a file", "table a\nexpect a both b", "x:3: expect: no file b"},
		{"expectation of a time line", "timeline 1\nexpect timeline both a.conf", "x:3: expect: a time line"},
		{"covers nothing", "table a\ncovers y", "x: covers y: the word stands in none"},
		{"covers a part of a word", "table a\ncovers conf\n-- b --\nconf_file a-conf", "x: covers conf: "},
		{"nothing recorded", "settle 1", "x: nothing is recorded"},
		{"file twice", "table a\n-- a.conf --", "x: file a.conf stands there twice"},
		{"file of the archive outside", "table a\n-- ../b --", "x: file ../b: want a name below"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("x", []byte("title T\n"+tt.body+files))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that says %q", err, tt.want)
			}
		})
	}
	if _, err := Parse("x", []byte("table a\n")); err == nil || !strings.Contains(err.Error(), "x: no title") {
		t.Errorf("without a title: error %v", err)
	}
	_, err := Parse("x", []byte("title T\ntabel a\nsettle soon\n"))
	if err == nil || !strings.Contains(err.Error(), "x:2") || !strings.Contains(err.Error(), "x:3") {
		t.Errorf("error %v, want both lines", err)
	}
}

func TestSMTPLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		``:                              {"220 ready\r\n", "250 hello\r\n", "221 bye\r\n"},
		`"554 no"`:                      {"554 no\r\n", "250 hello\r\n", "221 bye\r\n"},
		`"220-a\r\n220 b\r\n" "" "x\n"`: {"220-a\r\n220 b\r\n", "\r\n", "x\n"},
	} {
		b, err := ParseBehaviour("192.0.2.1:25 smtp " + text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, b.Lines); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// Whatever is not refused must be fit to be run: its records have names of their
// own, and its files stay where they belong.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("title x\ntable a\ndiffers a b\n-- f --\n"))
	f.Add([]byte("covers \xbe"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("x", data)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, name := range s.Records() {
			if seen[name] {
				t.Errorf("two records are named %s", name)
			}
			seen[name] = true
		}
		for _, file := range s.Files {
			if !localName(file.Name) {
				t.Errorf("file %q", file.Name)
			}
		}
	})
}
