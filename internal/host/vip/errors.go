package vip

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// advice says what now, after an errno.
func advice(err error, device string) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return "; the daemon needs the capability CAP_NET_ADMIN in the network namespace of the addresses"
	case errors.Is(err, unix.EACCES):
		return "; IPv6 is switched off there: set net.ipv6.conf." + device + ".disable_ipv6=0"
	case errors.Is(err, unix.EAFNOSUPPORT):
		return "; this kernel does without this family of addresses"
	}
	return ""
}

// deviceError is that of a device that could not be made.
func deviceError(name string, err error) error {
	now := advice(err, name)
	if errors.Is(err, unix.EOPNOTSUPP) {
		now = "; this kernel makes no dummy devices: load its module (modprobe dummy), or say vip_device lo"
	}
	return fmt.Errorf("vip_device %s: create the device, a dummy: %w%s", name, err, now)
}

// kindError is that of a device that is no place for virtual addresses.
func kindError(l link) error {
	kind := "another device"
	if l.kind != "" {
		kind = "a " + l.kind
	}
	return fmt.Errorf("vip_device %s: a device of this name exists and is %s, not a dummy: it would answer its neighbors for the addresses; say another name, or lo", l.name, kind)
}
