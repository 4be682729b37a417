package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	inlineLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codeSpan   = regexp.MustCompile("`[^`]*`")
	heading    = regexp.MustCompile(`^#{1,6} +(.*?)\s*$`)
	notAnchor  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	runbook    = regexp.MustCompile(`runbook_url: (\S+)`)
)

// prose is a page without its fenced blocks, a line for a line.
func prose(text string) []string {
	var out []string
	fenced := false
	for line := range strings.SplitSeq(text, "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fenced || fence {
			out = append(out, "")
		} else {
			out = append(out, line)
		}
		fenced = fenced != fence
	}
	return out
}

// anchors are what a page's headings can be linked by, as GitHub makes them.
func anchors(text string) map[string]bool {
	found, seen := map[string]bool{}, map[string]int{}
	for _, line := range prose(text) {
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := strings.ReplaceAll(notAnchor.ReplaceAllString(strings.ToLower(linkText.ReplaceAllString(m[1], "$1")), ""), " ", "-")
		if n := seen[name]; n > 0 {
			found[fmt.Sprintf("%s-%d", name, n)] = true
		} else {
			found[name] = true
		}
		seen[name]++
	}
	return found
}

// resolve says what is wrong with a link on a page, "" for nothing.
func resolve(page, link string) string {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return ""
	}
	file, anchor, _ := strings.Cut(link, "#")
	path := page
	if file != "" {
		path = filepath.Join(filepath.Dir(page), file)
	}
	text, err := os.ReadFile(path)
	if fi, e := os.Stat(path); e == nil && fi.IsDir() {
		err = nil
	}
	switch {
	case err != nil:
		return "there is no such file"
	case anchor != "" && !anchors(string(text))[anchor]:
		return "the page has no such heading"
	}
	return ""
}

func TestLinksResolve(t *testing.T) {
	t.Parallel()
	n := 0
	for _, path := range pages(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range prose(string(text)) {
			for _, m := range inlineLink.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
				n++
				if why := resolve(path, m[1]); why != "" {
					t.Errorf("%s:%d: link to %s: %s", path, i+1, m[1], why)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("%d links found: the pattern finds none any more", n)
	}
}

// TestEveryAlertHasItsSection: who is woken must not find a dead link.
func TestEveryAlertHasItsSection(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile(filepath.Join(root, "configs/prometheus-rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	links := runbook.FindAllStringSubmatch(string(rules), -1)
	if len(links) < 15 {
		t.Fatalf("%d runbooks in the rules", len(links))
	}
	for _, m := range links {
		if why := resolve(filepath.Join(root, "x"), m[1]); why != "" {
			t.Errorf("configs/prometheus-rules.yml: runbook %s: %s", m[1], why)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "a.md")
	if err := os.WriteFile(page, []byte("# One `two`, three!\n\n## Again\n## Again\n```\n# not\n```\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, good := range map[string]bool{
		"#one-two-three": true, "a.md#again-1": true, "a.md": true, "https://example.com/#x": true,
		"#not": false, "b.md": false, "#again-2": false,
	} {
		if why := resolve(page, link); (why == "") != good {
			t.Errorf("%s: %q", link, why)
		}
	}
}
