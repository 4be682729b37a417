package diag

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPosString(t *testing.T) {
	for _, tt := range []struct {
		pos  Pos
		want string
	}{
		{Pos{}, "-"},
		{At("a.conf", 0, 0), "a.conf"},
		{At("a.conf", 3, 0), "a.conf:3"},
		{At("a.conf", 3, 7), "a.conf:3:7"},
	} {
		if got := tt.pos.String(); got != tt.want {
			t.Errorf("%#v: got %q, want %q", tt.pos, got, tt.want)
		}
	}
}

func TestDiagnosticString(t *testing.T) {
	for _, tt := range []struct {
		d    Diagnostic
		want string
	}{
		{Diagnostic{Severity: Error, Code: "E101", Pos: At("a", 1, 2), Message: `unknown keyword "x"`}, `a:1:2: error: unknown keyword "x" [E101]`},
		{Diagnostic{Severity: Fatal, Message: "no file"}, "fatal: no file"},
		{Diagnostic{Severity: Notice, Message: "a\x1b[31m\nb"}, "notice: a\uFFFD[31m b"},
		{Diagnostic{Severity: Severity(9), Message: "m"}, "unknown: m"},
	} {
		if got := tt.d.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestExitCode(t *testing.T) {
	of := func(classes ...Class) List {
		var l List
		for _, c := range classes {
			l = append(l, Diagnostic{Class: c})
		}
		return l
	}
	for name, tt := range map[string]struct {
		list List
		want int
	}{
		"nothing":           {nil, 0},
		"silent":            {of(ClassNone, ClassNone), 0},
		"not found":         {of(ClassNone, ClassNotFound), 4},
		"config outranks":   {of(ClassConfig, ClassNotFound), 5},
		"security outranks": {of(ClassConfig, ClassSecurity, ClassNotFound), 6},
		"missing outranks":  {of(ClassSecurity, ClassMissing, ClassConfig), 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.list.ExitCode(); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestCountsAndErrors(t *testing.T) {
	l := List{{Severity: Warning, Code: "W"}, {Severity: Error, Code: "E1"}, {Severity: Notice}, {Severity: Error, Code: "E2"}}
	if got := [4]int{l.Count(Notice), l.Count(Warning), l.Count(Error), l.Count(Fatal)}; got != [4]int{1, 1, 2, 0} {
		t.Errorf("counts: got %v", got)
	}
	if l.HasFatal() {
		t.Error("fatal without a fatal finding")
	}
	l = append(l, Diagnostic{Severity: Fatal, Code: "F"})
	if !l.HasFatal() {
		t.Error("the fatal finding is not seen")
	}
	var codes []string
	for _, d := range l.Errors() {
		codes = append(codes, d.Code)
	}
	if diff := cmp.Diff([]string{"E1", "E2", "F"}, codes); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestKey(t *testing.T) {
	base := Diagnostic{Code: "E1", Message: "m", Source: "  weight x", Pos: At("a", 4, 2), Notes: []string{"line 4"}}
	moved := base
	moved.Pos, moved.Source, moved.Notes = At("b", 9, 1), "\tweight x ", nil
	if base.Key() != moved.Key() {
		t.Error("a finding that moved counts as another one")
	}
	for name, change := range map[string]func(*Diagnostic){
		"code":    func(d *Diagnostic) { d.Code = "E2" },
		"message": func(d *Diagnostic) { d.Message = "n" },
		"source":  func(d *Diagnostic) { d.Source = "weight y" },
	} {
		other := base
		change(&other)
		if base.Key() == other.Key() {
			t.Errorf("another %s counts as the same finding", name)
		}
	}
}

func TestSort(t *testing.T) {
	l := List{
		{Pos: At("", 0, 0), Code: "nowhere"},
		{Pos: At("b", 1, 1), Code: "b1"},
		{Pos: At("a", 2, 5), Code: "a2-first"},
		{Pos: At("a", 2, 5), Code: "a2-second"},
		{Pos: At("a", 2, 1), Code: "a2-left"},
		{Pos: At("c", 1, 1), Code: "c1"},
		{Pos: At("a", 1, 9), Code: "a1"},
	}
	order := func() (codes []string) {
		for _, d := range l {
			codes = append(codes, d.Code)
		}
		return codes
	}
	l.Sort("a", "b")
	if diff := cmp.Diff([]string{"a1", "a2-left", "a2-first", "a2-second", "b1", "c1", "nowhere"}, order()); diff != "" {
		t.Errorf("files in the order opened (-want +got):\n%s", diff)
	}
	l.Sort("c")
	if diff := cmp.Diff([]string{"c1", "a1", "a2-left", "a2-first", "a2-second", "b1", "nowhere"}, order()); diff != "" {
		t.Errorf("one file named (-want +got):\n%s", diff)
	}
}

func TestSortKeepsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l List
		for i := range rapid.IntRange(0, 30).Draw(t, "n") {
			l = append(l, Diagnostic{Width: i, Pos: At(
				rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "file"),
				rapid.IntRange(0, 3).Draw(t, "line"), rapid.IntRange(0, 3).Draw(t, "col"))})
		}
		sorted := slices.Clone(l)
		sorted.Sort("b", "a")
		for i := 1; i < len(sorted); i++ {
			a, b := sorted[i-1], sorted[i]
			if a.Pos == b.Pos && a.Width > b.Width {
				t.Fatalf("not stable: %v before %v", a, b)
			}
			if a.Pos.SameFile(b.Pos) && (a.Pos.Line > b.Pos.Line || a.Pos.Line == b.Pos.Line && a.Pos.Col > b.Pos.Col) {
				t.Fatalf("out of order: %v before %v", a.Pos, b.Pos)
			}
		}
		slices.SortFunc(sorted, func(a, b Diagnostic) int { return a.Width - b.Width })
		if diff := cmp.Diff(l, sorted); diff != "" {
			t.Fatalf("findings were lost (-want +got):\n%s", diff)
		}
	})
}
