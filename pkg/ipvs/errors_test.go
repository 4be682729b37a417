package ipvs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestErrorMatches(t *testing.T) {
	all := []error{fs.ErrExist, fs.ErrNotExist, fs.ErrPermission, ErrNoModule, ErrUnknownResult, ErrInterrupted, unix.EEXIST, unix.ENOENT, unix.ESRCH, unix.EPERM}
	for _, c := range []struct {
		err  error
		want []error
	}{
		{NewError(Op{}, syscall.EEXIST), []error{fs.ErrExist, unix.EEXIST}},
		{NewError(Op{}, syscall.ENOENT), []error{fs.ErrNotExist, unix.ENOENT}},
		{NewError(Op{}, syscall.ESRCH), []error{fs.ErrNotExist, unix.ESRCH}},
		{NewError(Op{}, syscall.EPERM), []error{fs.ErrPermission, unix.EPERM}},
		{NewError(Op{}, syscall.ERANGE), nil},
		{opError(Op{}, ErrNoModule), []error{ErrNoModule}},
		{opError(Op{}, fmt.Errorf("%w: %w", ErrUnknownResult, syscall.EPERM)), []error{ErrUnknownResult, fs.ErrPermission, unix.EPERM}},
		{&Error{Errno: syscall.ESRCH, Err: ErrNoModule}, []error{ErrNoModule}},
		{readError("", ServiceKey{}, ErrInterrupted), []error{ErrInterrupted}},
		{readError("", ServiceKey{}, &kernelError{errno: syscall.ESRCH}), []error{fs.ErrNotExist, unix.ESRCH}},
	} {
		for _, target := range all {
			want := false
			for _, w := range c.want {
				want = want || w == target
			}
			if got := errors.Is(c.err, target); got != want {
				t.Errorf("errors.Is(%v, %v) = %v", c.err, target, got)
			}
		}
	}
	if err := readError("op", ServiceKey{}, nil); err != nil {
		t.Errorf("no error becomes %v", err)
	}
}

func TestErrorText(t *testing.T) {
	v4 := Service{ServiceKey: ServiceKey{Protocol: TCP, Addr: netip.MustParseAddr("192.0.2.10"), Port: 80}, Scheduler: "wlcc"}
	v6 := Service{ServiceKey: ServiceKey{Protocol: TCP, Addr: netip.MustParseAddr("2001:db8::1"), Port: 80}, Scheduler: "rr"}
	pe := v4
	pe.Flags, pe.PersistenceEngine = Persistent, "sipp"
	dest := func(a string, m ForwardMethod) Destination {
		return Destination{DestinationKey: DestinationKey{netip.MustParseAddr(a), 80}, Forward: m}
	}
	gue := dest("10.0.0.12", Tunnel)
	gue.TunnelType = GUE
	heavy, full := dest("10.0.0.12", 0), dest("10.0.0.12", 0)
	heavy.Weight, full.UpperThreshold = 1<<31, 1<<31
	wide := v6
	wide.Flags, wide.Netmask = Persistent, 129
	mark := Service{ServiceKey: ServiceKey{Family: INET6, FWMark: 5}}
	for _, c := range []struct {
		op    Op
		errno syscall.Errno
		want  string
	}{
		{Op{OpAddDest, v4, dest("10.0.0.12", Masquerade)}, syscall.EEXIST, "add destination 10.0.0.12:80 to 192.0.2.10:80/tcp: file exists"},
		{Op{OpDelDest, v4, dest("10.0.0.12", Masquerade)}, syscall.ENOENT, "delete destination 10.0.0.12:80 of 192.0.2.10:80/tcp: no such file or directory: the service has no such destination"},
		{Op{OpSetDest, v4, dest("10.0.0.12", Masquerade)}, syscall.ESRCH, "set destination 10.0.0.12:80 of 192.0.2.10:80/tcp: no such process: no such service"},
		{Op{OpAddService, v4, Destination{}}, syscall.ENOENT, "add service 192.0.2.10:80/tcp: no such file or directory: unknown scheduler wlcc (module ip_vs_wlcc)"},
		{Op{OpSetService, pe, Destination{}}, syscall.ENOENT, "set service 192.0.2.10:80/tcp: no such file or directory: unknown scheduler wlcc or persistence engine sipp (modules ip_vs_wlcc, ip_vs_pe_sipp)"},
		{Op{OpAddDest, v4, dest("2001:db8::2", DirectRoute)}, syscall.EINVAL, "add destination [2001:db8::2]:80 to 192.0.2.10:80/tcp: invalid argument: a destination of another family than its service must use TUN, not DR"},
		{Op{OpAddDest, v4, dest("2001:db8::2", Tunnel)}, syscall.EINVAL, "exclude each other"},
		{Op{OpAddDest, v4, gue}, syscall.EINVAL, "a GUE tunnel needs a port"},
		{Op{OpAddDest, v4, full}, syscall.EINVAL, "a threshold is at most 2147483647"},
		{Op{OpAddDest, v4, dest("224.0.0.1", 0)}, syscall.EINVAL, "loopback interface must be up"},
		{Op{OpSetDest, v4, heavy}, syscall.ERANGE, "a weight is at most 2147483647"},
		{Op{OpSetDest, v4, dest("10.0.0.12", 0)}, syscall.ERANGE, "the lower threshold is above the upper one"},
		{Op{OpAddService, wide, Destination{}}, syscall.EINVAL, "prefix length of 1 to 128"},
		{Op{OpAddService, mark, Destination{}}, syscall.EAFNOSUPPORT, "add service fwmark 5/inet6: address family not supported by protocol: the kernel does not support inet6 here"},
		{Op{OpDelService, mark, Destination{}}, syscall.EPERM, "delete service fwmark 5/inet6: operation not permitted: needs CAP_NET_ADMIN"},
		{Op{OpDelService, mark, Destination{}}, syscall.ENOMEM, "delete service fwmark 5/inet6: cannot allocate memory"},
	} {
		got := NewError(c.op, c.errno).Error()
		if strings.HasPrefix(c.want, c.op.Kind.String()) && got != c.want || !strings.Contains(got, c.want) {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	if got, want := readError("list services", ServiceKey{}, ErrInterrupted).Error(), "list services: the table kept changing while it was read"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	e := NewError(Op{OpAddService, v6, Destination{}}, syscall.EINVAL)
	e.Message = "out of luck"
	if got, want := e.Error(), "add service [2001:db8::1]:80/tcp: invalid argument (out of luck)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
