package lane

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/sluice-lb/sluice/internal/host"
)

// settings reads and writes net.ipv4.conf.DEVICE.NAME.
type settings interface {
	read(device, name string) (string, error)
	ensure(device, name, want string) (old string, changed bool, err error)
}

type proc struct{}

func (proc) read(device, name string) (string, error) { return host.ReadDeviceSysctl(device, name) }

func (proc) ensure(device, name, want string) (string, bool, error) {
	return host.EnsureDeviceSysctl(device, name, want)
}

// needs are what answers over IPv4 need of the device that they come by.
var needs = []struct {
	name, want, why string
	// enough tells by the values for all devices and for this one.
	enough func(all, own string) bool
}{
	{"accept_local", "1", "the answers to check_via come from a virtual address, which is one of this machine's own, and would be dropped",
		func(all, own string) bool { return all != "0" || own != "0" }},
	{"rp_filter", "2", "the answers to check_via come from a virtual address, whose own way is not this device, and a strict filter drops them",
		func(all, own string) bool { return max(all, own) != "1" }},
}

// Setting is a setting of a device that was made, net.ipv4.conf.DEVICE.NAME.
type Setting struct{ Device, Name, Was, Now string }

func (s Setting) sysctl() string { return "net.ipv4.conf." + s.Device + "." + s.Name }

// note remembers a setting before it is made, so that it can be put back whatever
// becomes of this process.
func (k *Keeper) note(s Setting) error {
	same := func(o Setting) bool { return o.Device == s.Device && o.Name == s.Name }
	if i := slices.IndexFunc(k.made, same); i >= 0 {
		if k.made[i].Now == s.Now {
			return nil // somebody set it back, what it was at first counts
		}
		k.made = slices.Delete(k.made, i, i+1)
	}
	k.made = append(k.made, s)
	return k.remember()
}

func (k *Keeper) remember() error {
	if k.opts.Remember == nil {
		return nil
	}
	if err := k.opts.Remember(slices.Clone(k.made)); err != nil {
		return fmt.Errorf("check_via: note which settings are made: %w", err)
	}
	return nil
}

// putBack gives devices that no lane needs any more the settings that they had, unless
// somebody else has changed them since.
func (k *Keeper) putBack(ways map[Lane]way) error {
	needed := map[string]bool{}
	for l, w := range ways {
		if w.err != nil {
			return nil // it may be by any
		}
		needed[w.device] = needed[w.device] || !l.IPv6
	}
	var errs []error
	kept := slices.DeleteFunc(slices.Clone(k.made), func(s Setting) bool {
		if needed[s.Device] {
			return false
		}
		now, err := k.opts.settings.read(s.Device, s.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // with its device
			return true
		case err == nil && now != s.Now:
			return true
		case err == nil:
			_, _, err = k.opts.settings.ensure(s.Device, s.Name, s.Was)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("check_via: put back %s: %w", s.sysctl(), err))
			return false
		}
		if k.opts.Set != nil {
			k.opts.Set(s.sysctl(), s.Was, s.Now, "check_via needs it no longer")
		}
		return true
	})
	if len(kept) != len(k.made) {
		k.made = kept
		errs = append(errs, k.remember())
	}
	return errors.Join(errs...)
}

// answers makes a device let answers in, or says which setting does not.
func (k *Keeper) answers(device string) error {
	for _, n := range needs {
		all, err := k.opts.settings.read("all", n.name)
		if err != nil {
			return fmt.Errorf("check_via: %w", err)
		}
		own, err := k.opts.settings.read(device, n.name)
		if err != nil {
			return fmt.Errorf("check_via: %w", err)
		}
		if n.enough(all, own) {
			continue
		}
		name := "net.ipv4.conf." + device + "." + n.name
		if k.opts.Manage == nil || !k.opts.Manage() {
			return fmt.Errorf("check_via: %s has to be %s: %s; set it, or let manage_sysctls do it", name, n.want, n.why)
		}
		if err := k.note(Setting{device, n.name, own, n.want}); err != nil {
			return err
		}
		old, changed, err := k.opts.settings.ensure(device, n.name, n.want)
		if err != nil {
			return fmt.Errorf("check_via: %w; it has to be %s: %s", err, n.want, n.why)
		}
		if changed && k.opts.Set != nil {
			k.opts.Set(name, n.want, old, n.why)
		}
	}
	return nil
}
