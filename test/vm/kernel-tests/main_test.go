package main

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/test/vm/machine"
)

func TestVerdict(t *testing.T) {
	t.Parallel()
	a, b := testPackage{path: "example/a"}, testPackage{path: "example/b"}
	for _, tt := range []struct {
		name, stream, pattern string
		packages              []testPackage
		want                  string // what the verdict must say, "" for none
		summary               string
	}{
		{name: "all passed", packages: []testPackage{a, b},
			stream:  "\n=== PACKAGE example/a\n--- PASS: TestKernelX (0.01s)\n    --- PASS: TestKernelX/sub (0.00s)\nPASS\n\n=== PACKAGE example/b\n--- PASS: TestKernelY (0.01s)\nPASS\n",
			summary: "2 passed, 0 failed, 0 skipped"},
		{name: "a skip fails", packages: []testPackage{a},
			stream: "=== PACKAGE example/a\n--- SKIP: TestKernelX (0.01s)\nPASS\n", want: "skipped",
			summary: "0 passed, 0 failed, 1 skipped"},
		{name: "a skipped subtest fails", packages: []testPackage{a},
			stream: "=== PACKAGE example/a\n--- PASS: TestKernelX (0.01s)\n    --- SKIP: TestKernelX/v6 (0.00s)\n", want: "TestKernelX/v6",
			summary: "1 passed, 0 failed, 1 skipped"},
		{name: "a failure", packages: []testPackage{a},
			stream: "=== PACKAGE example/a\n--- FAIL: TestKernelX (0.01s)\nFAIL\n", want: "example/a TestKernelX",
			summary: "0 passed, 1 failed, 0 skipped"},
		{name: "a package that died", packages: []testPackage{a, b},
			stream: "=== PACKAGE example/a\n=== RUN   TestKernelX\npanic: no\n=== PACKAGE example/b\n--- PASS: TestKernelY (0s)\n", want: "example/a: no test ran",
			summary: "1 passed, 0 failed, 0 skipped"},
		{name: "a selection may leave a package out", packages: []testPackage{a, b}, pattern: "Y",
			stream:  "=== PACKAGE example/a\ntesting: warning: no tests to run\n=== PACKAGE example/b\n--- PASS: TestKernelY (0s)\n",
			summary: "1 passed, 0 failed, 0 skipped"},
		{name: "a selection that matches nothing", packages: []testPackage{a}, pattern: "Z",
			stream: "=== PACKAGE example/a\nPASS\n", want: "no test ran",
			summary: "0 passed, 0 failed, 0 skipped"},
		{name: "text that only mentions a result", packages: []testPackage{a},
			stream:  "=== PACKAGE example/a\n    x_test.go:3: saw --- FAIL: TestOther (0s)\n--- PASS: TestKernelX (0s)\n",
			summary: "1 passed, 0 failed, 0 skipped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.pattern == "" {
				tt.pattern = "^TestKernel"
			}
			// Every size of chunk must give the same, lines arrive in pieces.
			for size := 1; size < 40; size++ {
				c := &collector{out: io.Discard}
				for rest := tt.stream; rest != ""; {
					n := min(size, len(rest))
					if _, err := c.Write([]byte(rest[:n])); err != nil {
						t.Fatal(err)
					}
					rest = rest[n:]
				}
				c.flush()
				if got := c.summary(); got != tt.summary {
					t.Fatalf("chunks of %d: summary %q, want %q", size, got, tt.summary)
				}
				err := c.verdict(tt.packages, tt.pattern)
				switch {
				case tt.want == "" && err != nil:
					t.Fatalf("chunks of %d: verdict %v, want none", size, err)
				case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
					t.Fatalf("chunks of %d: verdict %v, want one that says %q", size, err, tt.want)
				}
			}
		})
	}
}

func TestHasKernelTest(t *testing.T) {
	t.Parallel()
	got := map[string]bool{}
	want := map[string]bool{
		"package x\nfunc TestKernelDrain(t *testing.T) {}\n":           true,
		"package x\nfunc TestDrain(t *testing.T) {}\n":                 false,
		"package x\n// func TestKernelDrain\n":                         false,
		"package x\nfunc (s suite) TestKernelDrain(t *testing.T) {}\n": false,
		"package x\nvar s = `func TestKernelDrain(t *testing.T)`\n":    false,
		"package x\nfunc TestKernelA(t *testing.T) {}\nfunc broken( {": true,
		"": false,
	}
	for src := range want {
		got[src] = hasKernelTest([]byte(src))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hasKernelTest (-want +got):\n%s", diff)
	}
}

func TestRunScriptQuotes(t *testing.T) {
	t.Parallel()
	got := runScript([]testPackage{{path: "p", dir: "/it's", binary: "/b c"}}, options{pattern: "^TestKernel", limit: time.Minute, arguments: "-update"})
	for _, want := range []string{`cd '/it'\''s'`, `sh '/b c' -test.v -test.run '^TestKernel' -test.timeout 1m0s -update || status=1`, "export SLUICE_KERNEL=1\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("script lacks %q:\n%s", want, got)
		}
	}
}

func TestNamesOfKernels(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{"": {""}, "trixie": {"trixie"}, "a,b": {"a", "b"}, "all": {"bookworm", "trixie"}} {
		if diff := cmp.Diff(want, kernels(name)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", name, diff)
		}
	}
}

// TestChooseNamed: a kernel that is named never runs on another one, whatever this
// machine's can do.
func TestChooseNamed(t *testing.T) {
	t.Parallel()
	place, why, err := choose(t.Context(), options{where: "auto", kernels: []string{"bookworm", "trixie"}})
	if err != nil || place != machine.VM || !strings.Contains(why, "bookworm and trixie") {
		t.Errorf("%s, %q, %v", place, why, err)
	}
	if _, _, err = choose(t.Context(), options{where: "host", kernels: []string{"trixie"}}); err == nil || !strings.Contains(err.Error(), "trixie") {
		t.Errorf("on this host: %v, want an error that names the kernel", err)
	}
}

// TestLinesOfSeveralGuests stay whole, and say whose they are.
func TestLinesOfSeveralGuests(t *testing.T) {
	var out strings.Builder
	var lock sync.Mutex
	a, b := &lines{out: &out, lock: &lock, prefix: "a| "}, &lines{out: &out, lock: &lock, prefix: "b| "}
	for _, w := range []struct {
		to   *lines
		text string
	}{{a, "on"}, {b, "two\nthr"}, {a, "e\n\nfo"}, {b, "ee\n"}, {a, "ur"}} {
		if n, err := w.to.Write([]byte(w.text)); n != len(w.text) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	a.flush()
	b.flush()
	if got, want := out.String(), "b| two\na| one\na| \nb| three\na| four\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
