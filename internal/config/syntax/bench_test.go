package syntax

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cpu returns the processor time used so far: the clock on the wall says
// little on a machine with other work.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// manyServers is a configuration of n real servers in services of 100.
func manyServers(n int) string {
	var b strings.Builder
	b.WriteString("$PORT=8080\n$CHECK= \\\n HTTP_GET { \\\n  url { \\\n   path /health \\\n   status_code 200 \\\n  } \\\n  connect_timeout 3 \\\n }\n")
	for i := range n {
		if i%100 == 0 {
			if i > 0 {
				b.WriteString("}\n")
			}
			fmt.Fprintf(&b, "virtual_server 10.%d.0.1 80 { # service\n    delay_loop 6\n    lb_algo wlc\n    lb_kind DR\n    protocol TCP\n", i/100)
		}
		fmt.Fprintf(&b, "    real_server 10.%d.1.%d ${PORT} {\n        weight 1\n        $CHECK\n    }\n", i/100, i%100+1)
	}
	b.WriteString("}\n")
	return b.String()
}

func BenchmarkParse(b *testing.B) {
	text := manyServers(10_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, list := ParseString("x", text, testOptions()); len(list) != 0 {
			b.Fatal(list)
		}
	}
}

func TestTenThousandServersAreFast(t *testing.T) {
	text := manyServers(10_000)
	start := cpu(t)
	tree, list := ParseString("x", text, testOptions())
	took := cpu(t) - start
	if len(list) != 0 || len(tree.Nodes) != 100 || len(tree.Nodes[99].Children) != 104 {
		t.Errorf("%d nodes, %v", len(tree.Nodes), list)
	}
	if took > 4*time.Second && testing.CoverMode() == "" { // with the race detector; 0.2 s without
		t.Errorf("took %v", took)
	}
	t.Log(took)
}

// Lines that could make a parser go over them again and again.
func TestLongLinesAreFast(t *testing.T) {
	size := 10 << 20
	if testing.CoverMode() != "" {
		size = 1 << 20 // counting costs more than the work
	}
	for name, piece := range map[string]string{
		"letters": "a", "words": "a ", "braces": "a{}", "open": "a{", "close": "}", "quotes": `"a"`, "open quotes": `"a`,
		"references": "${A}", "undefined": "${B}", "dollars": "$", "signs": `\#`, "utf-8": "ä ", "not utf-8": "\xff ",
		"backslashes": `\`, "environment": "${_ENV ", "nested": "${_ENV ${", "conditions": "{ @node1 a }", "NUL": "\x00",
	} {
		for kind, text := range map[string]string{
			"one line":   strings.Repeat(piece, size/len(piece)),
			"many lines": strings.Repeat(strings.Repeat(piece, maxLine/2/len(piece))+"\n", size/maxLine/2),
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				start := cpu(t)
				_, list := ParseString("x", "$A=1\n"+text, testOptions())
				took := cpu(t) - start
				if kind == "one line" && len(list) == 0 {
					t.Error("nothing was said")
				}
				limit := 4 * time.Second // with the race detector
				if kind == "one line" {
					limit = time.Second
				}
				if took > limit {
					t.Errorf("took %v", took)
				}
				t.Logf("%v, %d findings", took, len(list))
			})
		}
	}
}
