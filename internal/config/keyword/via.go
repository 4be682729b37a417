package keyword

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-lb/sluice/internal/config"
)

// viaWord is check_via as written; at says nothing if it was not.
type viaWord struct {
	on bool
	at said
}

// viaUse is a checker that is to ask the virtual address.
type viaUse struct {
	at said
	r  *rawReal
	c  *rawChecker
}

// wantsVia tells whether a checker is to ask the virtual address. One that says itself
// where it goes does not.
func (b *builder) wantsVia(d *draft, r *rawReal, c *rawChecker) (viaUse, bool) {
	word := r.via
	if word.at.n == nil {
		word = d.raw.via
	}
	switch {
	case !word.on:
		return viaUse{}, false
	case c.ip.IsValid():
		b.viaOwn = append(b.viaOwn, c)
		return viaUse{}, false
	case c.mark != 0:
		c.f.reportBlock(codeCheckVia, fmt.Sprintf("%s of %s has a fwmark, and check_via gives its packets one", c.kind, title(r.f.n)),
			"the check keeps its fwmark and asks the real server at its own address; delete fwmark, or write check_via off")
		return viaUse{}, false
	}
	return viaUse{at: word.at, r: r, c: c}, true
}

// remember keeps such a checker until the addresses of its virtual server are known.
func (d *draft) remember(ck *config.Checker, u viaUse) {
	if d.via == nil {
		d.via = map[*config.Checker]viaUse{}
	}
	d.via[ck] = u
}

// viaChecks turns the checks of a virtual server that are to ask the virtual address to
// it. One that cannot asks the real server.
func (b *builder) viaChecks(d *draft) {
	if len(d.via) == 0 {
		return
	}
	target := map[config.Family]netip.Addr{}
	for _, a := range d.vs.Addresses() {
		if f := config.FamilyOf(a); !target[f].IsValid() {
			target[f] = a
		}
	}
	for _, rd := range d.order {
		rs := rd.rs
		vip := target[config.FamilyOf(rs.Key.Addr())]
		o := obstacle(rs, vip, len(target) > 0)
		rs.Checkers = slices.DeleteFunc(rs.Checkers, func(ck *config.Checker) bool {
			u, is := d.via[ck]
			if !is {
				return false
			}
			if o != viaClear {
				b.noVia(d, u, rs, o)
			} else {
				b.turn(d, rs, ck, u.c, vip)
			}
			return ck.Kind != config.PingCheck && ck.Conn.Target.Port() == 0 && !b.servicePortFor(d, u.r, u.c, ck, rs.Key.Port())
		})
		if len(rs.Checkers) == 0 {
			rs.Checkers = nil
		}
	}
}

// viaObstacle is why no check can reach a virtual address through a real server.
type viaObstacle int

const (
	viaClear viaObstacle = iota
	viaMethod
	viaLinkLocal
	viaUnknown
	viaFamily
)

func obstacle(rs *config.RealServer, vip netip.Addr, known bool) viaObstacle {
	switch m := rs.Forward.Method; {
	case m != config.DR && m != config.TUN:
		return viaMethod
	case rs.Key.Addr().IsLinkLocalUnicast():
		return viaLinkLocal
	case vip.IsValid():
		return viaClear
	case known:
		return viaFamily
	}
	return viaUnknown
}

// noVia reports a real server, once for each line that asks for check_via.
func (b *builder) noVia(d *draft, u viaUse, rs *config.RealServer, o viaObstacle) {
	if b.viaTold[u.at] {
		return
	}
	if b.viaTold == nil {
		b.viaTold = map[said]bool{}
	}
	b.viaTold[u.at] = true
	why, hint := "", "write check_via off in it"
	switch o {
	case viaMethod:
		why = fmt.Sprintf("has lvs_method %s, and only with DR or TUN has it the virtual address itself", rs.Forward.Method)
		hint += ", or lvs_method DR or TUN if that is how it is set up"
	case viaLinkLocal:
		why = "has a link-local address, through which no route can lead"
	case viaFamily:
		why = fmt.Sprintf("is %s, and %s has no virtual address of that family to ask for", config.FamilyOf(rs.Key.Addr()), title(d.raw.f.n))
	default:
		why, hint = "is behind a firewall mark, which does not tell for which address it stands", "write vip_address in "+title(d.raw.f.n)
	}
	n := u.at.n
	u.at.f.report(codeCheckVia, n, &n.Words[0], fmt.Sprintf("check_via: %s %s", title(u.r.f.n), why), "its checks ask it at its own address; "+hint, "the real server is on "+lineOf(rs.Pos, n.Pos))
}

// turn has a checker ask the virtual address, at the port that it names itself, else at
// the service's, else at the real server's.
func (b *builder) turn(d *draft, rs *config.RealServer, ck *config.Checker, c *rawChecker, vip netip.Addr) {
	conn, port := &ck.Conn, uint16(0)
	if ck.Kind != config.PingCheck {
		if port = c.port; port == 0 {
			port = portAt(d.vs, vip)
		}
		if port == 0 {
			port = conn.Target.Port()
		}
	}
	conn.Target = addrPort(vip, port)
	conn.Via = b.pool.via.of(config.Via{Server: rs.Key.Addr(), Forward: rs.Forward})
	if conn.BindIf != "" {
		c.f.reportBlock(codeCheckVia, fmt.Sprintf("%s: bind_if %s under check_via", c.kind, conn.BindIf), "bind_if is ignored: check_via decides by which device its packets leave; delete it, or write check_via off")
		conn.BindIf = ""
	}
	if conn.BindAddr == vip {
		c.f.reportBlock(codeCheckVia, fmt.Sprintf("%s: bindto %s is the virtual address that check_via asks", c.kind, vip), "bindto is ignored: a real server drops packets that seem to come from itself; write another address of this host, or none")
		conn.BindAddr, conn.BindPort = netip.Addr{}, 0
	}
}

// portAt is the port of a virtual server's first service at an address, 0 if it is for
// every port or not known.
func portAt(vs *config.VirtualServer, vip netip.Addr) uint16 {
	for _, e := range vs.Entries {
		if e.Addr.Addr() == vip && e.Addr.Port() != 0 {
			return e.Addr.Port()
		}
	}
	return 0
}

// viaOwnNotice is said once for a file.
func (b *builder) viaOwnNotice() {
	if len(b.viaOwn) == 0 {
		return
	}
	var notes []string
	if n := len(b.viaOwn); n > 1 {
		notes = append(notes, fmt.Sprintf("and %d more in this configuration", n-1))
	}
	c := b.viaOwn[0]
	c.f.reportBlock(codeViaOwn, fmt.Sprintf("%s has a connect_ip, so that check_via does not change where it goes", c.kind), "delete connect_ip to check through the data path", notes...)
}
