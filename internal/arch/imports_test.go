package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// rule is one row of the import table. Names are paths within the module,
// third-party import paths, or the standard library's; a trailing /... takes in
// everything below as well.
type rule struct {
	// pkg is a path.Match pattern; the first rule that matches counts.
	pkg string
	// may lists the module's own packages that may be imported directly; nil
	// leaves that open.
	may []string
	// libs lists the third-party packages; nil leaves that open.
	libs []string
	// not is what must not be imported directly, never what must not be reached
	// at all.
	not, never []string
}

const (
	xsys      = "golang.org/x/sys/..."
	netlink   = "github.com/mdlayher/netlink/..."
	genetlink = "github.com/mdlayher/genetlink/..."
	rtnetlink = "github.com/jsimonetti/rtnetlink/v2/..."
	nftables  = "github.com/google/nftables/..."
)

var none = []string{}

// rules is the import table of the design. What a row leaves open is bounded by
// the rows of what it imports, and by everywhere below.
var rules = []rule{
	{pkg: "pkg/ipvs", may: none, libs: []string{netlink, genetlink, xsys}, not: []string{"log/..."}, never: []string{"internal/..."}},
	{pkg: "pkg/ipvs/ipvstest", may: []string{"pkg/ipvs"}, libs: []string{"github.com/google/go-cmp/..."}, never: []string{"internal/..."}},

	{pkg: "internal/config/diag", may: none, libs: none, not: []string{"os/...", "net"}},
	{pkg: "internal/config", may: []string{"internal/config/diag"}, libs: none, not: []string{"os/...", "net"}},
	// syntax may read files, but only in the resolver that is handed to it.
	{pkg: "internal/config/syntax", may: []string{"internal/config/diag"}, libs: none, not: []string{"net", "os/exec"}, never: []string{"internal/config"}},
	{pkg: "internal/config/keyword", may: []string{"internal/config", "internal/config/syntax", "internal/config/diag"}, libs: none, not: []string{"net", "os/...", "syscall"}},

	{pkg: "internal/framework", may: []string{"internal/config"}, libs: none, not: []string{"os/...", "net", "log/...", "sync/...", "context"}},

	{pkg: "internal/checker/due", may: none, libs: none},
	{pkg: "internal/checker", may: []string{"internal/config", "internal/checker/due"}, never: beyondCheckers},
	{pkg: "internal/checker/dial", may: []string{"internal/checker", "internal/config"}, libs: []string{xsys}, never: beyondCheckers},
	{pkg: "internal/checker/reactor", may: []string{"internal/checker", "internal/checker/dial", "internal/checker/due", "internal/config"}, libs: []string{xsys}, never: beyondCheckers},
	{pkg: "internal/checker/checkertest", may: []string{"internal/checker", "internal/checker/dial", "internal/config", "internal/testkit"}, never: beyondCheckers},
	{pkg: "internal/checker/misc", may: []string{"internal/checker", "internal/config", "internal/script"}, never: beyondCheckers},
	{pkg: "internal/checker/*", may: []string{"internal/checker", "internal/checker/dial", "internal/config"}, never: beyondCheckers},

	{pkg: "internal/apply", may: []string{"internal/framework", "internal/config", "pkg/ipvs", "internal/event"}, never: []string{"internal/checker/...", "internal/config/syntax", "internal/config/keyword"}},
	{pkg: "internal/event", may: none, libs: none},
	// edge decides and others write: no socket of the kernel's in it.
	{pkg: "internal/edge", may: []string{"internal/config", "internal/event", "pkg/ipvs"}, libs: none, not: []string{"net", "os/..."}},
	{pkg: "internal/host/vip", may: []string{"internal/edge", "internal/host"}, libs: []string{netlink, rtnetlink, xsys}, never: []string{"internal/engine", "internal/apply"}},
	{pkg: "internal/host/filter", may: []string{"internal/edge", "internal/config", "internal/host", "pkg/ipvs"}, libs: []string{netlink, nftables, xsys}, never: []string{"internal/engine", "internal/apply"}},
	{pkg: "internal/host/lane", may: []string{"internal/config", "internal/host"}, libs: []string{netlink, rtnetlink, nftables, xsys}, never: []string{"internal/engine", "internal/apply"}},
	{pkg: "internal/pace", may: none, libs: none},
	{pkg: "internal/journal", may: none, libs: []string{xsys}},
	{pkg: "internal/state", may: []string{"internal/event"}, libs: []string{xsys}},
	{pkg: "internal/engine", may: []string{"internal/framework", "internal/checker", "internal/apply", "internal/config", "pkg/ipvs", "pkg/ipvs/ipvstest", "internal/config/diag", "internal/state", "internal/event", "internal/pace", "internal/edge"},
		not: []string{genetlink, netlink, "os/signal"}},
	{pkg: "internal/script", may: []string{"internal/config"}, libs: []string{xsys}},
	{pkg: "internal/notify", may: []string{"internal/config", "internal/script", "internal/event"}, libs: []string{xsys}},
	{pkg: "internal/notify/mail", may: []string{"internal/config", "internal/event"}, libs: none},
	{pkg: "internal/notify/fifo", may: []string{"internal/config", "internal/script", "internal/event"}, libs: []string{xsys}},
	{pkg: "internal/metrics", may: []string{"internal/engine", "internal/config", "internal/checker", "internal/pace", "pkg/ipvs"}, libs: []string{xsys}},
	{pkg: "internal/control/top", may: []string{"internal/engine", "internal/control/render"}, libs: none, not: []string{"os/...", "net"}},
	// host is for its types: what it does, the package must not.
	{pkg: "internal/doctor", may: []string{"internal/config", "internal/host"}, libs: []string{xsys}, not: []string{"os/...", "net", "log/..."}},
	{pkg: "internal/web", may: []string{"internal/engine", "internal/event", "internal/pace"}, libs: []string{"golang.org/x/net/netutil"}},
	{pkg: "internal/control/render", may: []string{"internal/engine", "internal/doctor", "internal/config/diag", "internal/event"}, libs: none, not: []string{"os/...", "net"}},
	{pkg: "internal/control", not: []string{"internal/framework"}},
	{pkg: "internal/daemon"},
	{pkg: "internal/testkit", may: none, libs: []string{"go.uber.org/goleak/...", xsys}},

	{pkg: "cmd/sluiced", may: []string{"internal/daemon", "internal/build"}},
	// diag is a leaf, and its "did you mean" serves a mistyped verb as well.
	{pkg: "cmd/sluice", may: []string{"internal/daemon", "internal/control", "internal/control/render", "internal/control/top", "internal/engine", "internal/doctor", "internal/build", "internal/config/diag", "internal/event"}},
}

