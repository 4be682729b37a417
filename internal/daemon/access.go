package daemon

import (
	"fmt"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/event"
)

// accessOf finds the groups that may use the control socket. One that does not exist
// is nobody: it opens nothing.
func accessOf(g *config.Global) (a control.Access, found diag.List) {
	for _, of := range []struct {
		keyword string
		named   config.Group
		group   **control.Group
	}{{"control_group", g.ControlGroup, &a.Write}, {"control_read_group", g.ControlReadGroup, &a.Read}} {
		if of.named.Name == "" {
			continue
		}
		group, err := control.LookupGroup(of.named.Name)
		if err != nil {
			found = append(found, diag.Diagnostic{
				Severity: diag.Warning, Class: diag.ClassNone, Code: "W194", Pos: of.named.Pos, Width: len(of.named.Name),
				Message: fmt.Sprintf("%s: %v", of.keyword, err), Hint: "nobody gets this right until there is one and the file is read again; make it with groupadd",
			})
			continue
		}
		*of.group = group
	}
	return a, found
}

// accessFindings are what is wrong with the groups of a configuration.
func accessFindings(cfg *config.Config) diag.List {
	if cfg == nil {
		return nil
	}
	_, found := accessOf(&cfg.Global)
	return found
}

// admit has the control socket heed the configuration's groups.
func (d *daemon) admit(cfg *config.Config) {
	if d.control == nil {
		return
	}
	a, _ := accessOf(&cfg.Global)
	if err := d.control.Restrict(a); err != nil {
		d.log.Error("The groups for the control socket are not in force; restart to mend it", event.Key, event.PartFailed, "err", err)
	}
}
