package e2e

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// TestKernelEdgeLife: a day in the life of virtual addresses, with clients who stay
// connected all along. At each step the address goes before the table changes, and comes
// after.
func TestKernelEdgeLife(t *testing.T) {
	b := newEdge(t, 4)
	before := machine(t, b.Director)
	globals := edgeGlobals("#sluice vip_device "+device, "#sluice vip_delay 2", "#sluice vip_follow quorum", "#sluice vip_guard on")
	group := "virtual_server_group more {\n 198.51.100.20-22 80\n}\n"
	first := virtual(b.VIP.String()+" 80", "inhibit_on_failure\n quorum 2\n sorry_server RS4 80", 1, 2)
	others := virtual(b.VIP.String()+" 81", "", 3) +
		strings.NewReplacer("RS1", b.Backends[0].Addr6.String()).Replace(virtual(b.VIP6.String()+" 80", "", 1))
	b.write(globals + first + others + group + virtual("group more", "", 1, 2))
	b.start()
	const one, range20 = "198.51.100.10/32", "198.51.100.20/32 198.51.100.21/32 198.51.100.22/32"
	const six = "2001:db8:1::10/128"
	all := one + " " + range20 + " " + six
	b.on(device, all)
	member := netip.MustParseAddr("198.51.100.21")
	service, memberKey := "tcp "+b.VIP.String()+":80", "tcp "+member.String()+":80"
	stay := []*testkit.Long{b.holds(b.VIP, 80, 4), b.holds(b.VIP6, 80, 2)}
	gone := b.holds(member, 80, 4)

	// Two services have the address: the one without quorum leaves it there.
	b.echo[2].Refuse()
	testkit.Eventually(t, patience, func() string {
		if got := b.weights("tcp " + b.VIP.String() + ":81"); got != "" {
			return "the other service still has " + got
		}
		return ""
	})
	if !b.has(b.VIP) {
		t.Error("one of two services of an address lost its quorum, and the address went")
	}

	// The last quorum goes, and the address before the healthy server does.
	f := b.film(b.VIP, 80)
	b.echo[0].Refuse()
	b.until("1:0 2:0 4:1")
	// The v6 service and the group have the failed server too: without a quorum the first,
	// with one server the second.
	b.on(device, range20)
	for _, route := range []string{"198.51.100.10", "2001:db8:1::10"} {
		family := "-4"
		if strings.Contains(route, ":") {
			family = "-6"
		}
		if got := b.Director.Run(t, "ip", family, "route", "show", "table", "local", "proto", "115"); !strings.Contains(got, "local "+route+" dev lo") {
			t.Errorf("what keeps %s local: %q", route, got)
		}
	}
	kept(b, "while the address is gone", stay[0])
	// Who has not heard of it yet is served.
	late := b.holds(b.VIP, 80, 2)
	b.echo[0].Start(t)
	b.until("1:1 2:1 4:0")
	b.on(device, all)
	f.cut(2*time.Second, "1:1 2:1", "1:0 2:1", "1:1 2:1 4:0")
	kept(b, "with the address back", stay[0], late)
	// The failed server's own service was cut, as everywhere without inhibit_on_failure.
	stay[1].Abort()
	gone.Abort()
	b.echo[2].Start(t)
	gone, stay[1] = b.holds(member, 80, 4), b.holds(b.VIP6, 80, 2)
	late.Abort()

	// A reload takes the group away: addresses first, then there is time, then it drains.
	f = b.film(member, 80)
	b.write(globals + first + others)
	b.daemon.Signal(t, syscall.SIGHUP)
	testkit.Eventually(t, patience, func() string {
		if got := b.weights(memberKey); got != "1:0 2:0" {
			return "the group's service has " + got
		}
		return ""
	})
	f.cut(2*time.Second, "1:1 2:1")
	b.on(device, one+" "+six)
	kept(b, "of a virtual server that was removed", gone)
	b.refuses(member.String() + ":80")
	kept(b, "after the drain began", gone)
	gone.Abort()

	// Passive and back. The address goes, everything drains, and --wait ends when the last
	// client does.
	stay = append(stay, b.holds(b.VIP, 81, 2))
	f = b.film(b.VIP, 80)
	wait := b.sluice("passive", "on", "--wait", "--reason", "kernel")
	b.until("1:0 2:0")
	f.cut(2*time.Second, "1:1 2:1", "1:1 2:1 4:0")
	kept(b, "of a passive director", stay...)
	b.on(device, "") // the device stays as long as something is kept local
	if !wait.Running() {
		t.Error("sluice passive on --wait ended before its clients")
	}
	b.says(0, "passive no longer", "passive", "off")
	b.until("1:1 2:1")
	b.on(device, one+" "+six)
	if status := wait.Wait(t, patience); status != 5 {
		t.Errorf("sluice passive on --wait, ended by somebody else: exit status %d", status)
	}
	kept(b, "of a director that is passive no longer", stay...)
	wait = b.sluice("passive", "on", "--wait")
	b.until("1:0 2:0")
	kept(b, "of a director that is passive again", stay...)
	for _, l := range stay {
		l.Abort()
	}
	if status := wait.Wait(t, patience); status != 0 {
		t.Errorf("sluice passive on --wait: exit status %d", status)
	}
	if got := testkit.ReadTable(t, b.Director); len(got) != 0 {
		t.Errorf("when sluice passive on --wait has ended the table holds\n%s", got)
	}
	b.refuses(service[len("tcp "):])
	b.says(0, "passive no longer", "passive", "off")
	b.on(device, one+" "+six)

	b.daemon.Signal(t, syscall.SIGTERM)
	if status := b.daemon.Wait(t, patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
	b.isAgain(before)
}
