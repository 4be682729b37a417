package lane

import (
	"fmt"

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
