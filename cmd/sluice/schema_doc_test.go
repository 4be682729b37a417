package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/daemon"
	"github.com/sluice-lb/sluice/internal/doctor"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/web"
)

// jsonDocument is what a verb prints with --json.
type jsonDocument struct {
	// name is that of its schema's file.
	name, verbs string
	// form is what there is of value: one, a list, or a line for each.
	form  form
	value any
	// api is where the control API has it, "" for nowhere; note is said below it.
	api, note string
	// listener: it is of http_listen, and verbs are paths there.
	listener bool
}

type form string

const (
	object form = "one object"
	list   form = "one array of objects"
	lines  form = "a line for each object (JSON Lines)"
)

var jsonDocuments = []jsonDocument{
	{"status", "sluice status", object, engine.Snapshot{}, "GET /v1/status", "With VS, `virtual_servers` and `leaving` have what that selects. `foreign` is there with --foreign. sluice top shows the same.", false},
	{"explain", "sluice explain", object, engine.Explanation{}, "GET /v1/explain", "", false},
	{"test", "sluice test", lines, engine.TrialLine{}, "POST /v1/test", "", false},
	{"events", "sluice events", lines, event.Event{}, "GET /v1/events", "The API answers with one object that has these in `events`, oldest first; beside them `start` (when the daemon was started), `last` (the number of the newest event there is) and `missed` (how many that were asked for are forgotten). docs/events.md says what each kind means.", false},
	{"drains", "sluice drains, drain, undrain and weight", list, engine.Override{}, "GET /v1/overrides, POST /v1/operate", "drains lists what is in force; the others print the orders that they made or ended, and drain --wait how they stand at its end. POST /admin/drain, undrain and weight of http_listen answer as POST /v1/operate does.", false},
	{"passive", "sluice passive", object, control.Passive{}, "GET and POST /v1/passive", "With on or off it is how it is afterwards, with --wait at its end.", false},
	{"plan", "sluice plan", object, engine.Plan{}, "GET and POST /v1/plan", "", false},
	{"reload", "sluice reload", object, engine.Reload{}, "POST /v1/reload", "", false},
	{"check", "sluice check, sluiced -t", list, diag.Finding{}, "", "An array for each file.", false},
	{"doctor", "sluice doctor", object, doctor.Report{}, "", "docs/doctor.md explains each `findings[].id`.", false},
	{"genhash", "sluice genhash, sluiced -T", object, daemon.Page{}, "", "", false},
	{"handover", "sluice handover", object, handedOver{}, "POST /v1/handover (`ended` alone)", "", false},
	{"version", "sluice version", object, control.Version{}, "", "", false},
	{"refusal", "the control API with a status other than 200", object, engine.CommandError{}, "all", "`code` may be absent: then the daemon could not, and it was not the command's fault. POST /admin/drain, undrain and weight of http_listen refuse with it, too.", false},
	{"readyz", "GET /readyz", object, web.Readiness{}, "", listenerNote, true},
	{"vs", "GET /vs/NAME, with status 200 or 503", object, web.Standing{}, "", listenerNote, true},
	{"vs-list", "GET /vs/", list, web.Standing{}, "", listenerNote, true},
	{"vs-misnamed", "GET /vs/NAME, with status 404 or 409", object, web.Misnamed{}, "", listenerNote, true},
}

const listenerNote = "With `Accept: application/json` or `?format=json`. docs/dashboard.md has the same as text."

