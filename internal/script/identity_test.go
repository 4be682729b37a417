package script

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/config"
)

// TestIdentity goes by what every Debian has: root, daemon (1), bin (2), nobody,
// and the groups adm (4) and nogroup.
func TestIdentity(t *testing.T) {
	if _, err := user.Lookup(scriptUser); err == nil {
		t.Skipf("this machine has a user %s, who is the default", scriptUser)
	}
	own := fmt.Sprintf("(uid %d)", os.Geteuid())
	for _, tt := range []struct {
		name        string
		user, group string
		id          Identity
		want, err   string
	}{
		{name: "own", want: own},
		{name: "its own user", user: "nobody", want: "user nobody (uid 65534), group nogroup (gid 65534)"},
		{name: "before script_user", user: "nobody", id: Identity{User: "daemon", Group: "adm"}, want: "user nobody (uid 65534), group nogroup (gid 65534)"},
		{name: "script_user", id: Identity{User: "daemon"}, want: "user daemon (uid 1), group daemon (gid 1)"},
		{name: "script_user with group", id: Identity{User: "daemon", Group: "adm"}, want: "user daemon (uid 1), group adm (gid 4)"},
		{name: "script_user, its own group", group: "bin", id: Identity{User: "daemon", Group: "adm"}, want: "user daemon (uid 1), group bin (gid 2)"},
		{name: "group", user: "nobody", group: "adm", want: "group adm (gid 4)"},
		{name: "primary and supplementary", user: "nobody", group: ":", want: "group nogroup (gid 65534)"},
		{name: "group and supplementary", user: "nobody", group: ":adm", want: "group adm (gid 4)"},
		{name: "numbers", user: "65534", group: "4", want: "user nobody (uid 65534), group adm (gid 4)"},
		{name: "a number's primary group", user: "1", want: "user daemon (uid 1), group daemon (gid 1)"},
		{name: "unknown numbers", user: "54321", group: "54322", want: "user 54321 (uid 54321), group 54322 (gid 54322)"},
		{name: "unknown number without group", user: "54321", err: "a group must be named as well"},
		{name: "unknown number with supplementary", user: "54321", group: ":adm", err: "user 54321 is not in the user database"},
		{name: "unknown user", user: "no-such-user", err: `there is no user "no-such-user"`},
		{name: "unknown script_user", id: Identity{User: "no-such-user"}, err: `there is no user "no-such-user"`},
		{name: "unknown group", user: "nobody", group: "no-such-group", err: `there is no group "no-such-group"`},
		{name: "number too large", user: "4294967296", err: `there is no user "4294967296"`},
		{name: "security without a user", id: Identity{Security: true}, err: "no user to run it as"},
		{name: "security with a user", id: Identity{Security: true, User: "daemon"}, want: "user daemon (uid 1)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := RunsAs(&config.Script{User: tt.user, Group: tt.group}, tt.id)
			if tt.err != "" {
				wantError(t, err, tt.err)
				return
			}
			if err != nil || !strings.Contains(got, tt.want) {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// TestSupplementaryGroups: set_supplementary_groups, and the forms with a colon
// that ask for one script (facts 11.3).
func TestSupplementaryGroups(t *testing.T) {
	// A user with groups of its own in the database of this machine.
	const who = "www-data"
	u, err := user.Lookup(who)
	if err != nil {
		t.Skipf("no user %s: %v", who, err)
	}
	groups, err := u.GroupIds()
	if err != nil {
		t.Fatal(err)
	}
	var primary uint32
	if primary, err = number(u.Gid); err != nil {
		t.Fatal(err)
	}
	others := func(gid uint32) []uint32 {
		var all []uint32
		for _, s := range groups {
			if g, err := number(s); err == nil && g != gid {
				all = append(all, g)
			}
		}
		return all
	}
	for _, tt := range []struct {
		group string
		all   bool
		gid   uint32
		want  []uint32
	}{
		{"", false, primary, nil},
		{"adm", false, 4, nil},
		{":", false, primary, others(primary)},
		{":adm", false, 4, others(4)},
		{"", true, primary, others(primary)},
		{"adm", true, 4, others(4)},
		{":adm", true, 4, others(4)},
	} {
		a, err := lookup(&config.Script{User: who, Group: tt.group}, Identity{Supplementary: tt.all})
		if err != nil || a.gid != tt.gid || !slices.Equal(a.groups, tt.want) {
			t.Errorf("group %q, set_supplementary_groups %t: gid %d with %v, %v; want %d with %v", tt.group, tt.all, a.gid, a.groups, err, tt.gid, tt.want)
		}
	}
	// Nobody knows the groups of a number: none, and no error.
	if a, err := lookup(&config.Script{User: "54321", Group: "54322"}, Identity{Supplementary: true}); err != nil || len(a.groups) != 0 {
		t.Errorf("unknown number: %v, %v", a.groups, err)
	}
	if os.Geteuid() != 0 {
		return
	}
	s := &config.Script{Argv: []string{"/usr/bin/id", "-G"}, User: who, Group: "adm"}
	if res := Run(t.Context(), Command{Script: s, Identity: Identity{Supplementary: true}}); res.Output != "4 "+u.Gid {
		t.Errorf("a script sees groups %q, want 4 and %s; %+v", res.Output, u.Gid, res)
	}
}

func TestCredential(t *testing.T) {
	own := account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	if have, _ := os.Getgroups(); len(have) == 0 || len(have) == 1 && have[0] == os.Getegid() {
		if c := own.credential(); c != nil {
			t.Errorf("own account: %+v, want no change, which would take privileges", c)
		}
	}
	own.groups = []uint32{54321}
	if c := own.credential(); os.Geteuid() == 0 && (c == nil || len(c.Groups) != 1) {
		t.Errorf("own account with another group: %+v", c)
	}
	other := account{uid: 54321, gid: 54322}
	if c := other.credential(); c == nil || c.Uid != 54321 || c.Gid != 54322 || len(c.Groups) != 0 || c.NoSetGroups {
		t.Errorf("another account: %+v", c)
	}
}
