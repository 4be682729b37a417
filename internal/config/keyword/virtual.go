package keyword

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// openVirtual reads the three forms of a virtual server's name.
func openVirtual(f *frame, n *syntax.Node, child *frame) bool {
	vs := &rawVirtual{f: child, weight: 1, quorum: 1, reals: make([]*rawReal, 0, len(n.Children))}
	child.vs = vs
	kw := f.words[n.Keyword()]
	args := n.Args()
	then := outcome{"this virtual server is not served; ", n}
	switch args[0].Text {
	case "fwmark":
		if len(args) < 2 {
			f.missing(n, kw)
			return false
		}
		mark, ok := f.number(n, &n.Words[2], strictNumber(0, maxUint32), "virtual_server fwmark", then.String())
		if ok && mark == 0 {
			f.report(codeZeroMark, n, &n.Words[2], "virtual_server fwmark 0: no packet has mark 0", then.String())
			ok = false
		}
		vs.kind, vs.mark = byMark, uint32(mark)
		f.surplus(n, 2)
		return ok
	case "group":
		if len(args) < 2 {
			f.missing(n, kw)
			return false
		}
		vs.kind, vs.group = byGroup, args[1].Text
		f.surplus(n, 2)
		return true
	}
	var ok bool
	vs.addr, vs.port, ok = f.addressPort(n, "virtual_server", then)
	vs.family = config.FamilyOf(vs.addr)
	return ok
}

// addressPort reads IP [PORT] after a keyword; a port of zeros is none.
func (f *frame) addressPort(n *syntax.Node, what string, then outcome) (netip.Addr, uint16, bool) {
	ip, ok := f.address(n, &n.Words[1], what, then)
	if !ok {
		return ip, 0, false
	}
	var p uint16
	if len(n.Words) > 2 {
		if p, ok = f.port(n, &n.Words[2], what, true, then); !ok {
			return ip, 0, false
		}
	}
	f.surplus(n, 2)
	return ip, p, true
}

func closeVirtual(child *frame) {
	child.b.raw.virtuals = append(child.b.raw.virtuals, child.vs)
}

func setFamily(f *frame, v *value) {
	family := config.IPv4
	if v.text == "inet6" {
		family = config.IPv6
	}
	if f.vs.family != config.FamilyUnknown && f.vs.family != family {
		f.report(codeFamily, v.n, v.w, fmt.Sprintf("ip_family %s, but this virtual server is %s", v.text, f.vs.family), "the line is ignored, as keepalived does")
		return
	}
	f.vs.family = family
}

func setScheduler(f *frame, v *value) {
	w := &v.n.Words[1]
	f.surplus(v.n, 1)
	if slices.Contains(schedulers, w.Text) {
		f.vs.sched.set(w.Text)
		f.vs.schedBad = false
		return
	}
	f.vs.sched.set("")
	f.vs.schedBad = true
	f.report(codeScheduler, v.n, w, fmt.Sprintf("%s: unknown scheduler %q", v.kw.name, w.Text),
		didYouMean(w.Text, schedulers, "write one of "+strings.Join(schedulers, ", ")+"; this virtual server is not served; keepalived would use wlc"))
}

// schedFlag makes the setter of a flag that belongs to one scheduler.
func schedFlag(scheduler string, number int) func(*frame, *value) {
	return func(f *frame, v *value) {
		switch f.vs.sched.v {
		case scheduler:
			if number == 1 {
				f.vs.flags.Flag1 = true
			} else {
				f.vs.flags.Flag2 = true
			}
		case "sh", "mh":
			f.report(codeOtherFlag, v.n, v.w, fmt.Sprintf("%s belongs to the scheduler %s, and this is %s", v.kw.name, scheduler, f.vs.sched.v),
				fmt.Sprintf("it has no effect, as with keepalived; did you mean %q?", f.vs.sched.v+v.kw.name[2:]))
		default:
			f.report(codeOrder, v.n, v.w, fmt.Sprintf("%s needs lvs_sched %s before it", v.kw.name, scheduler), "the line is ignored, as keepalived does")
		}
	}
}

var methods = []string{"NAT", "DR", "TUN"}

// parseMethod reads a method with its options from the words of a statement.
func (f *frame) parseMethod(n *syntax.Node, then string) methodWord {
	args := n.Args()
	var m methodWord
	switch args[0].Text {
	case "NAT":
		m.fwd.Method = config.NAT
	case "DR":
		m.fwd.Method = config.DR
	case "TUN":
		m.fwd.Method = config.TUN
	default:
		f.report(codeMethod, n, &n.Words[1], fmt.Sprintf("%s: unknown forwarding method %q", n.Keyword(), args[0].Text),
			didYouMean(args[0].Text, methods, "write NAT, DR or TUN; "+then))
		return methodWord{bad: true}
	}
	if m.fwd.Method != config.TUN {
		f.surplus(n, 1)
		return m
	}
	if opts, ok := f.tunnelOptions(n, args[1:]); ok {
		opts.Method = m.fwd.Method
		m.fwd = opts
	}
	return m
}

