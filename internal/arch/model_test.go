package arch

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// unused are the fields of the configuration's model that nothing outside of
// internal/config reads, each with the reason why that is right.
var unused = map[string]string{
	"VirtualServer.SNMPName":     "there is no SNMP agent; the word is accepted in silence",
	"TrackFile.Weight":           "inherited by each TrackFileUse",
	"TrackFile.Reverse":          "inherited by each TrackFileUse",
	"VirtualServer.VirtualHost":  "inherited by HTTP.VirtualHost and SNIVirtualHost",
	"HTTP.FastRecovery":          "it decides Rise, which is read",
	"Global.DrainTimeout":        "inherited by each VirtualServer",
	"Global.UDPDrainTimeout":     "inherited by each VirtualServer",
	"VirtualServer.VIPAddresses": "Addresses has them",
	"VSKey.Family":               "keys are compared whole",
	"SyncDaemon.Instance":        "whether it is set decides State, which is read",
	"RealServer.Handed":          "its fields say",
	"Handed.Alpha":               "inherited by each Checker",
	"Handed.VirtualHost":         "inherited by HTTP.VirtualHost",
	"Handed.SNMPName":            "there is no SNMP agent; the word is accepted in silence",
}

// TestEveryFieldOfTheModelIsRead: a keyword that fills a field which nobody reads
// parses and does nothing.
func TestEveryFieldOfTheModelIsRead(t *testing.T) {
	t.Parallel()
	model := module + "internal/config"
	pkgs, err := packages.Load(&packages.Config{
		Dir:  root,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps,
	}, "./internal/...")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[types.Object]string{}
	for _, p := range pkgs {
		if len(p.Errors) > 0 {
			t.Fatalf("%s: %v", p.PkgPath, p.Errors[0])
		}
		if p.PkgPath == model {
			fields = modelFields(p.Types)
		}
	}
	if len(fields) < 100 {
		t.Fatalf("the model has %d fields only", len(fields))
	}
	read := map[string]bool{}
	for _, p := range pkgs {
		if strings.HasPrefix(p.PkgPath, model) {
			continue
		}
		for _, f := range p.Syntax {
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if sel := p.TypesInfo.Selections[s]; sel != nil {
						markPath(sel, fields, read)
					}
				}
				return true
			})
		}
	}
	for _, name := range fields {
		_, excused := unused[name]
		switch {
		case !read[name] && !excused && !strings.HasSuffix(name, ".Pos"):
			t.Errorf("nothing reads config.%s: what does its keyword do?", name)
		case read[name] && excused:
			t.Errorf("config.%s is read, and excused", name)
		}
	}
	var names []string
	for _, name := range fields {
		names = append(names, name)
	}
	for name := range unused {
		if !slices.Contains(names, name) {
			t.Errorf("config.%s is excused and does not exist", name)
		}
	}
}

// modelFields are the fields of all structs, those in anonymous structs too.
func modelFields(p *types.Package) map[types.Object]string {
	fields := map[types.Object]string{}
	var walk func(name string, t types.Type)
	walk = func(name string, t types.Type) {
		s, ok := t.Underlying().(*types.Struct)
		if !ok {
			return
		}
		for f := range s.Fields() {
			if f.Exported() && !f.Embedded() {
				fields[f] = fmt.Sprintf("%s.%s", name, f.Name())
				if _, anonymous := f.Type().(*types.Struct); anonymous {
					walk(fields[f], f.Type())
				}
			}
		}
	}
	for _, name := range p.Scope().Names() {
		if tn, ok := p.Scope().Lookup(name).(*types.TypeName); ok && tn.Exported() {
			walk(name, tn.Type())
		}
	}
	return fields
}

// markPath marks the selected field.
func markPath(sel *types.Selection, fields map[types.Object]string, read map[string]bool) {
	if name, ok := fields[sel.Obj()]; ok {
		read[name] = true
	}
}
