package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// testPackage is one package with kernel tests and the binary made of it.
type testPackage struct{ path, dir, binary string }

// discover lists the packages under the patterns that have a kernel test.
func discover(ctx context.Context, patterns []string) ([]testPackage, error) {
	args := append([]string{"list", "-e", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, patterns...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var found []testPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Dir           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for _, f := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			src, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				return nil, err
			}
			if hasKernelTest(src) {
				found = append(found, testPackage{path: p.ImportPath, dir: p.Dir})
				break
			}
		}
	}
}

// hasKernelTest says whether a file declares a TestKernel function. A file that
// does not parse is the compiler's to report, so what could be read counts.
func hasKernelTest(src []byte) bool {
	f, _ := parser.ParseFile(token.NewFileSet(), "", src, parser.SkipObjectResolution)
	return f != nil && slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "TestKernel")
	})
}

// compile builds one static binary a package and notes its absolute path.
func compile(ctx context.Context, packages []testPackage, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for i := range packages {
		p := &packages[i]
		p.binary = filepath.Join(dir, strings.ReplaceAll(p.path, "/", "_")+".test")
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags", "-s -w", "-o", p.binary, p.path)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("compile the tests of %s: %w\n%s", p.path, err, out)
		}
	}
	return nil
}

// header starts the output of a package in the stream.
const header = "=== PACKAGE "

// runScript is a shell script, since shell is what host and guest both have. Each
// binary runs in its package's directory, as go test does, and in a network
// namespace of its own, so that no test sees another's table.
func runScript(packages []testPackage, o options) string {
	var s strings.Builder
	s.WriteString("export SLUICE_KERNEL=1\nstatus=0\n")
	for _, p := range packages {
		fmt.Fprintf(&s, "echo; echo %s\ncd %s && unshare -n sh -c 'ip link set lo up; exec \"$@\"' sh %s -test.v -test.run %s -test.timeout %v %s || status=1\n",
			quote(header+p.path), quote(p.dir), quote(p.binary), quote(o.pattern), o.limit, o.arguments)
	}
	return s.String() + "exit $status\n"
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
