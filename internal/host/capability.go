package host

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Feature is something of the configuration that needs a capability of its own.
type Feature int

// Features.
const (
	// FeatureNamespace is net_namespace or net_namespace_ipvs.
	FeatureNamespace Feature = iota + 1
	// FeatureScripts are scripts that run as another user.
	FeatureScripts
	// FeatureLowPort is a bind_port below 1024.
	FeatureLowPort
)

// capability is a row of the table of what needs what.
type capability struct {
	bit  uint
	name string
	// feature 0 is needed whatever the configuration says.
	feature Feature
	why     string
}

var capabilities = []capability{
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", 0, "to read and write the IPVS table, for its sysctls, and for a checker's fwmark"},
	{unix.CAP_NET_RAW, "CAP_NET_RAW", 0, "for a checker's bind_if and for PING_CHECK"},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", FeatureNamespace, "to enter the network namespace of net_namespace"},
	{unix.CAP_SETUID, "CAP_SETUID", FeatureScripts, "to run scripts as the user of script_user"},
	{unix.CAP_SETGID, "CAP_SETGID", FeatureScripts, "to run scripts as the group of script_user"},
	{unix.CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE", FeatureLowPort, "for a checker's bind_port below 1024"},
}

// MissingCapabilities returns a line for each capability that this process lacks
// and that the daemon, or one of the features, needs: its name and what for. It
// is nil when all is there, and when /proc tells nothing.
func MissingCapabilities(features ...Feature) []string {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil
	}
	effective, ok := effectiveCapabilities(b)
	if !ok {
		return nil
	}
	return missing(effective, features)
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

func missing(effective uint64, features []Feature) []string {
	var list []string
	for _, c := range capabilities {
		if effective&(1<<c.bit) == 0 && (c.feature == 0 || slices.Contains(features, c.feature)) {
			list = append(list, fmt.Sprintf("%s: needed %s", c.name, c.why))
		}
	}
	return list
}