// jsonValues are the values of texts that have no type of their own, by type and field.
var jsonValues = map[string][]string{
	"VirtualServer.Protocol": {"TCP", "UDP", "SCTP"},
	"Standing.Protocol":      {"TCP", "UDP", "SCTP"},
	"RealServer.Method":      {"NAT", "DR", "TUN"},
	"Checker.Verdict":        {"up", "down", "unknown"},
	"Checker.Last":           {"", "ok", "failed", "unable"},
	"Drift.What":             {"service missing", "service changed", "destination missing", "destination added", "destination changed"},
	"Stretch.Result":         {"ok", "failed", "unable"},
	"Fault.Stage":            {"prepare", "connect", "tls", "send", "reply", "status", "body", "script"},
	"WeightPart.What":        {"configured", "operator_weight", "operator_drain", "check", "track_file", "bound", "slow_start", "state", "shared_destination"},
	"TrialLine.Line":         {"check", "step", "result", "end"},
	"TrialLine.Stage":        {"prepare", "connect", "tls", "send", "reply", "status", "body", "script"},
	"TrialLine.Result":       {"ok", "failed", "unable"},
	"TrialLine.Verdict":      {"up", "down", "unknown"},
	"Event.Level":            {"info", "warn", "error"},
	"PlanOperation.Op":       {"add", "change", "remove"},
	"diag.Finding.Severity":  {"notice", "warning", "error", "fatal"},
	"diag.Finding.Class":     {"none", "not-found", "config", "security", "missing"},
	"Version.Schema":         {"v1"},
}

// source is what the Go files say of types.
type source struct {
	// types and fields are comments, by "package.Type" and "package.Type.Field".
	types, fields map[string]string
	// order has the fields of each type.
	order map[string][]string
	// constants are the values of a type of texts.
	constants map[string][]string
}

func readSource(t *testing.T) *source {
	t.Helper()
	s := &source{types: map[string]string{}, fields: map[string]string{}, order: map[string][]string{}, constants: map[string][]string{}}
	for pkg, dir := range map[string]string{
		"engine": "internal/engine", "event": "internal/event", "diag": "internal/config/diag", "doctor": "internal/doctor",
		"control": "internal/control", "daemon": "internal/daemon", "web": "internal/web", "main": "cmd/sluice",
	} {
		files, err := filepath.Glob("../../" + dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				if g, ok := d.(*ast.GenDecl); ok {
					s.take(pkg, g)
				}
			}
		}
	}
	return s
}

func (s *source) take(pkg string, g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			st, ok := spec.Type.(*ast.StructType)
			if !ok {
				continue
			}
			name := pkg + "." + spec.Name.Name
			s.types[name] = oneLine(g.Doc.Text() + spec.Doc.Text())
			for _, f := range st.Fields.List {
				for _, id := range f.Names {
					s.order[name] = append(s.order[name], id.Name)
					s.fields[name+"."+id.Name] = oneLine(f.Doc.Text() + f.Comment.Text())
				}
			}
		case *ast.ValueSpec:
			id, typed := spec.Type.(*ast.Ident)
			if g.Tok != token.CONST || !typed {
				continue
			}
			for _, v := range spec.Values {
				if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if text, err := strconv.Unquote(lit.Value); err == nil {
						s.constants[pkg+"."+id.Name] = append(s.constants[pkg+"."+id.Name], text)
					}
				}
			}
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// property is a field as JSON has it.
type property struct {
	name     string
	of       reflect.Type // without pointers
	elem     reflect.Type // an object below, nil for none
	kind     string       // string, integer, number, boolean, object, array, map
	absent   string       // when it is not there, "" for never
	meaning  string
	unit     string
	values   []string
	elements string // kind of an array's or map's elements
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	kindType     = reflect.TypeFor[event.Kind]()
)

func shortName(t reflect.Type) string {
	if p := filepath.Base(t.PkgPath()); p != "." && p != "sluice" {
		return p + "." + t.Name()
	}
	return "main." + t.Name()
}

// properties are the fields of an object in their order. An embedded object's stand where
// it does, but for those that are replaced.
func (s *source) properties(t reflect.Type) (all []property) {
	own := map[string]bool{}
	for f := range t.Fields() {
		own[jsonName(f)] = !f.Anonymous
	}
	names := map[string]string{}
	for _, f := range reflect.VisibleFields(t) {
		if n := jsonName(f); n != "" {
			names[f.Name] = n
		}
	}
	for f := range t.Fields() {
		if f.Anonymous {
			for _, p := range s.properties(f.Type) {
				if !own[p.name] {
					all = append(all, p)
				}
			}
			continue
		}
		if !f.IsExported() || jsonName(f) == "" {
			continue
		}
		all = append(all, s.property(t, f, names))
	}
	return all
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}

