// Package arch holds no code, only tests of the repository itself: which
// package may import which, what pure packages may not do, how long a file may
// be, and whether the configurations that we show to operators load.
package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	module   = "github.com/sluice-lb/sluice/"
	maxLines = 600
)

// root is the repository, seen from this package's folder.
const root = "../.."

// goPackage is what go list says of a package's production code.
type goPackage struct {
	ImportPath, Dir string
	Imports         []string // direct
	Deps            []string // with what those import, and so on
	GoFiles         []string
}

// name is the path within the module.
func (p goPackage) name() string { return strings.TrimPrefix(p.ImportPath, module) }

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Imports,Deps,GoFiles", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
}

func TestImports(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	if len(packages) < 5 {
		t.Fatalf("go list found %d packages only", len(packages))
	}
	for _, p := range packages {
		for _, v := range violations(p) {
			t.Errorf("%s: %s", p.name(), v)
		}
	}
}

// goFiles calls fn with each .go file that is not generated.
func goFiles(t *testing.T, fn func(path string, src []byte, test bool)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && (strings.HasPrefix(e.Name(), ".") || e.Name() == "bin" || e.Name() == "testdata"):
			return filepath.SkipDir
		case e.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		src, err := os.ReadFile(path)
		if err == nil && !generated(src) {
			fn(path, src, strings.HasSuffix(path, "_test.go"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var generatedLine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func generated(src []byte) bool { return generatedLine.Match(src) }

func TestNoProductionFileIsTooLong(t *testing.T) {
	t.Parallel()
	goFiles(t, func(path string, src []byte, test bool) {
		if n := bytes.Count(src, []byte("\n")); !test && n > maxLines {
			t.Errorf("%s has %d lines, %d are the most: which second thing does it do?", path, n, maxLines)
		}
	})
}

// In a bubble of testing/synctest time is virtual and Sleep the way to let it
// pass; anywhere else a sleep is a guess.
func TestNoTestSleeps(t *testing.T) {
	t.Parallel()
	goFiles(t, func(path string, src []byte, test bool) {
		if !test {
			return
		}
		for _, pos := range sleeps(t, path, src) {
			t.Errorf("%s: time.Sleep in a test: wait for an event, or use testing/synctest", pos)
		}
	})
}

func sleeps(t *testing.T, path string, src []byte) []token.Position {
	t.Helper()
	set, f := parse(t, path, src)
	bubbles := slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
	var found []token.Position
	look := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			// What is no test itself is called within a bubble, if its file has any.
			return !bubbles || strings.HasPrefix(n.Name.Name, "Test")
		case *ast.CallExpr:
			if fun, ok := n.Fun.(*ast.SelectorExpr); ok && isPackageName(fun.X, "synctest") && fun.Sel.Name == "Test" {
				return false
			}
		case *ast.SelectorExpr:
			if isPackageName(n.X, "time") && n.Sel.Name == "Sleep" {
				found = append(found, set.Position(n.Pos()))
			}
		}
		return true
	}
	ast.Inspect(f, look)
	return found
}

func parse(t *testing.T, path string, src []byte) (*token.FileSet, *ast.File) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return set, f
}

func isPackageName(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

// clockless packages get the time as an argument; the framework besides has no
// concurrency of its own.
var (
	clockless = []string{"internal/config", "internal/config/diag", "internal/config/syntax", "internal/config/keyword", "internal/framework", "internal/doctor"}
	serial    = []string{"internal/framework"}
)

func TestPurePackages(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		for _, file := range p.GoFiles {
			path := filepath.Join(p.Dir, file)
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			set, f := parse(t, path, src)
			if slices.Contains(clockless, p.name()) {
				report(t, set, clockUses(f), "reads the clock")
			}
			if slices.Contains(serial, p.name()) {
				report(t, set, concurrency(f), "is concurrent")
			}
		}
	}
}

func report(t *testing.T, set *token.FileSet, nodes []ast.Node, what string) {
	t.Helper()
	for _, n := range nodes {
		t.Errorf("%s: %s, in a package that must not", set.Position(n.Pos()), what)
	}
}

var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func clockUses(f *ast.File) []ast.Node {
	return collect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		return ok && isPackageName(s.X, "time") && slices.Contains(clock, s.Sel.Name)
	})
}

func concurrency(f *ast.File) []ast.Node {
	return collect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
			return true
		case *ast.UnaryExpr:
			return n.Op == token.ARROW
		}
		return false
	})
}

func collect(f *ast.File, want func(ast.Node) bool) []ast.Node {
	var nodes []ast.Node
	ast.Inspect(f, func(n ast.Node) bool {
		if n != nil && want(n) {
			nodes = append(nodes, n)
		}
		return true
	})
	return nodes
}

// The checks above must be able to fail.

func TestSleepIsFound(t *testing.T) {
	t.Parallel()
	const body = "func f() { time.Sleep(1); defer time.Sleep(2) }\n"
	if got := sleeps(t, "x_test.go", []byte("package x\nimport \"time\"\n"+body)); len(got) != 2 {
		t.Errorf("found %v, want two", got)
	}
	if got := sleeps(t, "x_test.go", []byte("package x\nimport (\"time\"; \"testing/synctest\")\n"+body)); len(got) != 0 {
		t.Errorf("found %v in virtual time", got)
	}
	const tests = "package x\nimport (\"time\"; \"testing/synctest\")\nfunc TestA() { synctest.Test(t, func() { time.Sleep(1) }) }\nfunc TestB() { synctest.Test(t, f); time.Sleep(2) }\n"
	if got := sleeps(t, "x_test.go", []byte(tests)); len(got) != 1 || got[0].Line != 4 {
		t.Errorf("found %v, want the one outside of its file's bubbles", got)
	}
	if got := sleeps(t, "x_test.go", []byte("package x\n// time.Sleep(1)\nvar s = \"time.Sleep(1)\"\n")); len(got) != 0 {
		t.Errorf("found %v in text", got)
	}
}

