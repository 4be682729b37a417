package metrics

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

func TestMain(m *testing.M) { testkit.Main(m) }

type noFiles struct{}

func (noFiles) Watch([]*config.TrackFile) map[string]int64 { return nil }

// verdict is a probe that always finds the same.
type verdict checker.Result

func (v verdict) Run(context.Context) checker.Outcome {
	return checker.Outcome{Result: checker.Result(v), Reason: "as the test says", Took: 3 * time.Millisecond}
}

// served is an engine that has a configuration over a table in memory. Every third
// target fails.
func served(t testing.TB, cfg *config.Config) (*engine.Engine, *checker.Scheduler) {
	t.Helper()
	table := ipvstest.New()
	table.KeepLog(false)
	n := 0
	sched := checker.NewScheduler(checker.Options{})
	e := engine.New(engine.Options{
		Dial: func(context.Context) (apply.IPVS, error) { return table, nil },
		Probe: func(_ *config.Config, c *config.Checker) (checker.Probe, error) {
			if n++; n%3 == 0 {
				return verdict(checker.Failed), nil
			}
			return verdict(checker.OK), nil
		},
		Scheduler: sched, Files: noFiles{}, Version: `1.0 "quoted\"`,
	})
	if err := e.Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return e, sched
}

// written is served with all of the table written.
func written(b testing.TB, cfg *config.Config) *engine.Engine {
	b.Helper()
	e, _ := served(b, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	if err := e.Written(b.Context()); err != nil {
		b.Fatal(err)
	}
	return e
}

// after runs an engine for so long and gives what it then shows to f.
func after(t *testing.T, d time.Duration, cfg *config.Config, f func(*engine.Engine)) {
	synctest.Test(t, func(t *testing.T) {
		e, sched := served(t, cfg)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 2)
		go func() { done <- e.Run(ctx) }()
		go func() { _ = sched.Run(ctx); done <- nil }()
		time.Sleep(d)
		synctest.Wait()
		f(e)
		cancel(nil)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// text is the exposition.
func text(t testing.TB, s *engine.Snapshot, detail config.MetricsDetail) string {
	t.Helper()
	var b bytes.Buffer
	p, err := ReadProcess()
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(&b, Reading{s, detail, &Told{}, nil}, p); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// series are the samples, name and labels to value.
func series(t testing.TB, exposition string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for in := bufio.NewScanner(strings.NewReader(exposition)); in.Scan(); {
		line := in.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		if _, twice := all[line[:i]]; twice {
			t.Errorf("twice: %s", line)
		}
		all[line[:i]] = line[i+1:]
	}
	return all
}

// lint holds an exposition to Prometheus' own parser and linter, and finds series
// that are there twice.
func lint(t testing.TB, exposition string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(exposition)).Lint()
	if err != nil {
		t.Errorf("promlint: %v", err)
	}
	for _, p := range problems {
		t.Errorf("promlint: %s: %s", p.Metric, p.Text)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(exposition))
	if err != nil {
		t.Errorf("parse: %v", err)
	}
	n := 0
	for _, f := range families {
		n += len(f.GetMetric())
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				n += len(h.GetBucket()) + 1 // sum and count
			}
		}
	}
	if got := len(series(t, exposition)); got != n {
		t.Errorf("the parser reads %d series, there are %d", n, got)
	}
	if headers := strings.Count(exposition, "# TYPE "); headers != len(families) {
		t.Errorf("%d headers for %d families: a family is not in one piece", headers, len(families))
	}
}

// farm is a configuration of services with so many servers each.
func farm(services, servers int) *config.Config {
	cfg := &config.Config{Global: config.Global{DrainInterval: time.Minute}}
	for i := range services {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 80)
		vs := &config.VirtualServer{
			Key: config.VSKey{Protocol: config.TCP, Addr: at}, Entries: []config.Entry{{Addr: at, Family: config.IPv4}},
			Protocol: config.TCP, Scheduler: "wlc", Quorum: 1,
		}
		for j := range servers {
			rs := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(j >> 8), byte(j)}), 8080)
			vs.RealServers = append(vs.RealServers, &config.RealServer{
				Key: config.RSKey{AddrPort: rs}, Weight: 1, Forward: config.Forwarding{Method: config.NAT},
				Checkers: []*config.Checker{{
					Kind: config.TCPCheck, Conn: config.Connection{Target: rs, Timeout: time.Second},
					Schedule: config.Schedule{DelayLoop: 10 * time.Second, DelayBeforeRetry: time.Second, Warmup: 10 * time.Second, Rise: 1},
				}},
			})
		}
		cfg.VirtualServers = append(cfg.VirtualServers, vs)
	}
	return cfg
}

func has(t *testing.T, all map[string]string, name, value string) {
	t.Helper()
	if got, ok := all[name]; !ok || got != value {
		t.Errorf("%s is %q, want %q", name, got, value)
	}
}

func label(vs string, i int) string {
	return fmt.Sprintf(`virtual_server="%s",local_address="192.0.0.%d",local_port="80",proto="TCP",family="inet"`, vs, i)
}
