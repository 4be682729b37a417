package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// cases are what others were hit by, of observability and security: each has a test of
// its number, so that who reads of one finds what holds it. Their texts are in the design.
var cases = []string{"O01", "O02", "O03", "O06", "O08", "O10", "X01", "X02", "X04", "X06"}

// TestEveryCaseHasATest: by its name, Test<ID> and what it is about.
func TestEveryCaseHasATest(t *testing.T) {
	found := map[string]int{}
	name := regexp.MustCompile(`(?m)^func Test([OX]\d\d)[A-Z]\w*\(t \*testing\.T\)`)
	eachTest(t, func(_, text string) {
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			found[m[1]]++
		}
	})
	for _, id := range cases {
		if found[id] == 0 {
			t.Errorf("no test is named Test%s...", id)
		}
		delete(found, id)
	}
	for id := range found {
		t.Errorf("Test%s... is of no case; add it to the list", id)
	}
}

// TestX01EveryReplyHasAFuzzTarget: each checker that reads what a real server, or a
// script, says.
func TestX01EveryReplyHasAFuzzTarget(t *testing.T) {
	fuzzed := map[string]bool{}
	eachTest(t, func(dir, text string) {
		if strings.Contains(text, "\nfunc Fuzz") {
			fuzzed[dir] = true
		}
	})
	dirs, err := filepath.Glob(filepath.Join(root, "internal/checker/*/conversation.go"))
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	for _, dir := range []string{"http", "smtp", "dns", "udp", "ping", "misc"} {
		dir = filepath.Join(root, "internal/checker", dir)
		if !fuzzed[dir] {
			t.Errorf("%s reads replies and has no fuzz target", dir)
		}
		dirs = append(dirs, filepath.Join(dir, "conversation.go"))
	}
	for _, file := range dirs {
		if dir := filepath.Dir(file); !fuzzed[dir] {
			t.Errorf("%s has a conversation and no fuzz target", dir)
		}
	}
}

// eachTest calls f with the folder and the text of each file of tests.
func eachTest(t *testing.T, f func(dir, text string)) {
	t.Helper()
	for _, top := range []string{"cmd", "internal", "packaging", "pkg", "test"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			if err == nil {
				f(filepath.Dir(path), string(b))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
