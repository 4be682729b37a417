package keyword_test

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/keyword"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

var update = flag.Bool("update", false, "rewrite the golden files and docs/configuration.md")

const conf = "../../../testdata/conf"

// options reads real files and is the same on every machine.
func options() keyword.Options {
	return keyword.Options{Options: syntax.Options{Resolver: syntax.OS{}, ConfigID: "test"}}
}

// load reads a text that the test wrote.
func load(t *testing.T, text string) (*config.Config, diag.List) {
	t.Helper()
	return keyword.LoadString("test.conf", text, keyword.Options{})
}

// codes lists the codes of findings in order.
func codes(list diag.List) string {
	var s []string
	for _, d := range list {
		s = append(s, d.Code)
	}
	return strings.Join(s, " ")
}

// golden compares with a file, or rewrites it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update rewrites):\n%s", name, diff)
	}
}

// report is what a golden file holds: the findings as an operator sees them,
// the exit status, and the effective configuration.
func report(t *testing.T, cfg *config.Config, list diag.List) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := list.WriteText(&b, diag.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "=== status %d ===\n", list.ExitCode())
	if cfg == nil {
		b.WriteString("no configuration\n")
	} else if err := config.Print(&b, cfg); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestGolden(t *testing.T) {
	for _, kind := range []string{"ok", "bad"} {
		files, err := filepath.Glob(filepath.Join(conf, kind, "*.conf"))
		if err != nil || len(files) == 0 {
			t.Fatal("no files", err)
		}
		for _, file := range files {
			t.Run(kind+"/"+strings.TrimSuffix(filepath.Base(file), ".conf"), func(t *testing.T) {
				t.Chdir(filepath.Dir(file))
				file := filepath.Base(file)
				cfg, list := keyword.Load(file, options())
				golden(t, strings.TrimSuffix(file, ".conf")+".txt", report(t, cfg, list))
				if kind == "ok" && len(list.Errors()) > 0 {
					t.Errorf("findings in a good file: %s", codes(list.Errors()))
				}
				if kind == "bad" && list.Count(diag.Notice) == len(list) {
					t.Error("nothing found in a bad file")
				}
				if cfg == nil {
					return
				}
				if err := config.Validate(cfg); err != nil {
					t.Error(err)
				}
				again(t, cfg)
			})
		}
	}
}

// again prints a configuration, reads it back and compares.
func again(t interface {
	Helper()
	Errorf(string, ...any)
	Fatal(...any)
}, cfg *config.Config) {
	t.Helper()
	var b bytes.Buffer
	if err := config.Print(&b, cfg); err != nil {
		t.Fatal(err)
	}
	back, list := keyword.LoadString("printed", b.String(), keyword.Options{})
	if back == nil || len(list.Errors()) > 0 {
		t.Errorf("the printed configuration has findings:\n%v\n%s", list.Errors(), b.String())
		return
	}
	if diff := cmp.Diff(cfg, back, ignorePositions); diff != "" {
		t.Errorf("printed and read again (-first +again):\n%s\n%s", diff, b.String())
	}
}

var ignorePositions = cmp.Options{
	cmp.FilterPath(func(p cmp.Path) bool {
		name := p.Last().String()
		return strings.HasSuffix(name, "Pos") || name == ".Files"
	}, cmp.Ignore()),
	cmp.Comparer(func(a, b config.VSKey) bool { return a == b }),
	cmp.Comparer(func(a, b config.RSKey) bool { return a == b }),
	cmp.Comparer(func(a, b config.Entry) bool { return a == b }),
	cmp.Comparer(sameConnection),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
}

// sameConnection looks into Via, which each configuration has for itself.
func sameConnection(a, b config.Connection) bool {
	var v, w config.Via
	if (a.Via == nil) != (b.Via == nil) {
		return false
	}
	if a.Via != nil {
		v, w = *a.Via, *b.Via
	}
	a.Via, b.Via = nil, nil
	return a == b && v == w
}

// TestDocumentationIsCurrent holds docs/configuration.md to the table.
func TestDocumentationIsCurrent(t *testing.T) {
	var b bytes.Buffer
	if err := keyword.Doc(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "../../../docs/configuration.md", b.Bytes())
}
