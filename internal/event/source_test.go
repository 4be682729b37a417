package event

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/events.md")

const page = "../../docs/events.md"

// kindless are files whose lines are no changes: the state
// that SIGUSR1 asks for.
var kindless = []string{"internal/engine/read.go"}

// call is a line that the program may log.
type call struct {
	where, method string
	// message is a regular expression, "" if it is not written there.
	message string
	kinds   []string // names of variables
}

// variables are the kinds by the names they have in the program.
func variables(t *testing.T) map[string]Kind {
	f, err := parser.ParseFile(token.NewFileSet(), "kinds.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Kind{}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		if c, ok := v.Values[0].(*ast.CallExpr); ok && len(c.Args) == 5 {
			kind, err := strconv.Unquote(c.Args[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			found[v.Names[0].Name] = Kind(kind)
		}
		return true
	})
	if len(found) != len(Catalogue()) {
		t.Fatalf("%d kinds have a name, the catalogue has %d", len(found), len(Catalogue()))
	}
	return found
}

// source returns what the program logs, and which names of this package it uses.
func source(t *testing.T) (calls []call, used map[string]bool) {
	used = map[string]bool{}
	for _, top := range []string{"../../internal", "../../cmd"} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "../../internal/event/") {
				return err
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && named(s.X) == "event" {
					used[s.Sel.Name] = true
				}
				c, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				s, ok := c.Fun.(*ast.SelectorExpr)
				if !ok || !slices.Contains([]string{"Info", "Warn", "Error"}, s.Sel.Name) || !strings.EqualFold(named(s.X), "log") || len(c.Args) == 0 {
					return true
				}
				found := call{where: fmt.Sprintf("%s:%d", strings.TrimPrefix(path, "../../"), set.Position(c.Pos()).Line), method: s.Sel.Name, message: message(c.Args[0])}
				for _, a := range c.Args[1:] {
					ast.Inspect(a, func(n ast.Node) bool {
						if s, ok := n.(*ast.SelectorExpr); ok && named(s.X) == "event" && s.Sel.Name != "Key" {
							found.kinds = append(found.kinds, s.Sel.Name)
						}
						// A variable that holds one.
						if i, ok := n.(*ast.Ident); ok && i.Name == "ends" {
							found.kinds = append(found.kinds, "OperatorUndrain", "OperatorUnweight")
						}
						return true
					})
				}
				calls = append(calls, found)
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return calls, used
}

