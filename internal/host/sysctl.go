package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Sysctl is a kernel setting that the daemon wants.
type Sysctl struct {
	// Name is as sysctl(8) takes it: "net.ipv4.vs.conntrack".
	Name string
	Want string
	// Why says to an operator what goes wrong otherwise.
	Why string
}

// Sysctls returns the settings that safe draining needs, and with conntrack the
// one that the keyword of this name asks for (it costs throughput). What each
// does was measured on Linux 6.1; the kernel's own description is in
// Documentation/networking/ipvs-sysctl.rst.
func Sysctls(conntrack bool) []Sysctl {
	list := []Sysctl{
		{"net.ipv4.vs.expire_nodest_conn", "1",
			"a client whose server was deleted would hang until it gives up, rather than be reset and connect anew"},
		{"net.ipv4.vs.expire_quiescent_template", "1",
			"clients of a persistent service would be sent to a drained server for as long as they return"},
	}
	if conntrack {
		list = append(list, Sysctl{"net.ipv4.vs.conntrack", "1",
			"balanced connections would be unknown to netfilter, which rules that match them rely on"})
	}
	return list
}

// procSys is where the kernel shows its settings.
const procSys = "/proc/sys"

// EnsureSysctl sets a kernel setting to want unless it has that value, and
// returns the old value (without its newline) and whether it wrote. The error
// wraps fs.ErrNotExist when the kernel has no such setting, which for
// net.ipv4.vs.* means that ip_vs is not loaded.
func EnsureSysctl(name, want string) (old string, changed bool, err error) {
	return ensureSysctl(procSys, name, want)
}

func ensureSysctl(root, name, want string) (old string, changed bool, err error) {
	for part := range strings.SplitSeq(name, ".") {
		if part == "" || strings.ContainsRune(part, '/') {
			return "", false, fmt.Errorf("sysctl %q is not a name", name)
		}
	}
	return ensureFile(name, filepath.Join(root, strings.ReplaceAll(name, ".", "/")), want)
}

// ReadDeviceSysctl reads net.ipv4.conf.DEVICE.NAME; a device's name may have dots.
func ReadDeviceSysctl(device, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(procSys, "net/ipv4/conf", device, name))
	if err != nil {
		return "", fmt.Errorf("read sysctl net.ipv4.conf.%s.%s: %w", device, name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// EnsureDeviceSysctl is EnsureSysctl for net.ipv4.conf.DEVICE.NAME.
func EnsureDeviceSysctl(device, name, want string) (old string, changed bool, err error) {
	return ensureFile("net.ipv4.conf."+device+"."+name, filepath.Join(procSys, "net/ipv4/conf", device, name), want)
}

func ensureFile(name, path, want string) (old string, changed bool, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", false, fmt.Errorf("read sysctl %s: %w", name, err)
	}
	old = strings.TrimSpace(string(b))
	if old == want {
		return old, false, nil
	}
	// No O_CREATE: a setting that is not there must not become a file.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return old, false, fmt.Errorf("set sysctl %s from %s to %s: %w", name, old, want, err)
	}
	_, err = f.WriteString(want + "\n")
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return old, false, fmt.Errorf("set sysctl %s from %s to %s: %w", name, old, want, err)
	}
	return old, true, nil
}