func (s *source) property(t reflect.Type, f reflect.StructField, names map[string]string) property {
	p := property{name: jsonName(f)}
	of := f.Type
	pointer := of.Kind() == reflect.Pointer
	if pointer {
		of = of.Elem()
	}
	p.of = of
	p.kind, p.elem = kindOf(of)
	if p.kind == "array" || p.kind == "map" {
		p.elements, p.elem = kindOf(of.Elem())
	}
	switch tag := f.Tag.Get("json"); {
	case !strings.Contains(tag, ",omit"):
	case p.kind == "string" && of != timeType:
		p.absent = `if ""`
	case p.kind == "integer" && !pointer:
		p.absent = "if 0"
	case p.kind == "boolean":
		p.absent = "if false"
	case p.kind == "array" || p.kind == "map":
		p.absent = "if empty"
	default:
		p.absent = "if there is none"
	}
	switch of {
	case timeType:
		p.unit = "time, RFC 3339"
	case durationType:
		p.unit = "ns"
	}
	name := shortName(t)
	p.values = s.constants[shortNameOf(of)]
	if of == kindType {
		for _, m := range event.Catalogue() {
			p.values = append(p.values, string(m.Kind))
		}
	}
	for _, key := range []string{t.Name() + "." + f.Name, name + "." + f.Name} {
		if v := jsonValues[key]; v != nil && (strings.Count(key, ".") == 2 || t.Name() != "Finding") {
			p.values = v
		}
	}
	p.meaning = s.meaning(name, f.Name, names)
	if p.meaning == "" && p.elem != nil {
		p.meaning = s.types[shortName(p.elem)]
	}
	return p
}

func shortNameOf(t reflect.Type) string {
	if t.Name() == "" || t.PkgPath() == "" {
		return ""
	}
	return shortName(t)
}

func kindOf(t reflect.Type) (kind string, elem reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.String:
		return "string", nil
	case reflect.Bool:
		return "boolean", nil
	case reflect.Slice:
		return "array", nil
	case reflect.Map:
		return "map", nil
	case reflect.Struct:
		if t == timeType {
			return "string", nil
		}
		return "object", t
	case reflect.Float64:
		return "number", nil
	}
	return "integer", nil
}

// meaning is a field's comment, or that of a field before it that names it too. Fields are
// called as JSON calls them.
func (s *source) meaning(of, field string, names map[string]string) string {
	text := s.fields[of+"."+field]
	if text == "" {
		word := regexp.MustCompile(`^[^.;]*\b` + field + `\b|\. ` + field + `\b|\b` + field + `: |[;,] ` + field + ` `)
		for _, other := range s.order[of] {
			if other == field {
				break
			}
			if comment := s.fields[of+"."+other]; word.MatchString(comment) {
				text = comment
			}
		}
	}
	if text != "" && !strings.HasSuffix(text, ".") {
		text = strings.ToUpper(text[:1]) + text[1:] + "."
	}
	for goName, name := range names {
		text = regexp.MustCompile(`(^|[^"\w])`+goName+`\b`).ReplaceAllString(text, "${1}`"+name+"`")
	}
	return text
}

// walk calls each property with its path; objects that were seen above are not entered.
func (s *source) walk(t reflect.Type, at string, enter func(path string, p property) bool) {
	for _, p := range s.properties(t) {
		path := at + p.name
		switch p.kind {
		case "array":
			path += "[]"
		case "map":
			path += "{}"
		}
		if enter(path, p) && p.elem != nil {
			s.walk(p.elem, path+".", enter)
		}
	}
}

