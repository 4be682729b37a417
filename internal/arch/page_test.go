package arch

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestArchitecturePageNamesEveryPackage: the page is where a newcomer looks first, and
// a package that is not there has no decision of its own.
func TestArchitecturePageNamesEveryPackage(t *testing.T) {
	b, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	var dir string // of the name before, in the same row
	for line := range strings.SplitSeq(string(b), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cell, _, _ := strings.Cut(line[1:], "|")
		dir = ""
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			name := m[1]
			if strings.Contains(name, "/") {
				name = path.Clean(name) // "./x" is at the top
				dir = path.Dir(name)
			} else {
				name = path.Join(dir, name)
			}
			named[name] = true
		}
	}
	for _, p := range listPackages(t) {
		name := p.name()
		if strings.HasPrefix(name, "test/") || name == "" {
			continue
		}
		if !named[name] {
			t.Errorf("docs/architecture.md has no row for %s: what does it decide?", name)
		}
		delete(named, name)
	}
	for name := range named {
		t.Errorf("docs/architecture.md has a row for %s, which is not there", name)
	}
}
