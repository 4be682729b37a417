package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/sluice-lb/sluice/test/ecmp/play"
)

// pageFile is what -update writes a part of.
const pageFile = "docs/scale-out.md"

// What was measured stands between these lines; the rest is written by hand.
const (
	begin = "<!-- Measured: \"make test-ecmp ARGS=-update\" writes what follows. -->\n"
	end   = "<!-- End of what was measured. -->\n"
)

var kindTitles = map[string]string{
	play.Sluice: "Directors with sluice",
	play.Hand:   "Directors by hand, with ip and ipvsadm alone",
}

// update replaces the measured part of the page. Rows of what did not take part stay.
func update(page string, plan play.Plan, results play.Results) (string, error) {
	head, rest, ok := strings.Cut(page, begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("%s lacks the lines %q and %q", pageFile, begin, end)
	}
	return head + begin + measured(old, plan, results) + end + tail, nil
}

func measured(old string, plan play.Plan, results play.Results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nMeasured on Linux %s, on an emulated machine: %d long-lived connections a run, and %d short requests a second.\n",
		regexp.MustCompile(`^\d+\.\d+`).FindString(results.Kernel), plan.Long, plan.Short)
	for _, kind := range []string{play.Sluice, play.Hand} {
		heading := "\n### " + kindTitles[kind] + "\n"
		fmt.Fprintf(&b, "%s\n| what happens | moved by the router | router knows after |", heading)
		for _, m := range play.Modes {
			fmt.Fprintf(&b, " %s |", m.Name)
		}
		b.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(play.Modes)) + "\n")
		for _, s := range play.Scenarios {
			b.WriteString(row(s, kind, results.Runs, oldRow(old, heading, s)))
		}
	}
	b.WriteString("\n")
	return b.String()
}

// row is a scenario's; the old one where a mode did not take part.
func row(s *play.Scenario, kind string, runs []play.Result, old string) string {
	cells := map[string]play.Result{}
	for _, r := range runs {
		if r.Scenario == s.Name && r.Kind == kind {
			cells[r.Mode] = r
		}
	}
	if len(cells) < len(play.Modes) {
		return old
	}
	var text strings.Builder
	least, most, slowest := -1, 0, 0.0
	for _, m := range play.Modes {
		r := cells[m.Name]
		fmt.Fprintf(&text, " %s |", cell(r))
		if least < 0 || r.Moved < least {
			least = r.Moved
		}
		most, slowest = max(most, r.Moved), max(slowest, r.Noticed)
	}
	moved := fmt.Sprint(least)
	if most > least {
		moved = fmt.Sprintf("%d to %d", least, most)
	}
	return fmt.Sprintf("| %s | %s | %.1f s |%s\n", s.Title, moved, slowest, text.String())
}

// cell is what was lost: "**0**; 2 of 70 short".
func cell(r play.Result) string {
	return bold(r.Long.Lost) + fmt.Sprintf(" of %d; ", r.Long.Opened) + bold(r.Short.Lost) + fmt.Sprintf(" of %d", r.Short.Opened)
}

func bold(n int) string {
	if n == 0 {
		return "**0**"
	}
	return fmt.Sprint(n)
}

// notMeasured stands where no run has been.
const notMeasured = "not measured yet"

func oldRow(old, heading string, s *play.Scenario) string {
	_, rest, _ := strings.Cut(old, heading)
	rest, _, _ = strings.Cut(rest, "\n### ")
	if row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(s.Title) + ` \|.*\n`).FindString(rest); row != "" {
		return row
	}
	return fmt.Sprintf("| %s | %s |%s\n", s.Title, notMeasured, strings.Repeat(" |", len(play.Modes)+1))
}
