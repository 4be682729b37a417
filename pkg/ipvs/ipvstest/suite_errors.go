package ipvstest

import (
	"io/fs"
	"syscall"
	"testing"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// What is refused, and how.

func serviceErrors(t *testing.T, k Kernel) {
	ctx := t.Context()
	s := address(ipvs.TCP, "192.0.2.1:80")
	v6 := address(ipvs.TCP, "[2001:db8::1]:80")
	missing := address(ipvs.TCP, "192.0.2.9:80")
	add(t, k, s)
	add(t, k, v6)

	wantError(t, k.AddService(ctx, s), syscall.EEXIST, fs.ErrExist)
	// Whether it exists is tested before what else is wrong.
	wantError(t, k.AddService(ctx, address(ipvs.TCP, "192.0.2.1:80", scheduler("no-such"))), syscall.EEXIST, fs.ErrExist)
	wantError(t, k.SetService(ctx, missing), syscall.ESRCH, fs.ErrNotExist)
	wantError(t, k.DelService(ctx, missing), syscall.ESRCH, fs.ErrNotExist)
	_, err := k.Service(ctx, missing.ServiceKey)
	wantError(t, err, syscall.ESRCH, fs.ErrNotExist)
	_, err = k.Service(ctx, mark(ipvs.INET, 3).ServiceKey)
	wantError(t, err, syscall.ESRCH, fs.ErrNotExist)
	wantError(t, k.Zero(ctx, missing.ServiceKey), syscall.ESRCH, fs.ErrNotExist)

	for _, c := range []struct {
		name  string
		like  func(*ipvs.Service)
		errno syscall.Errno
		is    error
	}{
		{"unknown scheduler", scheduler("no-such"), syscall.ENOENT, fs.ErrNotExist},
		{"no scheduler", scheduler(""), syscall.ENOENT, fs.ErrNotExist},
		{"scheduler of 15 bytes", scheduler("123456789012345"), syscall.ENOENT, fs.ErrNotExist},
		{"scheduler of 16 bytes", scheduler("1234567890123456"), syscall.EINVAL, nil},
		{"unknown engine", func(s *ipvs.Service) { persistent(1)(s); engine("no-such")(s) }, syscall.ENOENT, fs.ErrNotExist},
		{"engine of 16 bytes", func(s *ipvs.Service) { persistent(1)(s); engine("1234567890123456")(s) }, syscall.ENOENT, fs.ErrNotExist},
		{"engine of 17 bytes", func(s *ipvs.Service) { persistent(1)(s); engine("12345678901234567")(s) }, syscall.EINVAL, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantError(t, k.AddService(ctx, address(ipvs.TCP, "192.0.2.9:80", c.like)), c.errno, c.is)
			wantError(t, k.SetService(ctx, address(ipvs.TCP, "192.0.2.1:80", c.like)), c.errno, c.is)
		})
	}
	wide := persistentMask(300, 129)
	wantError(t, k.AddService(ctx, address(ipvs.TCP, "[2001:db8::9]:80", wide)), syscall.EINVAL, nil)
	wantError(t, k.SetService(ctx, address(ipvs.TCP, "[2001:db8::1]:80", wide)), syscall.EINVAL, nil)
	wantError(t, k.AddService(ctx, mark(ipvs.INET6, 9, wide)), syscall.EINVAL, nil)
	wantError(t, k.AddService(ctx, mark(0, 9)), syscall.EAFNOSUPPORT, nil)
	wantError(t, k.AddService(ctx, mark(28, 9)), syscall.EAFNOSUPPORT, nil)
	wantError(t, k.AddService(ctx, address(1, "192.0.2.9:80")), syscall.EINVAL, nil)
	wantError(t, k.AddService(ctx, address(ipvs.TCP, "192.0.2.9:80", persistent(ipvs.MaxPersistence+1))), syscall.EINVAL, nil)
	wantError(t, k.DelService(ctx, address(1, "192.0.2.9:80")), syscall.ESRCH, fs.ErrNotExist)
	wrong := s
	wrong.Family = ipvs.INET6
	wantError(t, k.AddService(ctx, wrong), syscall.EINVAL, nil)
	nowhere := ipvs.Service{ServiceKey: ipvs.ServiceKey{Family: ipvs.INET, Protocol: ipvs.TCP, Port: 80}, Scheduler: "rr"}
	wantError(t, k.AddService(ctx, nowhere), syscall.EINVAL, nil)
	_, err = k.Destinations(ctx, nowhere.ServiceKey)
	wantError(t, err, syscall.EINVAL, nil)

	// Nothing of it left a trace.
	checkTable(t, k, map[ipvs.Service][]ipvs.Destination{s: nil, v6: nil})
}

