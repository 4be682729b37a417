package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/keyword"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// What operators copy must load. A ```conf block in README.md or docs/*.md has to
// be a whole configuration without errors; an excerpt, or an example of a
// mistake, is fenced as ```text. The files in configs must be without any
// finding: they are what one starts from.

func TestSampleConfigurationsLoadWithoutFindings(t *testing.T) {
	t.Parallel()
	samples := glob(t, "configs/*.conf")
	if len(samples) == 0 {
		t.Fatal("no samples in configs")
	}
	for _, path := range samples {
		cfg, list := keyword.Load(path, keyword.Options{Options: syntax.Options{Resolver: syntax.OS{}}, Strict: true})
		if cfg == nil || len(list) > 0 {
			t.Errorf("%s: loaded %t, %d findings:\n%s", path, cfg != nil, len(list), render(list))
		}
	}
}

func TestDocumentedConfigurationsLoad(t *testing.T) {
	t.Parallel()
	for _, path := range append(glob(t, "README.md"), glob(t, "docs/*.md")...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range confBlocks(string(text)) {
			// Blank lines in front let findings name the line of the document.
			source := strings.Repeat("\n", s.line-1) + s.text
			cfg, list := keyword.LoadString(path, source, keyword.Options{Strict: true})
			if cfg == nil {
				t.Errorf("%s:%d: the block does not load:\n%s", path, s.line, render(list))
			}
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func render(list diag.List) string {
	var b strings.Builder
	if err := list.WriteText(&b, diag.TextOptions{}); err != nil {
		return err.Error()
	}
	return b.String()
}

// block is a fenced block; line is that of its first line, from 1.
type block struct {
	line int
	text string
}

// confBlocks returns the fenced blocks of the language conf, also those that are
// indented with a list.
func confBlocks(markdown string) []block {
	var blocks []block
	open, conf := false, false
	n := 0
	for line := range strings.Lines(markdown) {
		n++
		trimmed := strings.TrimSpace(line)
		switch {
		case !open && strings.HasPrefix(trimmed, "```"):
			open, conf = true, trimmed == "```conf"
			if conf {
				blocks = append(blocks, block{line: n + 1})
			}
		case open && trimmed == "```":
			open = false
		case open && conf:
			blocks[len(blocks)-1].text += line
		}
	}
	return blocks
}

func TestConfBlocks(t *testing.T) {
	t.Parallel()
	const text = "one\n```conf\na\n\nb\n```\n```text\nnot\n```\n- list\n  ```conf\n  c\n  ```\n```\nconf\n```\n"
	want := []block{{3, "a\n\nb\n"}, {12, "  c\n"}}
	if diff := cmp.Diff(want, confBlocks(text), cmp.AllowUnexported(block{})); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
}
