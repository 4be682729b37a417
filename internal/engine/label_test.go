package engine

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// labelledConf has a label on the virtual server and one on server 1.
func labelledConf(vs, rs string) *config.Config {
	cfg := conf(1, 2)
	cfg.VirtualServers[0].Label, cfg.VirtualServers[0].RealServers[0].Label = vs, rs
	return cfg
}

// TestLabelReaches: a label is in the status, in what the log says of the server, in
// lists of orders, and can be typed in place of the name.
func TestLabelReaches(t *testing.T) {
	inBubble(t, labelledConf("web shop", "blue"), func(r *rig) {
		if vs := r.e.Snapshot().VirtualServers[0]; vs.Label != "web shop" || vs.RealServers[0].Label != "blue" || vs.RealServers[1].Label != "" {
			t.Errorf("the status has %q, %q, %q", vs.Label, vs.RealServers[0].Label, vs.RealServers[1].Label)
		}
		r.ordered(Command{Verb: VerbDrain, VS: "web shop", RS: "blue"})
		os, err := r.e.Overrides(r.Context())
		if err != nil || len(os) != 1 || os[0].Label != "blue" || os[0].VSLabel != "web shop" || os[0].Server != target(1) {
			t.Errorf("orders %+v, %v", os, err)
		}
		r.ordered(Command{Verb: VerbUndrain, VS: "Web", RS: "BLUE"})
		r.refused(Command{Verb: VerbDrain, VS: "web shop", RS: "green"}, CodeUnknown, "green")
		r.set(1, checker.Failed, "refused")
		r.set(2, checker.Failed, "refused")
		r.pass(20 * time.Second)
		for line := range strings.SplitSeq(r.logged(), "\n") {
			if strings.Contains(line, "vs=") != strings.Contains(line, `vs_label="web shop"`) {
				t.Errorf("vs_label: %s", line)
			}
			if first := strings.Contains(line, "rs=[10.0.0.1]:tcp:80") || strings.Contains(line, "rs=10.0.0.1:80"); first != strings.Contains(line, "rs_label=blue") {
				t.Errorf("rs_label: %s", line)
			}
		}
		var b strings.Builder
		r.e.LogState(slog.New(slog.NewTextHandler(&b, nil)))
		if got := b.String(); strings.Count(got, "rs_label=") != 1 || !strings.Contains(got, `vs_label="web shop"`) {
			t.Errorf("the state in the log: %s", got)
		}
	})
}

// TestLabelAloneChangesNothing: another label is an edit of a name. No check starts
// anew, nothing is written, and the verdict and its attempts go on.
func TestLabelAloneChangesNothing(t *testing.T) {
	cfg := labelledConf("web", "")
	retry := func(cfg *config.Config) *config.Config {
		return each(cfg, func(rs *config.RealServer) { rs.Checkers[0].Retry = 3 })
	}
	inBubble(t, retry(cfg), func(r *rig) {
		r.set(1, checker.Failed, "refused")
		for r.rs(1).Checkers[0].Failures != 2 {
			r.pass(100 * time.Millisecond)
		}
		r.writes()
		probes, before := [2]int{r.farm.count(1), r.farm.count(2)}, r.rs(1)
		r.reload(retry(labelledConf("shop", "blue")))
		if n := r.writes(); n != 0 {
			t.Errorf("%d operations", n)
		}
		if again := [2]int{r.farm.count(1), r.farm.count(2)}; again != probes {
			t.Errorf("probes %v, then %v", probes, again)
		}
		after := r.rs(1)
		if after.Label != "blue" || after.Checkers[0].Failures != before.Checkers[0].Failures || !after.Since.Equal(before.Since) {
			t.Errorf("%+v became %+v", before, after)
		}
		r.pass(3 * time.Second)
		r.want("2:1")
		// The name of what is gone is known until the next reload.
		r.reload(retry(conf(2)))
		if log := r.logged(); !strings.Contains(log, "rs_label=blue") {
			t.Errorf("the log: %s", log)
		}
		r.reload(retry(conf(1, 2)))
		if l := *r.e.labels.Load(); l != nil {
			t.Errorf("labels are left: %v", l)
		}
	})
}

// TestLabelsOfTwoConfigurations: the new one's count, those of what is gone stay, and a
// label that was taken away is none.
func TestLabelsOfTwoConfigurations(t *testing.T) {
	was, is := labelledConf("web", "blue"), labelledConf("shop", "")
	was.VirtualServers[0].RealServers[1].Label = "green"
	is.VirtualServers[0].RealServers = is.VirtualServers[0].RealServers[:1]
	got := labelsOf(was.VirtualServers, is.VirtualServers)
	for at, want := range map[labelled]string{
		{vs: "[192.0.2.1]:tcp:80"}:                          "shop",
		{"[192.0.2.1]:tcp:80", "[10.0.0.1]:tcp:80"}:         "",
		{"[192.0.2.1]:tcp:80", "10.0.0.2:80"}:               "green",
		{vsName(is.VirtualServers[0]), "[10.0.0.2]:tcp:80"}: "green",
		{is.VirtualServers[0].Key.String(), "10.0.0.2:80"}:  "green",
	} {
		if got[at] != want {
			t.Errorf("%+v is %q, want %q", at, got[at], want)
		}
	}
	if l := labelsOf(conf(1).VirtualServers, conf(2).VirtualServers); l != nil {
		t.Errorf("labels of nothing: %v", l)
	}
}

// TestScriptArgumentsAreNotShown: they may be passwords.
func TestScriptArgumentsAreNotShown(t *testing.T) {
	c := &config.Checker{Kind: config.MiscCheck, Misc: &config.Misc{Script: &config.Script{Argv: []string{"/bin/check", "--password", "s3cret"}}}}
	if got := targetOf(c); got != "/bin/check" {
		t.Errorf("target %q", got)
	}
}