var beyondCheckers = []string{"internal/framework", "internal/apply", "internal/engine", "pkg/ipvs/..."}

// testsOnly are packages that no program contains, though their files are no tests.
var testsOnly = []string{"internal/testkit", "internal/checker/checkertest", "packaging/man"}

// violations says which rules a package breaks.
func violations(p goPackage) []string {
	var found []string
	all := slices.Concat(p.Imports, p.Deps)
	for _, name := range testsOnly {
		if slices.Contains(all, module+name) && !strings.HasPrefix(p.name(), "test/") && !slices.Contains(testsOnly, p.name()) {
			found = append(found, "imports "+name+", which is for tests only")
		}
	}
	i := slices.IndexFunc(rules, func(r rule) bool { ok, _ := path.Match(r.pkg, p.name()); return ok })
	if i < 0 {
		return found
	}
	r := rules[i]
	for _, imp := range p.Imports {
		name, own := ruleName(imp)
		switch third := !own && strings.Contains(strings.Split(imp, "/")[0], "."); {
		case own && r.may != nil && !covered(name, r.may):
			found = append(found, fmt.Sprintf("imports %s, which is not among %v", name, r.may))
		case third && r.libs != nil && !covered(name, r.libs):
			found = append(found, fmt.Sprintf("imports %s, which is not among %v", name, r.libs))
		case covered(name, r.not):
			found = append(found, fmt.Sprintf("must not import %s", name))
		}
	}
	for _, dep := range all {
		if name, _ := ruleName(dep); covered(name, r.never) {
			found = append(found, fmt.Sprintf("must not reach %s", name))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// ruleName is what rules call an import, and whether it is the module's own. The
// standard library has an internal folder too, which must not be taken for ours.
func ruleName(imp string) (name string, own bool) {
	if name, own = strings.CutPrefix(imp, module); !own && strings.HasPrefix(imp, "internal/") {
		name = "std/" + imp
	}
	return name, own
}

// covered says whether a name is in a list with /... patterns.
func covered(name string, list []string) bool {
	return slices.ContainsFunc(list, func(l string) bool {
		below, tree := strings.CutSuffix(l, "/...")
		return name == below || tree && strings.HasPrefix(name, below+"/")
	})
}