func destinationErrors(t *testing.T, k Kernel) {
	ctx := t.Context()
	v4, v6 := address(ipvs.TCP, "192.0.2.1:80"), address(ipvs.TCP, "[2001:db8::1]:80")
	missing := address(ipvs.TCP, "192.0.2.9:80")
	there4, there6 := dest("198.51.100.1:80"), dest("[2001:db8::10]:80")
	add(t, k, v4, there4)
	add(t, k, v6, there6)

	wantError(t, k.AddDest(ctx, missing, there4), syscall.ESRCH, fs.ErrNotExist)
	wantError(t, k.SetDest(ctx, missing, there4), syscall.ESRCH, fs.ErrNotExist)
	wantError(t, k.DelDest(ctx, missing, there4), syscall.ESRCH, fs.ErrNotExist)
	wantError(t, k.AddDest(ctx, v4, there4), syscall.EEXIST, fs.ErrExist)
	wantError(t, k.SetDest(ctx, v4, dest("198.51.100.9:80")), syscall.ENOENT, fs.ErrNotExist)
	wantError(t, k.DelDest(ctx, v4, dest("198.51.100.9:80")), syscall.ENOENT, fs.ErrNotExist)
	// A destination of another family is merely missing to a deletion.
	wantError(t, k.DelDest(ctx, v4, there6), syscall.ENOENT, fs.ErrNotExist)
	wantError(t, k.SetDest(ctx, v4, dest("[2001:db8::10]:80", tunnel(ipvs.IPIP, 0, 0))), syscall.ENOENT, fs.ErrNotExist)

	for _, c := range []struct {
		name    string
		service ipvs.Service
		dest    ipvs.Destination
		errno   syscall.Errno
		set     bool // also an answer to a change of the destination that is there
	}{
		{"lower threshold above the upper", v4, dest("198.51.100.1:80", thresholds(4, 5)), syscall.ERANGE, true},
		{"lower threshold without upper", v4, dest("198.51.100.1:80", thresholds(0, 1)), syscall.ERANGE, true},
		{"weight 2^31", v4, dest("198.51.100.1:80", weight(1<<31)), syscall.ERANGE, true},
		{"weight 2^32-1", v6, dest("[2001:db8::10]:80", weight(1<<32-1)), syscall.ERANGE, true},
		{"gue without port", v4, dest("198.51.100.1:80", tunnel(ipvs.GUE, 0, 0)), syscall.EINVAL, true},
		{"other family by DR", v4, dest("[2001:db8::10]:80", method(ipvs.DirectRoute)), syscall.EINVAL, true},
		{"other family by NAT", v4, dest("[2001:db8::10]:80"), syscall.EINVAL, true},
		{"IPv4 in IPv6 by DR", v6, dest("198.51.100.1:80", method(ipvs.DirectRoute)), syscall.EINVAL, true},
		{"IPv4 in IPv6 by NAT", v6, dest("198.51.100.1:80"), syscall.EINVAL, true},
		{"unspecified", v4, dest("0.0.0.0:80"), syscall.EINVAL, false},
		{"multicast", v4, dest("224.0.0.1:80"), syscall.EINVAL, false},
		{"broadcast", v4, dest("255.255.255.255:80"), syscall.EINVAL, false},
		{"broadcast of the loopback network", v4, dest("127.255.255.255:80"), syscall.EINVAL, false},
		{"unspecified IPv6", v6, dest("[::]:80"), syscall.EINVAL, false},
		{"multicast IPv6", v6, dest("[ff02::1]:80"), syscall.EINVAL, false},
		{"link-local IPv6", v6, dest("[fe80::1]:80"), syscall.EINVAL, false},
		// Ranges are tested before existence, and the method of another family
		// before both.
		{"weight and family", v4, dest("[2001:db8::10]:80", weight(1<<31)), syscall.EINVAL, true},
		{"threshold and gue port", v4, dest("198.51.100.1:80", thresholds(4, 5), tunnel(ipvs.GUE, 0, 0), thresholds(4, 5)), syscall.ERANGE, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantError(t, k.AddDest(ctx, c.service, c.dest), c.errno, nil)
			if c.set {
				wantError(t, k.SetDest(ctx, c.service, c.dest), c.errno, nil)
			} else {
				wantError(t, k.SetDest(ctx, c.service, c.dest), syscall.ENOENT, fs.ErrNotExist)
			}
		})
	}
	// What the kernel would take and not work with is refused before it is asked.
	wantError(t, k.AddDest(ctx, missing, dest("198.51.100.2:80", method(5))), syscall.EINVAL, nil)
	wantError(t, k.SetDest(ctx, v4, dest("198.51.100.1:80", tunnel(3, 0, 0))), syscall.EINVAL, nil)
	// Kernels differ on thresholds of 2^31 and more; none of them garbles one.
	high := dest("198.51.100.2:80", thresholds(1<<31, 1<<31-1))
	if err := k.AddDest(ctx, v4, high); err == nil {
		checkDestinations(t, k, v4.ServiceKey, []ipvs.Destination{there4, high})
		must(t, k.DelDest(ctx, v4, high))
	} else {
		wantError(t, err, syscall.EINVAL, nil)
	}
	wantError(t, k.AddDest(ctx, v4, ipvs.Destination{DestinationKey: ipvs.DestinationKey{Port: 80}}), syscall.EINVAL, nil)
	checkTable(t, k, map[ipvs.Service][]ipvs.Destination{v4: {there4}, v6: {there6}})
}
