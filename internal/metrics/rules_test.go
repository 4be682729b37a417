package metrics

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/config"
)

const (
	rulesFile     = "../../configs/prometheus-rules.yml"
	rulesTestFile = "../../configs/prometheus-rules_test.yml"
	runbook       = "../../docs/operations.md"
)

// given are the labels that Prometheus adds.
var given = []string{"job", "instance"}

// known are the metrics with their labels; a histogram's series are there each by
// itself.
func known(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	labels := regexp.MustCompile(`([a-z_]+)="`)
	for s := range series(t, text(t, everything(), config.MetricsServer)) {
		name, rest, _ := strings.Cut(s, "{")
		if all[name] == nil {
			all[name] = map[string]bool{}
		}
		for _, l := range given {
			all[name][l] = true
		}
		for _, m := range labels.FindAllStringSubmatch(rest, -1) {
			all[name][m[1]] = true
		}
	}
	return all
}

var (
	comments   = regexp.MustCompile(`(?m)^\s*#.*$`)
	metricName = regexp.MustCompile(`\b(?:sluice_|sluice:|process_|go_)[a-z0-9_:]+`)
	recordName = regexp.MustCompile(`record: (\S+)`)
	selector   = regexp.MustCompile(`\b([a-z_][a-z0-9_:]*)\{([^{}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*\\?"`)
	grouping   = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	template   = regexp.MustCompile(`\{\{\s*\$?(?:labels\.)?([a-z_]+)\s*\}\}`)
	variable   = regexp.MustCompile(`label_values\(.*?,\s*([a-z_]+)\)`)
)

// names holds what a file says of metrics and labels to those there are.
func names(t *testing.T, file string) {
	t.Helper()
	text := comments.ReplaceAllString(readFile(t, file), "")
	// ALERTS has two of its own.
	all, recorded := known(t), map[string]bool{"alertname": true, "severity": true}
	for _, labels := range all {
		maps.Copy(recorded, labels)
	}
	for _, m := range recordName.FindAllStringSubmatch(readFile(t, rulesFile), -1) {
		all[m[1]] = recorded
	}
	used := metricName.FindAllString(text, -1)
	if len(used) < 20 {
		t.Errorf("%s names only %d metrics", file, len(used))
	}
	for _, name := range used {
		if _, ok := all[name]; !ok {
			t.Errorf("%s: there is no metric %s", file, name)
		}
	}
	for _, m := range selector.FindAllStringSubmatch(text, -1) {
		labels := all[m[1]]
		if m[1] == "up" {
			labels = map[string]bool{"job": true, "instance": true}
		}
		if labels == nil {
			continue
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !labels[l[1]] {
				t.Errorf("%s: %s has no label %s, but %v", file, m[1], l[1], slices.Sorted(maps.Keys(labels)))
			}
		}
	}
	label := func(l string) {
		if l = strings.TrimSpace(l); l != "" && l != "value" && !recorded[l] {
			t.Errorf("%s: no metric has a label %s", file, l)
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(text, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			label(l)
		}
	}
	for _, re := range []*regexp.Regexp{template, variable} {
		for _, m := range re.FindAllStringSubmatch(text, -1) {
			label(m[1])
		}
	}
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestWhatRulesAndDashboardNameIsThere.
func TestWhatRulesAndDashboardNameIsThere(t *testing.T) {
	for _, file := range []string{rulesFile, rulesTestFile, dashboardFile} {
		names(t, file)
	}
}

// TestEveryAlertSaysWhatToDo: its severity, what is wrong, what to do and where that is
// told at length; and the rules' own tests have it fire.
func TestEveryAlertSaysWhatToDo(t *testing.T) {
	tests := readFile(t, rulesTestFile)
	operations, _ := os.ReadFile(runbook)
	anchors := headingAnchors(string(operations))
	alerts := strings.Split(comments.ReplaceAllString(readFile(t, rulesFile), ""), "- alert: ")[1:]
	if len(alerts) < 18 {
		t.Errorf("only %d alerts", len(alerts))
	}
	severity := regexp.MustCompile(`severity: (critical|warning|info)\n`)
	anchor := regexp.MustCompile(`runbook_url: docs/operations\.md#([a-z-]+)\n`)
	for _, a := range alerts {
		name, _, _ := strings.Cut(a, "\n")
		for _, want := range []string{"expr: ", "summary: ", "description: >-"} {
			if !strings.Contains(a, want) {
				t.Errorf("%s has no %s", name, want)
			}
		}
		if !severity.MatchString(a) {
			t.Errorf("%s has no severity", name)
		}
		if !strings.Contains(tests, `alertname="`+name+`"`) {
			t.Errorf("%s is not tested in %s", name, rulesTestFile)
		}
		m := anchor.FindStringSubmatch(a)
		switch {
		case m == nil:
			t.Errorf("%s has no runbook_url", name)
		case operations != nil && !anchors[m[1]]:
			t.Errorf("%s: %s has no heading for #%s", name, runbook, m[1])
		}
	}
}

// headingAnchors are the anchors that a page's headings have.
func headingAnchors(page string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
				return r
			case r == ' ':
				return '-'
			}
			return -1
		}, strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#"))))
		all[anchor] = true
	}
	return all
}
