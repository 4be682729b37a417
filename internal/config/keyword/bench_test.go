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

// heapOf is what f leaves on the heap.
func heapOf[T any](f func() T) (kept T, bytes int64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept = f()
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return kept, int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

func TestMemoryOfTheModel(t *testing.T) {
	for _, s := range shapes {
		text := sized(s.services, s.servers, s.check)
		cfg, bytes := heapOf(func() *config.Config { return mustLoad(t, text) })
		t.Logf("%s: %d bytes for each real server", s.name, bytes/int64(s.services*s.servers))
		runtime.KeepAlive(text)
		runtime.KeepAlive(cfg)
	}
}
