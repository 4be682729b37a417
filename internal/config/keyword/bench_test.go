package keyword_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/keyword"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// The checker blocks that benchmarks are made of.
const (
	tcpBlock  = "TCP_CHECK {\n   connect_timeout 3\n  }"
	httpBlock = "HTTP_GET {\n   url {\n    path /health\n    status_code 200\n   }\n   connect_timeout 3\n  }"
)

// sized is a configuration of so many services with so many real servers each.
func sized(services, servers int, check string) string {
	var b strings.Builder
	b.WriteString("global_defs {\n router_id bench\n}\n")
	n := 0
	for s := range services {
		fmt.Fprintf(&b, "virtual_server 10.%d.%d.1 80 {\n delay_loop 5\n lb_algo wlc\n lb_kind NAT\n protocol TCP\n", s>>8, s&255)
		for range servers {
			fmt.Fprintf(&b, " real_server 172.%d.%d.%d 8080 {\n  weight 1\n  %s\n }\n", 16+n>>16, n>>8&255, n&255, check)
			n++
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// shapes are those that the documentation gives figures for.
var shapes = []struct {
	name              string
	services, servers int
	check             string
}{
	{"1x10000/tcp", 1, 10_000, tcpBlock},
	{"1000x10/tcp", 1000, 10, tcpBlock},
	{"300x100/tcp", 300, 100, tcpBlock},
	{"1x10000/http", 1, 10_000, httpBlock},
	{"300x100/http", 300, 100, httpBlock},
}

func mustLoad(tb testing.TB, text string) *config.Config {
	tb.Helper()
	cfg, list := keyword.LoadString("x.conf", text, keyword.Options{})
	if cfg == nil || len(list) > 0 {
		tb.Fatalf("%d findings, the first: %v", len(list), list[0])
	}
	return cfg
}

func BenchmarkLoad(b *testing.B) {
	for _, s := range shapes {
		text := sized(s.services, s.servers, s.check)
		b.Run(s.name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				mustLoad(b, text)
			}
		})
	}
}

func BenchmarkParse30000(b *testing.B) {
	text := sized(300, 100, tcpBlock)
	opts := syntax.Options{OpensBlock: keyword.OpensBlock()}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, list := syntax.ParseString("x.conf", text, opts); len(list) > 0 {
			b.Fatal(list)
		}
	}
}

func BenchmarkValidate30000(b *testing.B) {
	cfg := mustLoad(b, sized(300, 100, tcpBlock))
	b.ReportAllocs()
	for b.Loop() {
		if err := config.Validate(cfg); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrint30000(b *testing.B) {
	cfg := mustLoad(b, sized(300, 100, httpBlock))
	b.ReportAllocs()
	for b.Loop() {
		var out strings.Builder
		if err := config.Print(&out, cfg); err != nil {
			b.Fatal(err)
		}
	}
}

// What a real server costs to read does not depend on how many there are.
func TestCostOfALoadIsLinear(t *testing.T) {
	for name, check := range map[string]string{"tcp": tcpBlock, "http": httpBlock} {
		for _, shape := range []struct {
			name string
			of   func(n int) string
		}{
			{"one service", func(n int) string { return sized(1, n, check) }},
			{"services of 100", func(n int) string { return sized(n/100, 100, check) }},
			{"services of 1", func(n int) string { return sized(n, 1, check) }},
			{"one service in pieces", func(n int) string { return pieces(n, check) }},
		} {
			if check == httpBlock && shape.name != "services of 100" {
				continue // the shapes differ in what is around the checks
			}
			t.Run(name+"/"+shape.name, func(t *testing.T) {
				few, many := shape.of(1000), shape.of(30_000)
				load := func(text string) (allocs, bytes, cpu float64) {
					var before, after runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&before)
					took := cpuTime(t, func() { keyword.LoadString("x.conf", text, keyword.Options{}) })
					runtime.ReadMemStats(&after)
					return float64(after.Mallocs - before.Mallocs), float64(after.TotalAlloc - before.TotalAlloc), took.Seconds()
				}
				load(few)
				a, b, c := load(few)
				for range 29 { // as many servers in all: one load is too short to be timed
					_, _, again := load(few)
					c += again
				}
				a30, b30, c30 := load(many)
				t.Logf("allocations %.1f and %.1f, bytes %.0f and %.0f, us %.2f and %.2f for each", a/1e3, a30/3e4, b/1e3, b30/3e4, c*1e6/3e4, c30*1e6/3e4)
				if a30/a > 33 || b30/b > 36 {
					t.Errorf("30 times the servers cost %.1f times the allocations and %.1f times the bytes", a30/a, b30/b)
				}
				// Sharing the processor's caches with others makes it slower too.
				if c30 > 4*max(c, 0.01) {
					t.Errorf("30 times the servers cost %.1f times the time of 30 times a thirtieth of them", c30/c)
				}
			})
		}
	}
}

// pieces declares one service again for each of its real servers.
func pieces(n int, check string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "virtual_server 10.0.0.1 80 {\n lb_algo wlc\n lb_kind NAT\n protocol TCP\n sorry_server 10.0.0.9 80\n real_server 172.16.%d.%d 8080 {\n  %s\n }\n}\n", i>>8, i&255, check)
	}
	return b.String()
}

