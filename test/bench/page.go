package main

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-lb/sluice/test/bench/play"
	"github.com/sluice-lb/sluice/test/bench/stat"
)

// pageFile is what -update writes.
const pageFile = "docs/performance.md"

// notes is the part of the page that is written by hand.
//
//go:embed notes.md
var notes string

const pageHead = `# What it costs, beside keepalived

<!-- Made by the benchmarks: "make bench-compare" writes it. -->

Medians [least..most] over rounds in which both daemons ran one after the other on the same files and the same
backends. A ratio is sluiced's figure by the other's, from pair to pair; only ratios tell anything of another machine.
`

var partNames = map[string]string{
	play.Native: "What checking costs: native",
	play.Guest:  "How soon the table follows: on a real ip_vs",
}

// page makes the whole document and lists the goals that are missed.
func page(parts []*play.Results) (text string, missed []string) {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, r := range parts {
		w := &partWriter{b: &b, r: r, f: index(r.Samples)}
		w.write()
		missed = append(missed, w.missed...)
	}
	b.WriteString("\n" + notes)
	return b.String(), missed
}

// busy is the load of a CPU from which on figures are not to be trusted.
const busy = 0.5

type partWriter struct {
	b      *strings.Builder
	r      *play.Results
	f      figures
	missed []string
}

func (w *partWriter) write() {
	fmt.Fprintf(w.b, "\n## %s\n\nkeepalived %s on Linux %s, %d CPUs, %s, %.0f minutes.\n", partNames[w.r.Part], w.r.Keepalived, w.r.Kernel, w.r.CPUs,
		w.r.Began.Format("2006-01-02"), math.Ceil(w.r.Took/60))
	if w.r.Load > busy*float64(w.r.CPUs) {
		fmt.Fprintf(w.b, "\n**The machine was at work for others: its load average was %s before the first run.**\n", number(w.r.Load))
	}
	if w.r.Quick {
		w.b.WriteString("\n**A quick trial of the benchmarks themselves: the figures mean nothing.**\n")
	}
	var groups []string
	for _, s := range w.r.Samples {
		if !slices.Contains(groups, s.Group) {
			groups = append(groups, s.Group)
		}
	}
	slope := false
	for _, g := range groups {
		if strings.HasPrefix(g, slopeGroup) {
			slope = true
			continue
		}
		w.group(g)
	}
	if slope {
		w.slope(groups)
	}
	if len(w.r.Problems) > 0 {
		w.b.WriteString("\nWhat did not come to its end:\n\n")
		for _, p := range w.r.Problems {
			fmt.Fprintf(w.b, "- %s\n", strings.ReplaceAll(p, "\n", " "))
		}
	}
}

// title says what a group is.
func title(group string) string {
	kind, rest, _ := strings.Cut(group, " ")
	switch kind {
	case "tcp":
		return "TCP_CHECK, " + rest + " servers, delay_loop 1"
	case "http":
		return "HTTP_GET, " + rest + " servers, delay_loop 1"
	case "install":
		return "Start and reload, " + rest + " (services x servers)"
	case "failure":
		return "Failure, " + rest + " servers"
	case "idle":
		return "Ten seconds in which no check is due"
	}
	return group
}

func (w *partWriter) group(group string) {
	fmt.Fprintf(w.b, "\n### %s\n\n| | of | figure | against | its figure | ratio | pairs | goal |\n|---|---|---|---|---|---|---|---|\n", title(group))
	for _, m := range measures {
		shown := false
		for _, c := range [][2]string{{play.Sluice, play.Keepalived}, {resetActor, play.Keepalived}, {play.Sluice, play.Ipvsadm}} {
			over, under := w.f.pairs(group, m.name, c[0], c[1])
			if len(over) == 0 {
				continue
			}
			shown = true
			ratios := stat.Ratios(over, under)
			quotient := cell(ratios)
			if m.alone {
				quotient = "-"
			}
			fmt.Fprintf(w.b, "| %s | %s | %s | %s | %s | %s | %d | %s |\n", m.title, c[0], cell(over), c[1], cell(under), quotient, len(over),
				w.judge(group, m, c[0], c[1], over, ratios))
		}
		if own := w.f.of(group, m.name, play.Sluice); !shown && len(own) > 0 {
			fmt.Fprintf(w.b, "| %s | %s | %s | - | - | - | %d | %s |\n", m.title, play.Sluice, cell(own), len(own), w.judge(group, m, play.Sluice, "", own, nil))
		}
	}
}

// judge holds the median to the goal, if there is one.
func (w *partWriter) judge(group string, m measure, actor, against string, values, ratios []float64) string {
	g, ok := findGoal(group, m.name, actor, against)
	if !ok {
		return ""
	}
	what := fmt.Sprintf("%s: %s of %s", title(group), m.title, actor)
	v := stat.Median(values)
	if g.against != "" {
		v = stat.Median(ratios)
		what += " by that of " + g.against
	}
	return w.verdict(g.holds(v), g.String(), what+" is "+number(v))
}

// verdict is a goal's cell; what is missed is remembered.
func (w *partWriter) verdict(holds bool, goal, what string) string {
	if holds {
		return goal + ": holds"
	}
	w.missed = append(w.missed, what+", want "+goal)
	return "**" + goal + ": missed**"
}

const slopeGroup = "slope "

// slope shows one daemon at several sizes.
func (w *partWriter) slope(groups []string) {
	w.b.WriteString("\n### sluiced alone, TCP_CHECK, delay_loop 3\n\n| servers | CPU for 1,000 checks, ms | memory (RSS), MiB | checks done of those due, % | later than due, p99, ms | rounds |\n|---|---|---|---|---|---|\n")
	var points []stat.Point
	for _, g := range groups {
		size, ok := strings.CutPrefix(g, slopeGroup)
		n, err := strconv.ParseFloat(size, 64)
		if !ok || err != nil {
			continue
		}
		cost := w.f.of(g, play.CPU, play.Sluice)
		if len(cost) == 0 {
			continue
		}
		points = append(points, stat.Point{Size: n, Cost: n * stat.Median(cost)})
		fmt.Fprintf(w.b, "| %s | %s | %s | %s | %s | %d |\n", size, cell(cost), cell(w.f.of(g, play.RSS, play.Sluice)),
			cell(w.f.of(g, play.Done, play.Sluice)), cell(w.f.of(g, play.Late99, play.Sluice)), len(cost))
	}
	growth := stat.Growth(points)
	fmt.Fprintf(w.b, "\nA check at a larger size costs at most %s of one at a smaller size (%s).\n", number(growth),
		w.verdict(growth <= growthLimit, fmt.Sprintf("≤ %g", growthLimit), "growth of a check's cost: "+number(growth)))
}
