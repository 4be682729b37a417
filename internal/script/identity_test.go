package script

import (
	"fmt"
	"os"
	"os/user"
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
