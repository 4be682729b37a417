package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/sluice-lb/sluice/test/ecmp/play"
	"github.com/sluice-lb/sluice/test/page"
	"github.com/sluice-lb/sluice/test/runner"
)

// pageFile is what -update writes a part of.
const pageFile = "docs/scale-out.md"

// lossFile has the rows of directors with sluice, beside those of one director.
const lossFile = "docs/zero-loss.md"

// part is what both pages call what is measured here.
const part = "more-directors"

var kindTitles = map[string]string{
	play.Sluice: "Directors with sluice",
	play.Hand:   "Directors by hand, with ip and ipvsadm alone",
}

// update replaces the measured part of the page. Rows of what did not take part stay.
func update(text string, plan play.Plan, results play.Results) (string, error) {
	old, err := page.Part(text, part)
	if err != nil {
		return "", fmt.Errorf("%s: %w", pageFile, err)
	}
	return page.Replace(text, part, measured(old, plan, results))
}

// updateLoss takes the rows of directors with sluice over from the other page, so that
// there is one truth.
func updateLoss(text, scaleOut string) (string, error) {
	all, err := page.Part(scaleOut, part)
	if err != nil {
		return "", fmt.Errorf("%s: %w", pageFile, err)
	}
	_, rows, _ := strings.Cut(all, "\n### "+kindTitles[play.Sluice]+"\n")
	rows, _, _ = strings.Cut(rows, "\n### ")
	var b strings.Builder
	b.WriteString("\n")
	for line := range strings.Lines(strings.TrimLeft(rows, "\n")) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			break
		}
		// Without how many the router moved, and when it knew.
		if strings.Contains(cells[2], notMeasured) {
			b.WriteString("|" + cells[1] + "|" + cells[2] + strings.Repeat("| ", len(play.Modes)-1) + "|\n")
			continue
		}
		b.WriteString("|" + cells[1] + "|" + strings.Join(cells[4:], "|"))
	}
	b.WriteString("\n")
	text, err = page.Replace(text, part, b.String())
	if err != nil {
		return "", fmt.Errorf("%s: %w", lossFile, err)
	}
	return text, nil
}

func measured(old string, plan play.Plan, results play.Results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nMeasured on Linux %s, on an emulated machine: %d long-lived connections a run, and %d short requests a second.\n",
		runner.Kernel(results.Kernel), plan.Long, plan.Short)
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
	b.WriteString("\n### " + leftTitle + "\n\n| directors |")
	for _, m := range play.Modes {
		fmt.Fprintf(&b, " %s |", m.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(play.Modes)) + "\n")
	b.WriteString(leftRow(results.Runs, old) + "\n")
	return b.String()
}

// leftTitle is the heading of what a drained director keeps.
const leftTitle = "Still established at the drained director"

// leftRow is what a drained director keeps of the connections that were moved, which is
// the kernel's doing; the old row where a mode did not take part.
func leftRow(runs []play.Result, old string) string {
	cells := map[string]string{}
	for _, r := range runs {
		if r.Left > 0 && len(r.Problems) == 0 {
			cells[r.Mode] = fmt.Sprintf(" %d, then %d |", r.Left, r.Unheard)
		}
	}
	const title = "by hand"
	if len(cells) < len(play.Modes) {
		_, rest, _ := strings.Cut(old, "\n### "+leftTitle+"\n")
		return findRow(rest, title, len(play.Modes)-1)
	}
	text := "| " + title + " |"
	for _, m := range play.Modes {
		text += cells[m.Name]
	}
	return text + "\n"
}

// row is a scenario's; the old one where a mode did not take part, or went wrong.
func row(s *play.Scenario, kind string, runs []play.Result, old string) string {
	cells := map[string]play.Result{}
	for _, r := range runs {
		if r.Scenario == s.Name && r.Kind == kind && len(r.Problems) == 0 && r.Excused == "" {
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
	return findRow(rest, s.Title, len(play.Modes)+1)
}

// findRow is the row that begins with a title, or one that is not measured, with as many
// cells behind that.
func findRow(table, title string, cells int) string {
	if row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(title) + ` \|.*\n`).FindString(table); row != "" {
		return row
	}
	return fmt.Sprintf("| %s | %s |%s\n", title, notMeasured, strings.Repeat(" |", cells))
}
