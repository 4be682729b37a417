package e2e

import (
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/doctor"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// TestKernelDoctorLooksAround: DR servers that answer for the virtual address, and
// connection synchronisation without its network, are found out; what can be mended from
// here is.
func TestKernelDoctorLooksAround(t *testing.T) {
	b := newBed(t, testkit.NewDR, 2)
	dr := strings.ReplaceAll(pool("", 1, 2), "lvs_method NAT", "lvs_method DR")
	b.write("global_defs {\n lvs_sync_daemon front id 7\n}\n" + dr)
	b.start()
	b.until("1:1 2:1")
	testkit.Eventually(t, patience, func() string {
		if f := b.examine()["sync_daemon"]; f.Status != doctor.OK || !strings.Contains(f.Found, "master on front with id 7") {
			return f.Found
		}
		return ""
	})
	sound := b.examine()
	for id, found := range map[string]string{"dr_arp": "2 DR servers do not answer", "sync_device": "front is up and has multicast"} {
		if f := sound[id]; f.Status != doctor.OK || !strings.Contains(f.Found, found) {
			t.Errorf("%s: %+v", id, f)
		}
	}

	b.Backends[1].Sysctl(t, "net.ipv4.conf.all.arp_ignore", "0")
	if f := b.examine()["dr_arp"]; f.Status != doctor.Fail || !strings.HasPrefix(f.Found, b.Backends[1].Addr.String()+" answers ARP for "+b.VIP.String()) || f.ConcernsCount != 1 {
		t.Errorf("a server that answers: %+v", f)
	}
	b.Backends[1].Sysctl(t, "net.ipv4.conf.all.arp_ignore", "1")
	if f := b.examine()["dr_arp"]; f.Status != doctor.OK {
		t.Errorf("it answers no longer: %+v", f)
	}

	b.Director.IP(t, "link set dev front multicast off")
	f := b.examine()["sync_device"]
	if f.Status != doctor.Fail {
		t.Fatalf("without multicast: %+v", f)
	}
	b.mend(f)
	if f := b.examine()["sync_device"]; f.Status != doctor.OK {
		t.Errorf("mended: %+v", f)
	}
}
