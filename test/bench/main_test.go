package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/test/bench/play"
)

var update = flag.Bool("update-golden", false, "write testdata")

// exemplary are results with everything that a page can have.
func exemplary() []*play.Results {
	began := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	native := &play.Results{Part: play.Native, Kernel: "6.1.0", CPUs: 2, Keepalived: "2.2.7", Began: began, Took: 600, Load: 0.2}
	add := func(r *play.Results, group, measure, actor string, values ...float64) {
		for round, v := range values {
			r.Samples = append(r.Samples, play.Sample{Group: group, Measure: measure, Actor: actor, Round: round, Value: v})
		}
	}
	add(native, "tcp 10000", play.CPU, play.Sluice, 30, 33, 28)
	add(native, "tcp 10000", play.CPU, resetActor, 30, 31, 29)
	add(native, "tcp 10000", play.CPU, play.Keepalived, 40, 42, 41)
	add(native, "tcp 10000", play.Late99, play.Sluice, -0.5, 12.25)
	add(native, "tcp 10000", play.Late99, play.Keepalived, 3, 66)
	add(native, "slope 100", play.CPU, play.Sluice, 50)
	add(native, "slope 1000", play.CPU, play.Sluice, 40)
	add(native, "slope 10000", play.CPU, play.Sluice, 60)
	add(native, "idle", play.IdleCPU, play.Sluice, 0)
	guest := &play.Results{Part: play.Guest, Kernel: "6.1.0-48-amd64", CPUs: 2, Keepalived: "2.2.7", Began: began, Took: 61, Load: 1.5, Quick: true,
		Problems: []string{"failure 50, round 1: it broke\nin two lines"}}
	add(guest, "install 1000 x 10", play.Installing, play.Sluice, 0.25, 0.26)
	add(guest, "install 1000 x 10", play.Installing, play.Keepalived, 1.5, 1.7)
	add(guest, "install 1000 x 10", play.Installing, play.Ipvsadm, 9, 8)
	add(guest, "install 1000 x 10", play.AddOps, play.Sluice, 2)
	add(guest, "install 1000 x 10", play.NoneOps, play.Sluice, 0)
	return []*play.Results{native, guest}
}

func TestPageIsAsItWas(t *testing.T) {
	t.Parallel()
	text, missed := page(exemplary())
	golden := filepath.Join("testdata", "page.md")
	if *update {
		if err := os.WriteFile(golden, []byte(strings.ReplaceAll(text, notes, "NOTES\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), strings.ReplaceAll(text, notes, "NOTES\n")); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"TCP_CHECK, 10000 servers, delay_loop 1: CPU for 1,000 checks, ms of sluice reset by that of keepalived is 0.738, want ≤ 0.7",
		"growth of a check's cost: 1.5, want ≤ 1.2",
		"Start and reload, 1000 x 10 (services x servers): operations of a reload with one more of sluice is 2, want ≤ 1",
	}, missed); diff != "" {
		t.Errorf("missed (-want +got):\n%s", diff)
	}
}

// A round that one of the two did not come through has no ratio.
func TestPairsAreOfTheSameRound(t *testing.T) {
	t.Parallel()
	f := index([]play.Sample{
		{Group: "g", Measure: "m", Actor: "a", Round: 0, Value: 1},
		{Group: "g", Measure: "m", Actor: "a", Round: 2, Value: 3},
		{Group: "g", Measure: "m", Actor: "b", Round: 1, Value: 20},
		{Group: "g", Measure: "m", Actor: "b", Round: 2, Value: 30},
		{Group: "other", Measure: "m", Actor: "b", Round: 0, Value: 10},
	})
	over, under := f.pairs("g", "m", "a", "b")
	if !slices.Equal(over, []float64{3}) || !slices.Equal(under, []float64{30}) {
		t.Errorf("pairs %v and %v, want that of round 2", over, under)
	}
	if got := f.of("g", "m", "a"); !slices.Equal(got, []float64{1, 3}) {
		t.Errorf("values %v", got)
	}
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 0.12345: "0.123", 1: "1", 1.005: "1", 9.999: "10", 12.34: "12.3", 100: "100",
		123.4: "123", 9999: "9999", -0.0001: "0", -12.34: "-12.3", 40: "40", 0.5: "0.5"} {
		if got := number(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

// A goal that no row is shown for would be held by nobody.
func TestGoalsAreOfMeasuresThatAreShown(t *testing.T) {
	t.Parallel()
	for _, g := range goals {
		if !slices.ContainsFunc(measures, func(m measure) bool { return m.name == g.measure }) {
			t.Errorf("%+v: no such measure", g)
		}
	}
}

func TestTrialsKeepAway(t *testing.T) {
	t.Parallel()
	for _, o := range []options{{quick: true}, {only: "tcp"}} {
		if !o.trial() {
			t.Errorf("%+v is for the page", o)
		}
	}
	if (options{pairs: 7}).trial() {
		t.Error("more rounds make a trial of it")
	}
	if _, err := (options{parts: "native,gast"}).chosen(); err == nil || !strings.Contains(err.Error(), "gast") {
		t.Errorf("a part that is not there: %v", err)
	}
}

// What a run leaves must be read again by one that makes the page alone.
func TestResultsAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := load(dir); err == nil {
		t.Error("a folder without results has some")
	}
	all := exemplary()
	for _, r := range all {
		if err := save(dir, r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("results (-saved +loaded):\n%s", diff)
	}
}
