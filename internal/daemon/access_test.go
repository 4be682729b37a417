package daemon

import (
	"os"
	"strconv"
	"testing"

	"github.com/sluice-lb/sluice/internal/control"
)

// TestTheControlGroupsAreInForce: from the start, and by a reload.
func TestTheControlGroupsAreInForce(t *testing.T) {
	port, _ := backend(t)
	groups := func(words string) string { return "global_defs {\n" + words + "}\n" + confText(port) }
	p := launch(t, groups(" #sluice control_group 61001\n"), nil)
	p.out.await(t, 0, "Ready")
	mode := func(want os.FileMode) {
		t.Helper()
		fi, err := os.Stat(p.socket)
		if err != nil || fi.Mode().Perm() != want {
			t.Errorf("mode %v, %v; want %v", fi.Mode().Perm(), err, want)
		}
	}
	mode(0o666)
	// A group that does not exist lets nobody in and refuses nothing else.
	p.write(groups(" #sluice control_read_group no_such_group\n"))
	r, err := control.NewClient(p.socket).Reload(t.Context())
	if err != nil || !r.OK {
		t.Fatalf("%+v %v", r, err)
	}
	mode(0o660)
	p.out.await(t, 0, "control_read_group: there is no group no_such_group")
	p.write(groups(" #sluice control_read_group " + strconv.Itoa(os.Getgid()) + "\n"))
	if r, err := control.NewClient(p.socket).Reload(t.Context()); err != nil || !r.OK {
		t.Fatalf("%+v %v", r, err)
	}
	mode(0o666)
	p.stop()
}