// tunnelOptions reads what may follow TUN. One bad option voids all of them.
func (f *frame) tunnelOptions(n *syntax.Node, args []syntax.Word) (config.Forwarding, bool) {
	var o config.Forwarding
	bad := func(w *syntax.Word, msg string) (config.Forwarding, bool) {
		f.report(codeMethodOption, n, w, n.Keyword()+": "+msg, "all tunnel options of this line are ignored, as keepalived does: the tunnel is ipip")
		return o, false
	}
	checksum := false
	for i := 0; i < len(args); i++ {
		w := &args[i]
		switch w.Text {
		case "type", "port":
			if i+1 == len(args) {
				return bad(w, w.Text+" needs a value")
			}
			i++
			if w.Text == "port" {
				p, ok := f.port(n, &args[i], n.Keyword()+" port", false, then("all tunnel options of this line are ignored, as keepalived does: the tunnel is ipip"))
				if !ok {
					return o, false
				}
				o.Port = p
				continue
			}
			switch args[i].Text {
			case "ipip":
				o.Tunnel = config.IPIP
			case "gue":
				o.Tunnel = config.GUE
			case "gre":
				o.Tunnel = config.GRE
			default:
				return bad(&args[i], fmt.Sprintf("tunnel type %q is not one of ipip, gue, gre", args[i].Text))
			}
		case "nocsum":
			o.Checksum, checksum = config.NoCsum, true
		case "csum":
			o.Checksum, checksum = config.Csum, true
		case "remcsum":
			o.Checksum, checksum = config.RemCsum, true
		default:
			return bad(w, fmt.Sprintf("unknown tunnel option %q; there are type, port, nocsum, csum and remcsum", w.Text))
		}
	}
	switch {
	case o.Tunnel == config.GUE && o.Port == 0:
		return bad(&n.Words[1], "type gue needs a port")
	case o.Tunnel != config.GUE && o.Port != 0:
		return bad(&n.Words[1], "only type gue has a port")
	case o.Tunnel == config.IPIP && checksum:
		return bad(&n.Words[1], "type ipip has no checksum option")
	case o.Tunnel == config.GRE && o.Checksum == config.RemCsum:
		return bad(&n.Words[1], "type gre has no remcsum")
	}
	return o, true
}

func setMethod(f *frame, v *value) {
	if f.rs != nil {
		f.rs.method.set(f.parseMethod(v.n, "this real server is not served; keepalived would use the virtual server's method"))
		f.rs.own = true
		return
	}
	f.vs.method.set(f.parseMethod(v.n, "this virtual server is not served; keepalived would use NAT"))
}

// setPersistence reads persistence_timeout. People write 0 for none, which
// keepalived refuses, with the same result.
func setPersistence(f *frame, v *value) {
	f.surplus(v.n, 1)
	if len(v.n.Words) == 1 {
		f.vs.persistence = 360
		return
	}
	w := &v.n.Words[1]
	if w.Text == "0" && f.vs.persistence == 0 {
		f.report(codePersistenceOff, v.n, w, "persistence_timeout 0 is outside 1-2678400", "there is no persistence, as was meant; delete the line")
		return
	}
	if num, ok := f.number(v.n, w, strictNumber(1, 2678400), v.kw.name, f.ignored(v.kw)); ok {
		f.vs.persistence = uint32(num)
	}
}

// setGranularity reads a mask. Its family is the virtual server's, else guessed
// from a dot, as keepalived does.
func setGranularity(f *frame, v *value) {
	w := &v.n.Words[1]
	f.surplus(v.n, 1)
	family := f.vs.family
	if family == config.FamilyUnknown {
		family = config.IPv6
		if strings.Contains(w.Text, ".") {
			family = config.IPv4
		}
	}
	if family == config.IPv6 {
		prefix, ok := f.number(v.n, w, strictNumber(1, 128), "persistence_granularity", f.ignored(v.kw))
		if !ok {
			return
		}
		f.vs.granularity = uint32(prefix)
	} else {
		mask, err := netip.ParseAddr(w.Text)
		if err != nil || !mask.Is4() {
			hint := f.ignored(v.kw)
			if p, err := strconv.Atoi(w.Text); err == nil && p >= 1 && p <= 32 {
				hint = fmt.Sprintf("write %s; the line is ignored, and keepalived would take it for 0.0.0.%d", dotted(p), p)
			}
			f.report(codeGranularity, v.n, w, fmt.Sprintf("persistence_granularity: %q is not a dotted mask", w.Text), hint)
			return
		}
		b := mask.As4()
		f.vs.granularity = binary.BigEndian.Uint32(b[:])
		if f.vs.granularity == 0 {
			f.report(codeGranularity, v.n, w, "persistence_granularity 0.0.0.0 makes all clients one", f.ignored(v.kw))
			return
		}
	}
	f.vs.granAt, f.vs.family = v.n, family
	if f.vs.persistence == 0 {
		f.vs.persistence = 360
	}
}

// dotted is the mask of a prefix length.
func dotted(prefix int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], bits.Reverse32(uint32(1<<prefix-1)))
	return netip.AddrFrom4(b)
}

func setSorry(f *frame, v *value) {
	ip, port, ok := f.addressPort(v.n, "sorry_server", then(f.ignored(v.kw)))
	if !ok {
		return
	}
	f.vs.sorry = &rawSorry{n: v.n, addr: ip, port: port, method: f.vs.method}
}

func (f *frame) needSorry(v *value) bool {
	if f.vs.sorry == nil {
		f.report(codeOrder, v.n, &v.n.Words[0], v.kw.name+" needs sorry_server before it", "the line is ignored, as keepalived does")
	}
	return f.vs.sorry != nil
}

func setSorryMethod(f *frame, v *value) {
	if f.needSorry(v) {
		f.vs.sorry.method.set(f.parseMethod(v.n, "the sorry server is left out; keepalived would use the virtual server's method"))
	}
}

// openReal reads a real server's name.
func openReal(f *frame, n *syntax.Node, child *frame) bool {
	rs := &rawReal{f: child, method: f.vs.method}
	child.rs = rs
	var ok bool
	rs.addr, rs.port, ok = f.addressPort(n, "real_server", outcome{"this real server is not served; ", n})
	if ok {
		f.vs.reals = append(f.vs.reals, rs)
	}
	return ok
}
