package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// inlineCode is a code span of Markdown on one line.
var inlineCode = regexp.MustCompile("`([^`]+)`")

// misnamed says what a command line of a page has that there is not, "" for nothing.
func misnamed(root *cobra.Command, line string) string {
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "sluice" {
		return ""
	}
	if strings.HasPrefix(words[1], "-") || strings.ToUpper(words[1]) == words[1] {
		return ""
	}
	verb, _, err := root.Find(words[1:2])
	if err != nil || verb == root {
		return "no verb " + words[1]
	}
	for _, w := range words[2:] {
		if strings.ContainsAny(w, "|;&>") {
			break // another command
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(w, ","), "=")
		switch {
		case strings.HasPrefix(name, "--"):
			if verb.Flags().Lookup(name[2:]) == nil && verb.InheritedFlags().Lookup(name[2:]) == nil {
				return verb.Name() + " has no option " + name
			}
		case len(name) == 2 && name[0] == '-':
			if verb.Flags().ShorthandLookup(name[1:]) == nil {
				return verb.Name() + " has no option " + name
			}
		}
	}
	return ""
}

// TestPagesNameVerbsAndOptionsThatExist reads the code spans of README.md and docs, and
// the descriptions of alerts; console blocks are run by test/docs.
func TestPagesNameVerbsAndOptionsThatExist(t *testing.T) {
	root := newRoot(&app{stdout: io.Discard, stderr: io.Discard})
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range append(paths, "../../README.md", "../../configs/prometheus-rules.yml") {
		if filepath.Base(path) == "performance.md" {
			continue // generated; "sluice reset" is how it calls one of the compared
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		line := 0
		for text := range strings.Lines(string(b)) {
			line++
			spans := [][]string{{"", strings.TrimSpace(text)}} // a line of an indented or fenced block
			spans = append(spans, inlineCode.FindAllStringSubmatch(text, -1)...)
			for i, m := range spans {
				if !strings.HasPrefix(m[1], "sluice ") || i == 0 && !strings.HasPrefix(text, "    ") {
					continue
				}
				n++
				if why := misnamed(root, m[1]); why != "" {
					t.Errorf("%s:%d: `%s`: %s", path, line, m[1], why)
				}
			}
		}
	}
	if n < 30 {
		t.Errorf("%d command lines found in the pages: the pattern finds none any more", n)
	}
}

func TestMisnamed(t *testing.T) {
	root := newRoot(&app{stdout: io.Discard, stderr: io.Discard})
	for line, good := range map[string]bool{
		"sluice status --json": true, "sluice events -f": true, "sluice VERB --help": true, "sluice drain --server 10.0.0.11 --until=2h": true,
		"sluice status --socket X": true, "sluice doctor --json | jq -r": true,
		"sluice stats": false, "sluice status --jsn": false, "sluice drain -x": false,
	} {
		if why := misnamed(root, line); (why == "") != good {
			t.Errorf("%s: %q", line, why)
		}
	}
}
