package host

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Need is something of the configuration that needs a capability of its own.
type Need int

// Needs.
const (
	// NeedNamespace is net_namespace or net_namespace_ipvs.
	NeedNamespace Need = iota + 1
	// NeedScripts are scripts that run as another user.
	NeedScripts
	// NeedLowPort is a bind_port below 1024.
	NeedLowPort
	// NeedDevice is a checker's bind_if.
	NeedDevice
	// NeedPing is a PING_CHECK in a group that net.ipv4.ping_group_range leaves out.
	NeedPing
	// NeedVIP is vip_device, NeedGuard vip_guard, NeedMarks nftables_ipvs, NeedVia
	// check_via.
	NeedVIP
	NeedGuard
	NeedMarks
	NeedVia
)

// Missing is a capability that this process lacks.
type Missing struct {
	// Name is the kernel's: "CAP_NET_ADMIN".
	Name string
	// Feature is what does not work without it, for people.
	Feature string
}

// String returns name and feature in a line.
func (m Missing) String() string { return m.Name + ": needed for " + m.Feature }

// capability is a row of the table of what needs what.
type capability struct {
	bit uint
	Missing
	// need 0 is needed whatever the configuration says.
	need Need
}

var capabilities = []capability{
	{unix.CAP_NET_ADMIN, Missing{"CAP_NET_ADMIN", "the IPVS table, its sysctls, and a checker's fwmark"}, 0},
	{unix.CAP_NET_ADMIN, Missing{"CAP_NET_ADMIN", "vip_device: its device and the addresses on it"}, NeedVIP},
	{unix.CAP_NET_ADMIN, Missing{"CAP_NET_ADMIN", "vip_guard: its table of nftables"}, NeedGuard},
	{unix.CAP_NET_ADMIN, Missing{"CAP_NET_ADMIN", "nftables_ipvs: its table of nftables"}, NeedMarks},
	{unix.CAP_NET_ADMIN, Missing{"CAP_NET_ADMIN", "check_via: its rules and routes, and marked sockets"}, NeedVia},
	{unix.CAP_NET_RAW, Missing{"CAP_NET_RAW", "PING_CHECK, as its group is not in net.ipv4.ping_group_range"}, NeedPing},
	{unix.CAP_NET_RAW, Missing{"CAP_NET_RAW", "a checker's bind_if"}, NeedDevice},
	{unix.CAP_SYS_ADMIN, Missing{"CAP_SYS_ADMIN", "entering the network namespace of net_namespace"}, NeedNamespace},
	{unix.CAP_SETUID, Missing{"CAP_SETUID", "running scripts as the user of script_user"}, NeedScripts},
	{unix.CAP_SETGID, Missing{"CAP_SETGID", "running scripts as the group of script_user"}, NeedScripts},
	{unix.CAP_NET_BIND_SERVICE, Missing{"CAP_NET_BIND_SERVICE", "a checker's bind_port below 1024"}, NeedLowPort},
}

// MissingCapabilities returns each capability that this process lacks and that
// the daemon, or one of the needs, calls for. It is nil when all is there, and
// when /proc tells nothing.
func MissingCapabilities(needs ...Need) []Missing {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil
	}
	effective, ok := effectiveCapabilities(b)
	if !ok {
		return nil
	}
	return missing(effective, needs)
}

// effectiveCapabilities reads CapEff of proc_pid_status(5), a hexadecimal mask.
func effectiveCapabilities(status []byte) (mask uint64, ok bool) {
	for line := range bytes.Lines(status) {
		if v, found := bytes.CutPrefix(line, []byte("CapEff:")); found {
			mask, err := strconv.ParseUint(string(bytes.TrimSpace(v)), 16, 64)
			return mask, err == nil
		}
	}
	return 0, false
}

func missing(effective uint64, needs []Need) []Missing {
	var list []Missing
	for _, c := range capabilities {
		if effective&(1<<c.bit) == 0 && (c.need == 0 || slices.Contains(needs, c.need)) {
			list = append(list, c.Missing)
		}
	}
	return list
}
