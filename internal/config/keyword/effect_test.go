package keyword

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
)

// withoutEffect are built words that change nothing in the model, and why.
var withoutEffect = map[string]string{
	"virtual_server/hashed":              "it is always an error",
	"global_defs/include_check":          "the language layer acts on it",
	"global_defs/enable_script_security": "the examples have it already",
	blockURL + "/regex_stack":            "there is no such stack here",
	blockTLSURL + "/regex_stack":         "there is no such stack here",
	"PING_CHECK/connect_port":            "an echo has no port",
}

var compareModel = cmp.Options{
	cmp.FilterPath(func(p cmp.Path) bool {
		name := p.Last().String()
		return strings.HasSuffix(name, "Pos") || name == ".Files"
	}, cmp.Ignore()),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b config.RSKey) bool { return a == b }),
}

// TestEveryKeywordHasAnEffect adds each built word to a configuration and looks
// for a difference in the model; what acts on the model is another test's matter
// (internal/arch holds that every field is read).
func TestEveryKeywordHasAnEffect(t *testing.T) {
	x := newIndex()
	seen := map[string]bool{}
	for i := range x.rows {
		k := &x.rows[i]
		key := k.block + "/" + k.name
		seen[key] = true
		if k.status == Skipped || k.arg.kind == argAny {
			continue
		}
		t.Run(strings.TrimPrefix(key, "/"), func(t *testing.T) {
			args, needs := exampleOf(k)
			before, list := place(k.block, k.name, needs, "").load(x)
			if before == nil || len(list.Errors()) > 0 {
				t.Fatal("the configuration without it is bad already:", list.Errors())
			}
			changed := false
			for _, a := range args {
				p := place(k.block, k.name, needs, k.name+" "+a)
				after, list := p.load(x)
				if after == nil {
					t.Fatalf("%s %s: %v", k.name, a, list)
				}
				if bad := list.Errors(); len(bad) > 0 && k.name != "hashed" {
					t.Errorf("%s %s: %v", k.name, a, bad)
				}
				if k.status == NotServed && !has(list, codeNotServed, p.line) {
					t.Errorf("%s %s: nothing says that it is not served", k.name, a)
				}
				if k.status == Accepted {
					for _, d := range list {
						if int(d.Pos.Line) == p.line {
							t.Errorf("accepted in silence, but: %v", d)
						}
					}
				}
				changed = changed || cmp.Diff(before, after, compareModel) != ""
			}
			why, excused := withoutEffect[key]
			switch {
			case k.status == Built && !changed && !excused:
				t.Errorf("%s %q changes nothing", k.name, args)
			case changed && excused:
				t.Errorf("it has an effect, and is excused: %s", why)
			case changed && k.status != Built && k.name != "snmp_name":
				t.Errorf("it is %s, and changes the model", k.status)
			}
		})
	}
	for key := range withoutEffect {
		if !seen[key] {
			t.Errorf("%s is excused and no keyword", key)
		}
	}
	for key := range examples {
		if !seen[key] {
			t.Errorf("%s has an example and is no keyword", key)
		}
	}
}

func has(list diag.List, c code, line int) bool {
	for _, d := range list {
		if d.Code == c.id && int(d.Pos.Line) == line {
			return true
		}
	}
	return false
}