// named is the last name of an expression.
func named(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

var verbs = regexp.MustCompile(`%[a-z]`)

// message is what a call says, where it is written in the call.
func message(e ast.Expr) string {
	if c, ok := e.(*ast.CallExpr); ok && len(c.Args) > 0 {
		e = c.Args[0]
	}
	l, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	text, err := strconv.Unquote(l.Value)
	if err != nil {
		return ""
	}
	return "^" + verbs.ReplaceAllString(regexp.QuoteMeta(text), ".+") + "( |$)"
}

// TestEveryChangeHasItsKind: each line that the daemon logs is an event of the
// catalogue, of the catalogue's level, each kind is in use, and the examples are what
// the daemon says.
func TestEveryChangeHasItsKind(t *testing.T) {
	byName := variables(t)
	calls, used := source(t)
	if len(calls) < 100 {
		t.Errorf("only %d calls were found", len(calls))
	}
	levels := map[string]slog.Level{"Info": slog.LevelInfo, "Warn": slog.LevelWarn, "Error": slog.LevelError}
	messages := map[Kind][]string{}
	for _, c := range calls {
		if len(c.kinds) == 0 && !slices.ContainsFunc(kindless, func(f string) bool { return strings.HasPrefix(c.where, f) }) {
			t.Errorf("%s: %s without a kind of event", c.where, c.method)
		}
		for _, name := range c.kinds {
			kind, ok := byName[name]
			if !ok {
				t.Errorf("%s: event.%s is not in the catalogue", c.where, name)
				continue
			}
			m := catalogue[known[kind]]
			if m.Level != levels[c.method] {
				t.Errorf("%s: %s of an event %s, which is of level %v", c.where, c.method, kind, m.Level)
			}
			messages[kind] = append(messages[kind], c.message)
		}
	}
	for name, kind := range byName {
		if !used[name] && kind != Note {
			t.Errorf("event.%s (%s) is never used", name, kind)
		}
	}
	for _, m := range Catalogue() {
		said := slices.ContainsFunc(messages[m.Kind], func(text string) bool {
			return text == "" || regexp.MustCompile(text).MatchString(m.Example)
		})
		if !said && len(messages[m.Kind]) > 0 {
			t.Errorf("nobody says %q, the example of %s", m.Example, m.Kind)
		}
	}
}

func TestTheCatalogueIsWellFormed(t *testing.T) {
	seen := map[Kind]bool{}
	for _, m := range Catalogue() {
		switch {
		case seen[m.Kind] || !m.Kind.Known():
			t.Errorf("%s is there twice, or not", m.Kind)
		case !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(string(m.Kind)):
			t.Errorf("%q is no name of a kind", m.Kind)
		case !strings.HasSuffix(m.Meaning, ".") || strings.Contains(m.Meaning+m.Example, "|") || m.Example == "":
			t.Errorf("%s means %q, for example %q", m.Kind, m.Meaning, m.Example)
		}
		seen[m.Kind] = true
	}
	if Kind("server_upp").Known() {
		t.Error("a kind is known that there is not")
	}
}

const prose = `# Events and the log

Generated by ` + "`go test ./internal/event -update`" + ` from the catalogue of events; do not edit.

What changes is a line in the log and an event; what does not change is neither. The
daemon remembers the last 2,048 events:

` + "```text" + `
sluice events                         the newest 20
sluice events -f                      and what happens from now on, over restarts too
sluice events --since 10m             of the last ten minutes
sluice events --vs 192.0.2.10 --kind server_down,quorum_lost
sluice events --json                  an object for each event
curl --unix-socket /run/sluice/sluiced.sock 'http://sluice/v1/events?since=17&limit=100'
` + "```" + `

## Levels

| Level | Meaning |
|---|---|
| debug | What one check or one turn did. |
| info | A change for the better, or one that was asked for. |
| warn | A change for the worse that the pool bears, or a setting without effect. |
| error | Something that was promised does not hold, and somebody has to act. |

` + "`--log-level`" + ` says from which level on the log is told; events are remembered from info on.

## Repeats

Of one thing that changes all the time (a real server that goes up and down, the same
script that fails) ten lines a minute pass. Then it is one line a minute: the newest, with
` + "`repeated=37`" + ` for how many it stands. What somebody asked for (reloads, operators' orders, the start and the
stop) is never held back, and events have all of them.

## In the journal

Where systemd connected the log to its journal, records have fields: ` + "`SLUICE_EVENT`" + ` (the
kind), ` + "`SLUICE_VIRTUAL_SERVER`, `SLUICE_REAL_SERVER`" + `, and each other attribute as
` + "`SLUICE_`" + ` and its name. The message is the same line as elsewhere.

` + "```text" + `
journalctl -u sluiced SLUICE_EVENT=quorum_lost
journalctl -u sluiced SLUICE_REAL_SERVER='[10.0.0.11]:tcp:80' -o json
` + "```" + `

With ` + "`--log-format json`" + ` the kind is the member ` + "`event`" + `; text leaves it out.

## Kinds

| Kind | Level | Meaning | For example |
|---|---|---|---|
`

func TestThePageIsRight(t *testing.T) {
	var b strings.Builder
	b.WriteString(prose)
	for _, m := range Catalogue() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` |\n", m.Kind, levelName(m.Level), m.Meaning, m.Example)
	}
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update rewrites):\n%s", page, diff)
	}
}
