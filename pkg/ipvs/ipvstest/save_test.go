package ipvstest

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// TestParseSaved reads lines as ipvsadm 1.31 prints them.
func TestParseSaved(t *testing.T) {
	const text = `-A -t 192.0.2.3:80 -s wlc -p 1 -M 255.255.255.0
-a -t 192.0.2.3:80 -r 198.51.100.1:8080 -m -w 1
-a -t 192.0.2.3:80 -r [2001:db8:1::]:80 -i -w 2 --tun-type gue --tun-port 6080 --tun-csum
-A -u [2001:db8::5]:5060 -s sh -p 300 -M 64 --pe sip -o -b sh-fallback,sh-port
-A -f -1 -s rr
-A -f 1 -6 -s rr -b flag-3
-a -f 1 -6 -r [2001:db8::1]:0 -g -w 0
-A --sctp-service 192.0.2.1:80 -s wlc
`
	service := func(s ipvs.Service, ds ...ipvs.Destination) *saved {
		m := make(map[ipvs.DestinationKey]ipvs.Destination)
		for _, d := range ds {
			m[d.DestinationKey] = d
		}
		return &saved{s.Canonical(), m}
	}
	want := make(map[ipvs.ServiceKey]*saved)
	for _, s := range []*saved{
		service(address(ipvs.TCP, "192.0.2.3:80", persistentMask(1, 0xffffff00)),
			dest("198.51.100.1:8080"), dest("[2001:db8:1::]:80", tunnel(ipvs.GUE, 6080, ipvs.Checksum), weight(2))),
		service(address(ipvs.UDP, "[2001:db8::5]:5060", scheduler("sh"), persistentMask(300, 64), engine("sip"), flags(ipvs.OnePacket|ipvs.Sched1|ipvs.Sched2))),
		service(mark(ipvs.INET, 0xffffffff, scheduler("rr"))),
		service(mark(ipvs.INET6, 1, scheduler("rr"), flags(ipvs.Sched3)), dest("[2001:db8::1]:0", method(ipvs.DirectRoute), weight(0))),
		service(address(ipvs.SCTP, "192.0.2.1:80")),
	} {
		want[s.service.ServiceKey] = s
	}
	got, err := parseSaved(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(saved{}), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{
		"-D -t 192.0.2.1:80", "-A -t", "-A -t nowhere -s rr", "-A -t 192.0.2.1:80 -p x", "-A -t 192.0.2.1:80 -p 1 -M 24",
		"-A -t 192.0.2.1:80 -b flag-9", "-A -t 192.0.2.1:80 --new", "-a -t 192.0.2.1:80 -r 10.0.0.1:80 -m -w 1",
		"-A -f x", "-A -t 192.0.2.1:80 -s rr\n-a -t 192.0.2.1:80 -r 10.0.0.1:80 -i --tun-type geneve",
	} {
		if got, err := parseSaved(bad); err == nil {
			t.Errorf("%q is taken for %v", bad, got)
		}
	}
}