const jsonHead = `# JSON

Generated by ` + "`go test ./cmd/sluice -run TestJSON -update`" + ` from the types and their comments; do not edit.

What verbs print with ` + "`--json`" + `, for programs. It is what the control API answers with, too:
HTTP on the control socket, whose paths begin with the version, as in ` + "`/v1/status`" + `.
What ` + "`http_listen`" + ` answers to programs as JSON stands at the end.
A JSON Schema (draft 2020-12) of each document is in [schema/v1](schema/v1).

## What is promised

The version is ` + "`v1`" + `: ` + "`sluice version --json`" + ` says it in ` + "`schema`" + `. Within it

- fields are only added: none goes, and none changes its name, its type, its unit or its meaning;
- lists of values may get longer: a program takes a value that it does not know for
  something else, and not for an error;
- a field that is absent is as if it had the value that stands under "Absent". Never absent
  are those with nothing there;
- texts for people (` + "`reason`, `summary`, `message`, `error`, `text`, `note`, `why`" + `) may be worded anew.

So a program ignores fields that it does not know. Anything else would be ` + "`v2`" + `, with paths of its
own. A schema lists what there is in its release.

Times are RFC 3339 with a fraction of seconds. Durations are whole nanoseconds, and the names
of such fields end in ` + "`_ns`" + `. Weights are IPVS's; -1 stands for "not in the table". Exit
statuses are the same with and without ` + "`--json`" + `; messages go to standard error.

` + "`sluice status --json | jq -r '.virtual_servers[] | select(.quorum_up | not) | .name'`" + ` lists
the virtual servers without quorum.

`

// page writes docs/json.md.
func (s *source) page() string {
	var b strings.Builder
	b.WriteString(jsonHead)
	known := map[reflect.Type]string{}
	for _, d := range jsonDocuments {
		t := reflect.TypeOf(d.value)
		fmt.Fprintf(&b, "## %s\n\nOf %s: %s. Schema: [%s.json](schema/v1/%s.json).", d.name, d.verbs, d.form, d.name, d.name)
		if d.listener {
			b.WriteString(" On http_listen.")
		}
		if d.api != "" {
			fmt.Fprintf(&b, " API: %s.", d.api)
		}
		b.WriteString("\n\n")
		if d.note != "" {
			b.WriteString(d.note + "\n\n")
		}
		b.WriteString("| Path | Type | Meaning | Absent |\n| --- | --- | --- | --- |\n")
		s.walk(t, "", func(path string, p property) bool {
			meaning, seen := p.meaning, false
			if p.elem != nil {
				var at string
				if at, seen = known[p.elem]; seen {
					meaning += " Its fields are those of " + at + "."
				} else {
					known[p.elem] = "`" + path + "` of " + d.name
				}
			}
			if len(p.values) > 0 && p.of != kindType {
				meaning += " Values: `" + strings.Join(p.values, "`, `") + "`."
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", path, p.typeName(), cell(meaning), p.absent)
			return !seen
		})
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func cell(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(s), "|", `\|`), "``", "`\"\"`")
}

func (p *property) typeName() string {
	name := p.kind
	switch p.kind {
	case "array":
		name = "array of " + p.elements + "s"
	case "map":
		name = "object, names to " + p.elements + "s"
	}
	if p.unit != "" {
		name += " (" + p.unit + ")"
	}
	return name
}

// paths are all fields with their types, and all values, for what must never lose one.
func (s *source) paths() []string {
	var all []string
	for _, d := range jsonDocuments {
		s.walk(reflect.TypeOf(d.value), "", func(path string, p property) bool {
			all = append(all, fmt.Sprintf("%s %s %s", d.name, path, strings.ReplaceAll(p.typeName(), " ", "_")))
			for _, v := range p.values {
				all = append(all, fmt.Sprintf("%s %s = %q", d.name, path, v))
			}
			return true
		})
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// kept compares a file with what it should be, or writes it.
func kept(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is behind (%v); run: go test ./cmd/sluice -run TestJSON -update", path, err)
	}
}