func TestImpurityIsFound(t *testing.T) {
	t.Parallel()
	const src = `package x
import "time"
func f(c chan int) { go f(c); c <- 1; <-c; select {}; _ = time.Now(); time.AfterFunc(1, nil); _ = time.Second }
`
	_, f := parse(t, "x.go", []byte(src))
	if got := len(clockUses(f)); got != 2 {
		t.Errorf("%d uses of the clock found, want 2", got)
	}
	if got := len(concurrency(f)); got != 5 {
		t.Errorf("%d concurrent things found, want 5", got)
	}
}

func TestGeneratedIsFound(t *testing.T) {
	t.Parallel()
	if !generated([]byte("// Code generated by x. DO NOT EDIT.\n\npackage x\n")) {
		t.Error("a generated file is not seen as one")
	}
	if generated([]byte("package x\n// not: Code generated by x. DO NOT EDIT.\n")) {
		t.Error("a file that only mentions it is seen as generated")
	}
}

func TestViolations(t *testing.T) {
	t.Parallel()
	m := func(names ...string) []string {
		for i, n := range names {
			if strings.HasPrefix(n, "./") {
				names[i] = module + n[2:]
			}
		}
		return names
	}
	for _, tt := range []struct {
		pkg     string
		imports []string
		deps    []string
		want    string // a part of the one violation; "" for none
	}{
		{pkg: "pkg/ipvs", imports: m("fmt", "github.com/mdlayher/genetlink", "golang.org/x/sys/unix")},
		{pkg: "pkg/ipvs", imports: m("fmt"), deps: m("internal/abi")},
		{pkg: "pkg/ipvs", imports: m("./internal/config"), deps: m("./internal/config"), want: "internal/config"},
		{pkg: "pkg/ipvs", imports: m("log/slog"), want: "log/slog"},
		{pkg: "pkg/ipvs", imports: m("github.com/spf13/pflag"), want: "github.com/spf13/pflag"},
		{pkg: "pkg/ipvs/ipvstest", imports: m("./pkg/ipvs", "testing")},
		{pkg: "pkg/ipvs/ipvstest", imports: m("github.com/mdlayher/genetlink"), want: "genetlink"},
		{pkg: "internal/config", imports: m("./internal/config/diag", "net/netip", "time")},
		{pkg: "internal/config", imports: m("net"), want: "net"},
		{pkg: "internal/config", imports: m("os"), want: "os"},
		{pkg: "internal/config/diag", imports: m("./internal/config"), deps: m("./internal/config"), want: "internal/config"},
		{pkg: "internal/config/syntax", imports: m("./internal/config"), deps: m("./internal/config"), want: "internal/config"},
		{pkg: "internal/config/keyword", imports: m("net"), want: "net"},
		{pkg: "internal/framework", imports: m("fmt", "./internal/config")},
		{pkg: "internal/framework", imports: m("log/slog"), want: "log/slog"},
		{pkg: "internal/framework", imports: m("./pkg/ipvs"), deps: m("./pkg/ipvs"), want: "pkg/ipvs"},
		{pkg: "internal/checker", imports: m("./internal/config"), deps: m("./internal/framework"), want: "internal/framework"},
		{pkg: "internal/checker/http", imports: m("./internal/checker", "./internal/checker/dial", "github.com/dlclark/regexp2/v2")},
		{pkg: "internal/checker/http", imports: m("./internal/checker/tcp"), deps: m("./internal/checker/tcp"), want: "internal/checker/tcp"},
		{pkg: "internal/checker/newone", imports: m("./internal/engine"), want: "internal/engine"},
		{pkg: "internal/apply", imports: m("./internal/framework", "./internal/config", "./pkg/ipvs")},
		{pkg: "internal/apply", deps: m("./internal/config/syntax"), want: "internal/config/syntax"},
		{pkg: "internal/apply", deps: m("./internal/checker/tcp"), want: "internal/checker/tcp"},
		{pkg: "internal/engine", imports: m("os/signal"), want: "os/signal"},
		{pkg: "internal/engine", imports: m("github.com/mdlayher/genetlink"), want: "genetlink"},
		{pkg: "internal/control", imports: m("./internal/engine"), deps: m("./internal/engine", "./internal/framework")},
		{pkg: "internal/control", imports: m("./internal/framework"), want: "internal/framework"},
		{pkg: "internal/daemon", imports: m("./internal/engine", "os/signal", "github.com/mdlayher/genetlink")},
		{pkg: "cmd/sluiced", imports: m("./internal/daemon")},
		{pkg: "cmd/sluiced", imports: m("./internal/engine"), want: "internal/engine"},
		{pkg: "internal/state", imports: m("./internal/testkit"), want: "internal/testkit"},
		{pkg: "internal/testkit", imports: m("./internal/config"), want: "internal/config"},
		{pkg: "test/demo", imports: m("./internal/testkit")},
		{pkg: "internal/engine", imports: m("./internal/checker/checkertest"), want: "internal/checker/checkertest"},
	} {
		got := violations(goPackage{ImportPath: module + tt.pkg, Imports: tt.imports, Deps: tt.deps})
		text := fmt.Sprint(got)
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) == 0 || !strings.Contains(text, tt.want)) {
			t.Errorf("%s with imports %v, deps %v: violations %s, want %q", tt.pkg, tt.imports, tt.deps, text, tt.want)
		}
	}
}