// Findings by the thousand cost no more each than one alone, those that look for
// what may have been meant neither.
func TestCostOfFindingsIsLinear(t *testing.T) {
	for name, of := range map[string]func(b *strings.Builder, n int){
		"unknown word":     func(b *strings.Builder, n int) { servers(b, n, "weihgt 1") },
		"bad number":       func(b *strings.Builder, n int) { servers(b, n, "weight x") },
		"same real server": func(b *strings.Builder, n int) { servers(b, n, "") },
		"no such track file": func(b *strings.Builder, n int) {
			for i := range n {
				fmt.Fprintf(b, "track_file t%d { file /t }\n", i)
			}
			servers(b, n, "FILE_CHECK { track_file u%d }")
		},
		"no such group": func(b *strings.Builder, n int) {
			for i := range n {
				fmt.Fprintf(b, "virtual_server_group g%d { 10.0.0.1 %d }\nvirtual_server group h%d { real_server 10.1.0.1 80 { } }\n", i, i%60000+1, i)
			}
		},
		"no such bfd_instance": func(b *strings.Builder, n int) {
			for i := range n {
				fmt.Fprintf(b, "bfd_instance b%d { }\n", i)
			}
			servers(b, n, "BFD_CHECK { name c%d }")
		},
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(n int) float64 {
				var b strings.Builder
				of(&b, n)
				found := 0
				took := cpuTime(t, func() {
					_, list := keyword.LoadString("x.conf", b.String(), keyword.Options{})
					found = len(list)
				})
				if found < n {
					t.Errorf("%d findings for %d mistakes", found, n)
				}
				return took.Seconds()
			}
			cost(500)
			few, many := cost(500), cost(15_000)
			t.Logf("%.1f and %.1f us each", few*1e6/500, many*1e6/15_000)
			if many > 6*30*max(few, 0.001) {
				t.Errorf("30 times the mistakes cost %.1f times the time", many/few)
			}
		})
	}
}

// servers writes a service whose real servers each have a line, with their number.
func servers(b *strings.Builder, n int, line string) {
	b.WriteString("virtual_server 192.0.2.1 80 { protocol TCP\n lvs_sched rr\n lvs_method NAT\nreal_server 10.0.0.1 80 { }\n")
	for i := range n {
		text := line
		if strings.Contains(line, "%d") {
			text = fmt.Sprintf(line, i)
		}
		if line != "" {
			fmt.Fprintf(b, "real_server 10.%d.%d.1 80 { %s\n }\n", 1+i>>8, i&255, text)
		} else {
			b.WriteString("real_server 10.0.0.1 80 { }\n")
		}
	}
	b.WriteString("}\n")
}
