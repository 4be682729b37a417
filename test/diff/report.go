package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/diff/scenario"
)

// report is what all scenarios came to.
type report struct {
	kernel      string
	keepaliveds []daemon.Keepalived
	rows        []row
}

type row struct {
	candidate
	// results are the judgements, by the name of the keepalived.
	results map[string]scenario.Result
}

// first is the judgement against the keepalived that decides.
func (r *report) first(w row) scenario.Result { return w.results[r.keepaliveds[0].Name] }

// print writes the table of all scenarios, and below it what is wrong.
func (r *report) print(out io.Writer, verbose bool) {
	for _, w := range r.rows {
		fmt.Fprintf(out, "%-34s", w.s.Name)
		for _, k := range r.keepaliveds {
			fmt.Fprintf(out, " %-24s", w.results[k.Name].Status)
		}
		fmt.Fprintf(out, " %s\n", w.s.Title)
	}
	for _, w := range r.rows {
		for _, k := range r.keepaliveds {
			for _, f := range w.results[k.Name].Findings {
				if verbose || !f.Status.OK() {
					fmt.Fprintf(out, "\n%s against %s: %s: %s %s\n%s\n", w.s.Name, k.Name, f.Status, f.Record, f.Reason, indent(f.Detail))
				}
			}
		}
	}
}

// printAgain names what passed at the second run only: it may be about to fail.
func (r *report) printAgain(out io.Writer, again []string) {
	for _, w := range r.rows {
		if slices.Contains(again, w.s.Name) && r.first(w).Status.OK() {
			fmt.Fprintf(out, "%s passed when it was run a second time\n", w.s.Name)
		}
	}
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}

// summary counts.
func (r *report) summary() string {
	counts := map[scenario.Status]int{}
	for _, w := range r.rows {
		counts[r.first(w).Status]++
	}
	passed := counts[scenario.Same] + counts[scenario.Different]
	return fmt.Sprintf("same %d, different on purpose %d, unexplained %d, broken %d\n%d passed, %d failed",
		counts[scenario.Same], counts[scenario.Different], counts[scenario.Unexplained], counts[scenario.Broken], passed, len(r.rows)-passed)
}
