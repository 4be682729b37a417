package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/diff/scenario"
	"github.com/sluice-lb/sluice/test/runner"
)

// pageFile is what -update writes.
const pageFile = "docs/compatibility.md"

// notes is the part of the page that is written by hand.
//
//go:embed notes.md
var notes string

// page writes docs/compatibility.md, or fails when it is not what it would write.
func (r *report) page(o *options) error {
	old, err := os.ReadFile(pageFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	reference, err := os.ReadFile(runner.Reference)
	if err != nil {
		return err
	}
	text := r.markdown(string(old), unserved(string(reference)))
	switch {
	case text == string(old):
		return nil
	case o.Update:
		return os.WriteFile(pageFile, []byte(text), 0o644)
	}
	return fmt.Errorf("%s is not what these results make of it; run again with -update, and commit it\n%s", pageFile, indent(firstDifference(string(old), text)))
}

// firstDifference shows where two texts part.
func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	i := 0
	for i < min(len(x), len(y)) && x[i] == y[i] {
		i++
	}
	line := func(l []string) string {
		if i < len(l) {
			return l[i]
		}
		return "(the end)"
	}
	return fmt.Sprintf("line %d\n- %s\n+ %s", i+1, line(x), line(y))
}

const pageHead = `# Compatibility with keepalived

<!-- Made by the differential test: "make test-diff ARGS=-update" writes it. -->

sluiced and keepalived %s were run side by side on the same configurations, before the same backends, on Linux %s:
the kernel's table after each step, what scripts and FIFOs were told, exit statuses and, where a scenario asks for
it, when which weight changed. The scenarios are in testdata/diff, how they are compared stands in the
documentation of test/diff. A difference without a reason fails the test.

| result | scenarios |
|---|---|
| same | %d |
| different on purpose | %d |
`

// markdown makes the page. Sections of what did not take part in this run are taken
// over from the old page.
func (r *report) markdown(old string, unserved []keyword) string {
	var same, different, configs strings.Builder
	counts := map[scenario.Status]int{}
	bad := ""
	for _, w := range r.rows {
		result := r.first(w)
		if !result.Status.OK() {
			bad += fmt.Sprintf("| %s | %s | %s |\n", w.s.Name, cell(w.s.Title), result.Status)
		}
		if w.number != "" {
			fmt.Fprintf(&configs, "| %s | %s | %s |\n", w.number, result.Status, cell(reasons(result)))
			continue
		}
		counts[result.Status]++
		if result.Status == scenario.Same {
			fmt.Fprintf(&same, "| %s | %s |\n", w.s.Name, cell(w.s.Title))
		}
		for _, f := range result.Findings {
			if f.Status != scenario.Different {
				continue
			}
			fmt.Fprintf(&different, "| %s | %s | `%s` | %s |\n", w.s.Name, cell(w.s.Title), f.Record, cell(f.Reason))
		}
	}
	var page strings.Builder
	fmt.Fprintf(&page, pageHead, r.keepaliveds[0].Version, runner.Kernel(r.kernel), counts[scenario.Same], counts[scenario.Different])
	if bad != "" {
		fmt.Fprintf(&page, "\n## Unexplained\n\nNobody has said yet why these are not the same; the test fails.\n\n| scenario | what it shows | result |\n|---|---|---|\n%s", bad)
	}
	fmt.Fprintf(&page, "\n## Same\n\n| scenario | what it shows |\n|---|---|\n%s", same.String())
	fmt.Fprintf(&page, "\n## Different on purpose\n\nAll else in these scenarios is the same.\n\n| scenario | what it shows | what differs | why |\n|---|---|---|---|\n%s", different.String())
	page.WriteString("\n## Not supported\n\nWhat keepalived knows, and sluiced reads without doing it. What has no effect because it is of no use here is in\n" +
		"[configuration.md](configuration.md).\n\n| keyword | in | here | meaning |\n|---|---|---|---|\n")
	for _, k := range unserved {
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", k.name, k.block, k.here, k.meaning)
	}
	page.WriteString("\n" + strings.TrimSpace(notes) + "\n")
	if configs.Len() > 0 {
		configs = prefixed(&configs, "\n## Collected configurations\n\nConfigurations found in the field, by number: tested, started, reloaded and stopped with nothing that answers.\n\n"+
			"| number | result | why |\n|---|---|---|\n")
	}
	page.WriteString(section("configurations", configs.String(), old))
	others := ""
	for _, k := range r.keepaliveds[1:] {
		others += r.against(k)
	}
	page.WriteString(section("versions", others, old))
	return page.String()
}

func prefixed(b *strings.Builder, head string) (out strings.Builder) {
	out.WriteString(head + b.String())
	return out
}

// section marks a part of the page that not every run can make; an empty one is
// taken from the old page.
func section(name, text, old string) string {
	begin, end := "\n<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	if text == "" {
		if _, rest, ok := strings.Cut(old, begin); ok {
			text, _, _ = strings.Cut(rest, end)
		}
	}
	return begin + text + end
}

// against tells where another keepalived is not like the first one.
func (r *report) against(k daemon.Keepalived) string {
	var rows strings.Builder
	same := 0
	for _, w := range r.rows {
		before := len(rows.String())
		first, other := differing(r.first(w)), differing(w.results[k.Name])
		for _, name := range append(w.s.Records(), "") {
			what := ""
			switch {
			case name == "" && w.results[k.Name].Status == scenario.Broken:
				what = k.Version + " could not be compared"
			case other[name] && !first[name]:
				what = k.Version + " differs from sluiced"
			case first[name] && !other[name] && w.results[k.Name].Status != scenario.Broken:
				what = k.Version + " does as sluiced"
			}
			if what != "" {
				fmt.Fprintf(&rows, "| %s | `%s` | %s |\n", w.s.Name, name, what)
			}
		}
		if len(rows.String()) == before {
			same++
		}
	}
	return fmt.Sprintf("\n## keepalived %s\n\nIn %d of %d scenarios the result is that with keepalived %s. The others:\n\n| scenario | what | |\n|---|---|---|\n%s",
		k.Version, same, len(r.rows), r.keepaliveds[0].Version, rows.String())
}

// differing lists the records that are not the same, for whatever reason.
func differing(result scenario.Result) map[string]bool {
	names := map[string]bool{}
	for _, f := range result.Findings {
		if f.Record != "" && !f.Stale {
			names[f.Record] = true
		}
	}
	return names
}

// reasons joins the reasons of a result, each once.
func reasons(result scenario.Result) string {
	var all []string
	seen := map[string]bool{}
	for _, f := range result.Findings {
		if f.Reason != "" && !seen[f.Reason] {
			seen[f.Reason] = true
			all = append(all, f.Reason)
		}
	}
	return strings.Join(all, "; ")
}

// cell makes a text fit into a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// keyword is one that is not served.
type keyword struct{ block, name, here, meaning string }

var (
	heading    = regexp.MustCompile(`^## (.*)$`)
	keywordRow = regexp.MustCompile("^\\| `([^`]+)` \\|.*\\| (not yet|skipped) \\| (.*) \\|$")
)

// unserved picks the keywords that are not served from the reference, which is made
// from the keyword table.
func unserved(reference string) (all []keyword) {
	block := ""
	for line := range strings.Lines(reference) {
		line = strings.TrimRight(line, "\n")
		if m := heading.FindStringSubmatch(line); m != nil {
			block = m[1]
		}
		if m := keywordRow.FindStringSubmatch(line); m != nil {
			all = append(all, keyword{block, m[1], m[2], m[3]})
		}
	}
	return all
}
