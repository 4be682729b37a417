package main

import (
	_ "embed"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/loss/judge"
	"github.com/sluice-lb/sluice/test/loss/play"
	"github.com/sluice-lb/sluice/test/runner"
)

// pageFile is what -update writes.
const pageFile = "docs/zero-loss.md"

// notes is the part of the page that is written by hand.
//
//go:embed notes.md
var notes string

// report is what all runs came to.
type report struct {
	kernel, version string
	plan            play.Plan
	scenarios       []*play.Scenario
	// waiting are scenarios that need what sluice does not have yet.
	waiting []*play.Scenario
	runs    []judge.Result
}

// of returns the runs of a scenario in a topology.
func (r *report) of(scenario, topology string) (all []judge.Result) {
	for _, run := range r.runs {
		if run.Scenario == scenario && run.Topology == topology {
			all = append(all, run)
		}
	}
	return all
}

// actors are the columns.
var actors = []string{daemon.Sluice, play.Keepalived, play.DeleteFirst}

// find returns the run of one actor, or nil.
func find(runs []judge.Result, actor string) *judge.Result {
	for i := range runs {
		if runs[i].Actor == actor {
			return &runs[i]
		}
	}
	return nil
}

// print writes a line for each run.
func (r *report) print(out io.Writer) {
	for _, topology := range r.plan.Topologies {
		for _, s := range r.scenarios {
			for _, actor := range actors {
				if run := find(r.of(s.Name, topology), actor); run != nil {
					fmt.Fprintf(out, "%-3s %-16s %-12s long-lived %-22s short %-22s %s\n", topology, s.Name, actor, cell(run.Long), cell(run.Short), losses(run))
					for _, why := range run.Voids {
						fmt.Fprintf(out, "    an attempt was void: %s\n", why)
					}
				}
			}
		}
	}
	for _, s := range r.waiting {
		fmt.Fprintf(out, "%s waits for %s\n", s.Name, s.Needs)
	}
}

func losses(run *judge.Result) string {
	return strings.Trim(run.Long.How+"; "+run.Short.How, "; ")
}

// cell is a count, "10 of 30", with what is counted apart behind it.
func cell(c judge.Count) string {
	text := fmt.Sprintf("%d of %d", c.Lost, c.Opened)
	if c.Apart > 0 {
		text += fmt.Sprintf(" (+%d apart)", c.Apart)
	}
	return text
}

const pageHead = `# What operations cost

<!-- Made by the loss test: "make test-loss ARGS=-update" writes it. -->

Each operation was carried out under load on Linux %s, by sluiced, by keepalived %s on the same file and by the same
steps, and, where it makes a difference, in the order in which kube-proxy changes the table: %d long-lived
connections that exchange a line every tenth of a second, and at most %d short requests a second. The numbers of a
row are those of one run, on an emulated machine. Cells hold what was lost of what was opened.
`

var topologyNames = map[string]string{"NAT": "Through NAT", "DR": "Through direct routing"}

// page makes the whole document. Rows of what did not take part in this run are taken
// over from the old one.
func (r *report) page(old string) string {
	var b strings.Builder
	fmt.Fprintf(&b, pageHead, runner.Kernel(r.kernel), r.version, r.plan.Long, r.plan.Short)
	for _, topology := range play.Topologies {
		heading := "\n## " + topologyNames[topology] + "\n"
		b.WriteString(heading + "\n| operation | sluice, long-lived | short | keepalived, long-lived | short | delete first, long-lived | short |\n|---|---|---|---|---|---|---|\n")
		for _, s := range play.Scenarios {
			runs := r.of(s.Name, topology)
			if len(runs) == 0 {
				b.WriteString(oldRow(old, heading, s))
				continue
			}
			fmt.Fprintf(&b, "| %s |", r.title(s, topology))
			for _, actor := range actors {
				b.WriteString(cells(find(runs, actor), actor == daemon.Sluice))
			}
			b.WriteString("\n")
		}
	}
	b.WriteString(elsewhere(old))
	b.WriteString("\n## Counted apart\n\n")
	for _, s := range play.Scenarios {
		if s.Apart != "" {
			fmt.Fprintf(&b, "- %s: what was lost %s.\n", s.Title, s.Apart)
		}
	}
	b.WriteString("\n" + strings.TrimSpace(notes) + "\n")
	return b.String()
}

// elsewhere is the section that other tests measure, as it was.
func elsewhere(old string) string {
	const heading = "\n## More than one director\n"
	_, rest, ok := strings.Cut(old, heading)
	if !ok {
		return ""
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return heading + rest
}

// rowOf matches a scenario's row of the page.
func rowOf(s *play.Scenario) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(s.Title) + `(, \d+ times)? \|.*\n`)
}

// oldRow is the row of a scenario below a heading of the old page.
func oldRow(old, heading string, s *play.Scenario) string {
	_, rest, _ := strings.Cut(old, heading)
	rest, _, _ = strings.Cut(rest, "\n## ")
	if row := rowOf(s).FindString(rest + "\n"); row != "" {
		return row
	}
	return fmt.Sprintf("| %s | %s | | | | | |\n", s.Title, notMeasured)
}

// notMeasured stands where no run has been.
const notMeasured = "not measured yet"

// title is the scenario's, with how often it was done where that depends.
func (r *report) title(s *play.Scenario, topology string) string {
	if s.Name == "kill" {
		return fmt.Sprintf("%s, %d times", s.Title, r.plan.KillsIn(topology))
	}
	return s.Title
}

// cells are the two cells of an actor, the zeros that are promised in bold.
func cells(run *judge.Result, promised bool) string {
	if run == nil {
		return " | |"
	}
	var out string
	for _, c := range []judge.Count{run.Long, run.Short} {
		text := cell(c)
		if promised && c.Lost == 0 {
			text = "**0**" + strings.TrimPrefix(text, "0")
		}
		out += " " + text + " |"
	}
	return out
}
