package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// command is one of a console block, with the lines that it is said to print.
type command struct {
	line int // of the page, from 1
	text string
	want []string
	// first and end bound want among the page's lines, from 0.
	first, end int
}

// block is a console block.
type block struct {
	line     int
	notRun   string // why; "" for a block that is run
	commands []command
}

type page struct {
	path   string
	lines  []string
	blocks []block
}

func readPage(path string) (*page, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parsePage(path, string(b))
}

func parsePage(path, text string) (*page, error) {
	p := &page{path: path, lines: strings.Split(text, "\n")}
	fence, reason := "", ""
	for i := 0; i < len(p.lines); i++ {
		line := p.lines[i]
		switch {
		case fence != "":
			if strings.TrimSpace(line) == "```" {
				fence = ""
			} else if fence == "console" {
				if err := p.console(&i); err != nil {
					return nil, err
				}
			}
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fence = strings.TrimPrefix(strings.TrimSpace(line), "```")
			if fence == "" {
				fence = "none"
			}
			if fence == "console" {
				p.blocks = append(p.blocks, block{line: i + 1, notRun: reason})
			}
			reason = ""
		case strings.HasPrefix(line, "<!-- not run: "):
			reason = strings.TrimSuffix(strings.TrimPrefix(line, "<!-- not run: "), " -->")
		case strings.TrimSpace(line) != "":
			if reason != "" {
				return nil, fmt.Errorf("%s:%d: \"not run\" must stand right in front of a block", path, i)
			}
		}
	}
	if fence != "" {
		return nil, fmt.Errorf("%s: a block is not closed", path)
	}
	return p, nil
}

// console reads the command that begins at line *i, and leaves *i at its last line.
func (p *page) console(i *int) error {
	text, ok := strings.CutPrefix(p.lines[*i], "# ")
	if !ok {
		return fmt.Errorf("%s:%d: a console block begins with a command: # COMMAND", p.path, *i+1)
	}
	c := command{line: *i + 1}
	for strings.HasSuffix(text, `\`) {
		*i++
		text += "\n" + p.lines[*i]
	}
	c.text, c.first = text, *i+1
	for c.end = c.first; c.end < len(p.lines) && p.lines[c.end] != "```" && !strings.HasPrefix(p.lines[c.end], "# "); c.end++ {
	}
	c.want = p.lines[c.first:c.end]
	*i = c.end - 1
	b := &p.blocks[len(p.blocks)-1]
	b.commands = append(b.commands, c)
	return nil
}

// replace puts new outputs in place of old ones and writes the page.
func (p *page) replace(outputs map[int][]string) error {
	lines := slices.Clone(p.lines)
	for _, b := range slices.Backward(p.blocks) {
		for _, c := range slices.Backward(b.commands) {
			if out, ok := outputs[c.line]; ok {
				lines = slices.Replace(lines, c.first, c.end, out...)
			}
		}
	}
	return os.WriteFile(p.path, []byte(strings.Join(lines, "\n")), 0o644)
}

// pages are the paths of all pages.
func pages(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	return append(paths, filepath.Join(root, "README.md"))
}

func TestParsePage(t *testing.T) {
	t.Parallel()
	p, err := parsePage("x.md", "a\n```console\n# one \\\n  more\nout\n\n# two\n```\n<!-- not run: needs systemd -->\n\n```console\n# three\n```\n```text\n# no\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []block{
		{line: 2, commands: []command{
			{line: 3, text: "one \\\n  more", want: []string{"out", ""}, first: 4, end: 6},
			{line: 7, text: "two", want: []string{}, first: 7, end: 7},
		}},
		{line: 11, notRun: "needs systemd", commands: []command{{line: 12, text: "three", want: []string{}, first: 12, end: 12}}},
	}
	if diff := cmp.Diff(want, p.blocks, cmp.AllowUnexported(block{}, command{})); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"```console\nno command\n```\n", "```console\n# a\n", "<!-- not run: x -->\ntext\n```console\n# a\n```\n"} {
		if _, err := parsePage("x.md", bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
