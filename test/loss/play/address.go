package play

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/daemon"
)

// viaDirector is how a client reaches addresses that are not on its network: as behind a
// router that goes on sending here whatever is announced.
const viaDirector = "via 192.0.2.1"

// elsewhere takes the virtual addresses off the director, for a daemon to put them there.
// keepalived's checkers put none there at the start: whoever uses scripts has them there.
func (r *run) elsewhere() {
	r.top.Director.IP(r, fmt.Sprintf("address del %v/32 dev front", vipOf(0)))
	r.top.Client.IP(r, fmt.Sprintf("route add %v/32 %s", vipOf(0), viaDirector))
	if r.sluice() {
		return
	}
	r.top.Director.IP(r, "link add name "+vipDevice+" type dummy", "link set dev "+vipDevice+" up")
	for v := range r.addresses() {
		r.top.Director.IP(r, fmt.Sprintf("address add %v/32 dev %s", vipOf(v), vipDevice))
	}
}

// on says whether a virtual address is on a device.
func (r *run) on(v int, device string) bool {
	return strings.Contains(r.top.Director.Run(r, "ip", "-o", "-4", "address", "show"), fmt.Sprintf(" %s    inet %v/32 ", device, vipOf(v)))
}

// announced waits until a virtual address is on a device, or is not.
func (r *run) announced(v int, device string, want bool) {
	testkit.Eventually(r, daemon.Patience, func() string {
		if r.on(v, device) != want {
			return fmt.Sprintf("%v on %s: %v, want %v", vipOf(v), device, !want, want)
		}
		return ""
	})
}

// away ends the short requests: a router that has heard of the withdrawal sends new
// connections elsewhere.
func (r *run) away() {
	for _, s := range r.shorts {
		s.client.Close()
	}
}

// follow has the address come and go with the quorum. Clients whose packets come here all
// the same are served on.
func follow(r *run) {
	r.fail(1, 2)
	r.announced(0, vipDevice, false)
	r.serves(4)
	r.out(3)
	r.pause(while)
	r.recover(1, 2)
	r.in(1, 2, 3)
	r.announced(0, vipDevice, true)
	r.pause(while)
}

// withdrawn takes a virtual server out, address and all.
func withdrawn(r *run) {
	r.write(addressed(with(1, 2, 3)))
	r.prog.hup()
	if r.sluice() {
		r.announced(1, vipDevice, false)
	}
	testkit.Eventually(r, daemon.Patience, func() string {
		for key, weight := range r.weights() {
			if weight > 0 && strings.HasPrefix(key, fmt.Sprintf("tcp %v:80 ", vipOf(1))) {
				return "still in: " + key
			}
		}
		return ""
	})
	r.settle()
	r.pause(while)
}

// passive takes the whole director out and back. With keepalived that is to remove the
// address and to stop it.
func passive(r *run) {
	if r.sluice() {
		r.passive(true)
	} else {
		r.top.Director.IP(r, fmt.Sprintf("address del %v/32 dev %s", vipOf(0), vipDevice))
	}
	r.announced(0, vipDevice, false)
	r.away()
	if !r.sluice() {
		r.prog.stop()
	}
	r.out(1, 2, 3)
	r.pause(while)
	if r.sluice() {
		r.passive(false)
	} else {
		r.prog.start()
		r.top.Director.IP(r, fmt.Sprintf("address add %v/32 dev %s", vipOf(0), vipDevice))
	}
	r.in(1, 2, 3)
	r.announced(0, vipDevice, true)
	r.ask()
	r.settle()
	r.pause(while)
}

func (r *run) passive(on bool) {
	r.command(func(ctx context.Context, c *control.Client) error {
		_, err := c.SetPassive(ctx, control.PassiveOrder{Passive: on, Reason: "maintenance"})
		return err
	})
}

// moved has a reload put the address on another device, and back.
func moved(r *run) {
	for _, device := range []string{otherDevice, vipDevice} {
		c := addressed(with(1, 2, 3))
		c.Device = device
		r.reload(c)
		r.announced(0, device, true)
		for _, other := range []string{otherDevice, vipDevice} {
			r.announced(0, other, other == device)
		}
		r.settle()
		r.pause(while / 2)
	}
}

// addressed is a configuration whose addresses are put on a device.
func addressed(pools ...Pool) Conf { return Conf{Device: vipDevice, Pools: pools} }
