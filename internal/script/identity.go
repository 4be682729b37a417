package script

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-lb/sluice/internal/config"
)

// scriptUser is whom scripts run as if nobody else is named and it exists.
const scriptUser = "keepalived_script"

// Identity is what the configuration says of all scripts.
type Identity struct {
	// User and Group are script_user's; "" if it is not set.
	User, Group string
	// Security is enable_script_security.
	Security bool
	// Supplementary is set_supplementary_groups: a script gets the other groups of
	// its user too.
	Supplementary bool
	// Symlinks is use_symlink_paths: a script is executed by its path as written,
	// not by the resolved one. Some programs go by the name they are called by.
	Symlinks bool
}

// account is whom a script runs as.
type account struct {
	user, group string // names, or numbers where there is none
	uid, gid    uint32
	groups      []uint32 // supplementary
}

// String is how messages name the account.
func (a account) String() string {
	return fmt.Sprintf("user %s (uid %d), group %s (gid %d)", a.user, a.uid, a.group, a.gid)
}

// RunsAs says whom a script would run as, for people.
func RunsAs(s *config.Script, id Identity) (string, error) {
	a, err := lookup(s, id)
	if err != nil {
		return "", err
	}
	return a.String(), nil
}

// lookup finds whom a script runs as: its own user and group, else script_user,
// else keepalived_script, else the daemon's (facts 11.3). Names come before
// numbers, since a name may consist of digits.
func lookup(s *config.Script, id Identity) (account, error) {
	name, group := s.User, s.Group
	if name == "" {
		name = id.User
		if group == "" {
			group = id.Group
		}
	}
	if name == "" {
		if _, err := user.Lookup(scriptUser); err == nil {
			name = scriptUser
		} else if !errors.As(err, new(user.UnknownUserError)) {
			return account{}, fmt.Errorf("look up user %s: %w", scriptUser, err)
		}
	}
	if name == "" {
		if id.Security {
			return account{}, fmt.Errorf("no user to run it as: enable_script_security wants a script_user, a user after the script, or a user %s on this machine", scriptUser)
		}
		name = strconv.Itoa(os.Geteuid())
		if group == "" {
			group = strconv.Itoa(os.Getegid())
		}
	}
	return named(name, group, id.Supplementary)
}

// named resolves a user and a group. The group may be "" (the user's primary one),
// ":" (that and the user's supplementary ones) or ":GROUP" (GROUP and those). With
// all a user gets the supplementary ones in each case, as far as it has any.
func named(name, group string, all bool) (account, error) {
	group, supplementary := strings.CutPrefix(group, ":")
	a := account{user: name}
	u, err := user.Lookup(name)
	uid, numErr := strconv.ParseUint(name, 10, 32)
	if err != nil && numErr == nil {
		// A number need not be in the user database.
		a.uid = uint32(uid)
		if u, err = user.LookupId(name); err != nil && group != "" && !supplementary {
			err = nil
		}
	}
	switch {
	case errors.As(err, new(user.UnknownUserIdError)):
		return a, fmt.Errorf("user %s is not in the user database, so a group must be named as well", name)
	case errors.As(err, new(user.UnknownUserError)):
		return a, fmt.Errorf("there is no user %q", name)
	case err != nil:
		return a, fmt.Errorf("look up user %s: %w", name, err)
	}
	if u != nil {
		a.user = u.Username
		if a.uid, err = number(u.Uid); err != nil {
			return a, fmt.Errorf("user %s: %w", name, err)
		}
	}
	if group == "" {
		group = u.Gid
		a.gid, err = number(group)
	} else {
		a.gid, err = groupID(group)
	}
	if err != nil {
		return a, err
	}
	a.group = group
	if g, err := user.LookupGroupId(strconv.FormatUint(uint64(a.gid), 10)); err == nil {
		a.group = g.Name
	}
	if supplementary || all && u != nil {
		return a, a.addGroups(u)
	}
	return a, nil
}

func (a *account) addGroups(u *user.User) error {
	ids, err := u.GroupIds()
	if err != nil {
		return fmt.Errorf("list the groups of user %s: %w", a.user, err)
	}
	for _, s := range ids {
		g, err := number(s)
		if err != nil {
			return fmt.Errorf("list the groups of user %s: %w", a.user, err)
		}
		if g != a.gid {
			a.groups = append(a.groups, g)
		}
	}
	return nil
}

func groupID(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err == nil {
		return number(g.Gid)
	}
	if id, numErr := number(name); numErr == nil {
		return id, nil
	}
	if errors.As(err, new(user.UnknownGroupError)) {
		return 0, fmt.Errorf("there is no group %q", name)
	}
	return 0, fmt.Errorf("look up group %s: %w", name, err)
}

func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("id %q is not a number", s)
	}
	return uint32(n), nil
}

// credential is what the kernel must be asked for; nil if the daemon is that user
// already, since asking takes privileges then too. A daemon without privileges
// keeps its supplementary groups, which it cannot put down.
func (a account) credential() *syscall.Credential {
	if int(a.uid) == os.Geteuid() && int(a.gid) == os.Getegid() && (a.uid != 0 || a.sameGroups()) {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
}

func (a account) sameGroups() bool {
	have, err := os.Getgroups()
	if err != nil {
		return false
	}
	// The primary group may be listed a second time; that gives nothing.
	gid := int(a.gid)
	have = slices.DeleteFunc(have, func(g int) bool { return g == gid })
	if len(have) != len(a.groups) {
		return false
	}
	return !slices.ContainsFunc(a.groups, func(g uint32) bool { return !slices.Contains(have, int(g)) })
}
