package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/sluice-lb/sluice/test/bench/play"
	"github.com/sluice-lb/sluice/test/bench/stat"
)

// measure is how one is shown.
type measure struct {
	name, title string
	// alone: a ratio would say nothing, of what may be nothing or less.
	alone bool
}

// measures in the order of the page.
var measures = []measure{
	{name: play.CPU, title: "CPU for 1,000 checks, ms"},
	{name: play.Syscalls, title: "system calls for a check"},
	{name: play.RSS, title: "memory (RSS) of the process that checks, MiB"},
	{name: play.RSSAll, title: "the same of all its processes, MiB"},
	{name: play.FirstRound, title: "from the start until each server is checked, s"},
	{name: play.Done, title: "checks done of those due, %"},
	{name: play.Late50, title: "later than due, p50, ms", alone: true},
	{name: play.Late99, title: "later than due, p99, ms", alone: true},
	{name: play.Waited, title: "waited for the CPU, % of the time", alone: true},
	{name: play.Backend, title: "the backend's use of its CPU, %", alone: true},
	{name: play.Gap, title: "reload: longest time without any check, ms"},
	{name: play.Delayed99, title: "reload: each server's latest check, p99, ms"},
	{name: play.DelayedMax, title: "reload: the latest of all, ms"},
	{name: play.NewChecked, title: "reload: until the new server is checked, s"},
	{name: play.Install, title: "from the start until the table is complete, s"},
	{name: play.Installing, title: "from the first service until the table is complete, s"},
	{name: play.AddOne, title: "reload with one more: until it is in the table, s"},
	{name: play.RemoveOne, title: "reload with one less: until it is out, s"},
	{name: play.AddOps, title: "operations of a reload with one more"},
	{name: play.NoneOps, title: "operations of a reload without a change", alone: true},
	{name: play.OutOne, title: "one server fails: until it is out, s"},
	{name: play.Out50, title: "half fail: until a server is out, p50, s"},
	{name: play.Out99, title: "half fail: p99, s"},
	{name: play.OutMax, title: "half fail: the last one, beyond delay_loop, s", alone: true},
	{name: play.OutOps, title: "half fail: operations"},
	{name: play.OutCall, title: "half fail: calls that carried messages"},
	{name: play.IdleCPU, title: "CPU, ms", alone: true},
	{name: play.IdleSwitches, title: "times that it woke", alone: true},
}

const resetActor = play.Sluice + " reset"

// goal is what must hold of sluiced: of a ratio where against names another, else of
// the figure itself.
type goal struct {
	group   string // how it begins
	measure string
	actor   string
	against string
	limit   float64
	least   bool // limit is the least, not the most
}

var goals = []goal{
	{group: "tcp 10000", measure: play.CPU, actor: play.Sluice, against: play.Keepalived, limit: 0.9},
	{group: "tcp 10000", measure: play.CPU, actor: resetActor, against: play.Keepalived, limit: 0.7},
	{group: "http 10000", measure: play.CPU, actor: play.Sluice, against: play.Keepalived, limit: 0.8},
	{group: "tcp 10000", measure: play.RSS, actor: play.Sluice, against: play.Keepalived, limit: 3},
	{group: "http 10000", measure: play.RSS, actor: play.Sluice, against: play.Keepalived, limit: 3},
	{group: "tcp ", measure: play.Done, actor: play.Sluice, limit: 99, least: true},
	{group: "http ", measure: play.Done, actor: play.Sluice, limit: 99, least: true},
	{group: "tcp ", measure: play.Late99, actor: play.Sluice, limit: 50},
	{group: "http ", measure: play.Late99, actor: play.Sluice, limit: 50},
	{group: "tcp ", measure: play.DelayedMax, actor: play.Sluice, limit: 50},
	{group: "install 1 x", measure: play.Installing, actor: play.Sluice, against: play.Keepalived, limit: 0.65},
	{group: "install 1000 x", measure: play.Installing, actor: play.Sluice, against: play.Keepalived, limit: 0.3},
	{group: "install ", measure: play.Installing, actor: play.Sluice, against: play.Ipvsadm, limit: 1. / 3},
	{group: "install ", measure: play.AddOne, actor: play.Sluice, against: play.Keepalived, limit: 0.25},
	{group: "install ", measure: play.AddOps, actor: play.Sluice, limit: 1},
	{group: "install ", measure: play.NoneOps, actor: play.Sluice, limit: 0},
	{group: "failure ", measure: play.OutMax, actor: play.Sluice, limit: 1},
	{group: "idle", measure: play.IdleCPU, actor: play.Sluice, limit: 10},
}

// growthLimit bounds how much dearer a check may be with more servers.
const growthLimit = 1.2

func (g goal) String() string {
	sign := "≤"
	if g.least {
		sign = "≥"
	}
	return fmt.Sprintf("%s %.3g", sign, g.limit)
}

func (g goal) holds(v float64) bool {
	if g.least {
		return v >= g.limit
	}
	return v <= g.limit
}

func findGoal(group, measure, actor, against string) (goal, bool) {
	for _, g := range goals {
		if strings.HasPrefix(group, g.group) && g.measure == measure && g.actor == actor && (g.against == "" || g.against == against) {
			return g, true
		}
	}
	return goal{}, false
}

// figures are the samples of a part by group, measure and actor.
type figures map[[3]string]map[int]float64

func index(samples []play.Sample) figures {
	f := figures{}
	for _, s := range samples {
		k := [3]string{s.Group, s.Measure, s.Actor}
		if f[k] == nil {
			f[k] = map[int]float64{}
		}
		f[k][s.Round] = s.Value
	}
	return f
}

// of lists the values of an actor in the order of the rounds.
func (f figures) of(group, measure, actor string) (all []float64) {
	rounds := f[[3]string{group, measure, actor}]
	for round := range maxRounds {
		if v, ok := rounds[round]; ok {
			all = append(all, v)
		}
	}
	return all
}

// pairs lists those of two actors from the rounds that both came through.
func (f figures) pairs(group, measure, actor, against string) (over, under []float64) {
	a, b := f[[3]string{group, measure, actor}], f[[3]string{group, measure, against}]
	for round := range maxRounds {
		x, ok := a[round]
		y, too := b[round]
		if ok && too {
			over, under = append(over, x), append(under, y)
		}
	}
	return over, under
}

// maxRounds is more than anybody waits for.
const maxRounds = 1000

// cell is a median, with the range of several values.
func cell(values []float64) string {
	m := stat.Median(values)
	if math.IsNaN(m) {
		return "-"
	}
	text := number(m)
	if len(values) > 1 {
		text += fmt.Sprintf(" [%s..%s]", number(stat.Percentile(values, 0)), number(stat.Percentile(values, 100)))
	}
	return text
}

// number has three digits that mean something, and no exponent.
func number(v float64) string {
	digits := 0
	for limit := 100.; digits < 3 && math.Abs(v) < limit; limit /= 10 {
		digits++
	}
	text := fmt.Sprintf("%.*f", digits, v)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		return "0"
	}
	return text
}
