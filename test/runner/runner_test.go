package runner

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, want string }{
		{"-run ^a -quick", ""},
		{"-run (", "-run: error parsing regexp"},
		{"-quick drain", `unexpected argument "drain"`},
	} {
		var o Options
		f := flag.NewFlagSet("", flag.ContinueOnError)
		o.Flags(f, Program{Name: "x", Parallel: 3})
		if err := f.Parse(strings.Fields(tt.line)); err != nil {
			t.Fatal(err)
		}
		err := o.check(f.Args())
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.line, err, tt.want)
		}
		if err == nil && (!o.Run.MatchString("ab") || o.Run.MatchString("ba") || !o.Quick || o.Parallel != 3 || o.Artifacts != "bin/x") {
			t.Errorf("%s: %+v", tt.line, o)
		}
	}
}

// TestSave: what an earlier run left is not taken for this one's.
func TestSave(t *testing.T) {
	t.Parallel()
	o := Options{Artifacts: t.TempDir() + "/logs"}
	for _, name := range []string{"earlier", "now"} {
		if err := o.Clear(); err != nil {
			t.Fatal(err)
		}
		if err := o.Save(name, name); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(o.Artifacts); err != nil || len(left) != 1 || left[0].Name() != "now" {
		t.Errorf("%v, %v", left, err)
	}
}

func TestKeywords(t *testing.T) {
	t.Parallel()
	got := Keywords("| keyword | a |\n| `one` | `N` |  | yes | x |\n| `two` |  |  | not yet | x |\n| `three` | `a \\| b` | 60 | extension | x |\n")
	if strings.Join(got, " ") != "one three" {
		t.Errorf("got %v", got)
	}
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	if _, err := Prepare(t.Context(), []string{"no_such_module"}, nil); err == nil || !strings.Contains(err.Error(), "modprobe no_such_module") {
		t.Errorf("without one that is needed: %v", err)
	}
	if kernel, err := Prepare(t.Context(), nil, []string{"no_such_module"}); err != nil || kernel == "" || kernel != strings.TrimSpace(kernel) {
		t.Errorf("without one that is wanted: %q, %v", kernel, err)
	}
}
