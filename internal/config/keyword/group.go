package keyword

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// maxGroup bounds the services that one group stands for.
const maxGroup = 65536

func openGroup(f *frame, n *syntax.Node, child *frame) bool {
	f.surplus(n, 1)
	child.grp = &rawGroup{f: child, name: n.Words[1].Text, seen: map[config.Entry]diag.Pos{}}
	return true
}

// closeGroup reads the lines of a group. They hold no keywords but "fwmark".
func closeGroup(child *frame) {
	g := child.grp
	for _, n := range child.n.Children {
		switch {
		case n.Extension:
			child.report(codeNotExtension, n, &n.Words[0], "a group has no extensions", "the comment is ignored")
		case n.Keyword() == "fwmark":
			child.markEntry(n)
		default:
			child.addressEntry(n)
		}
		if n.Block {
			child.report(codeBlock, n, &n.Words[0], "a group entry takes no block", blockSkipped(n))
		}
	}
	switch old := child.b.raw.groups[g.name]; {
	case len(g.addrs)+len(g.marks) == 0:
		child.reportBlock(codeEmptyGroup, fmt.Sprintf("virtual_server_group %s has no usable entry", g.name), "it is dropped, as keepalived does")
		return
	case old != nil:
		child.reportBlock(codeDuplicate, fmt.Sprintf("virtual_server_group %s is defined twice", g.name), "the first one is used, as keepalived does in silence",
			"the first one is on "+lineOf(old.f.n.Pos, child.n.Pos))
		return
	}
	v4, v6, loose := g.families()
	if v4 && v6 && loose {
		child.reportBlock(codeFamily, fmt.Sprintf("virtual_server_group %s has IPv4 and IPv6 entries and a fwmark without a family", g.name),
			"the group is dropped, as keepalived does; write fwmark N inet or inet6")
		return
	}
	child.b.raw.groups[g.name] = g
	child.b.raw.groupNames = append(child.b.raw.groupNames, g.name)
}

// families tells which families a group has, and whether a mark has none.
func (g *rawGroup) families() (v4, v6, loose bool) {
	for _, list := range [][]rawEntry{g.addrs, g.marks} {
		for i := range list {
			switch list[i].Family {
			case config.IPv4:
				v4 = true
			case config.IPv6:
				v6 = true
			default:
				loose = true
			}
		}
	}
	return v4, v6, loose
}

const entrySkipped = "the entry is skipped, as keepalived does"

func (f *frame) markEntry(n *syntax.Node) {
	if len(n.Words) < 2 {
		f.report(codeMissing, n, &n.Words[0], "fwmark needs a number", "the configuration cannot be used; keepalived exits at this line")
		return
	}
	mark, ok := f.number(n, &n.Words[1], strictNumber(0, maxUint32), "fwmark", entrySkipped)
	if !ok {
		return
	}
	if mark == 0 {
		f.report(codeZeroMark, n, &n.Words[1], "fwmark 0: no packet has mark 0", "the entry is skipped")
		return
	}
	e := config.Entry{FWMark: uint32(mark)}
	if len(n.Words) > 2 {
		switch n.Words[2].Text {
		case "inet":
			e.Family = config.IPv4
		case "inet6":
			e.Family = config.IPv6
		default:
			f.report(codeWord, n, &n.Words[2], fmt.Sprintf("fwmark: %q is not one of inet, inet6", n.Words[2].Text), entrySkipped)
			return
		}
	}
	f.surplus(n, 2)
	f.add(n, e)
}

// addressEntry reads IP, IP-N, IP-IP or IP/M, each with an optional port.
func (f *frame) addressEntry(n *syntax.Node) {
	w := &n.Words[0]
	start, last, why := addressRange(w.Text)
	if why != "" {
		hint := entrySkipped
		if looksLikeComment(w.Text) {
			hint = fmt.Sprintf("%q does not start a comment; write # or !", w.Text)
		}
		f.report(codeGroupEntry, n, w, fmt.Sprintf("group entry %q: %s", w.Text, why), hint)
		return
	}
	var p uint16
	if len(n.Words) > 1 {
		var ok bool
		if p, ok = f.port(n, &n.Words[1], "group entry", true, then(entrySkipped)); !ok {
			return
		}
	}
	f.surplus(n, 1)
	if size, small := rangeSize(start, last); !small || len(f.grp.addrs)+size > maxGroup {
		f.report(codeGroupSize, n, w, fmt.Sprintf("group entry %q: the group would have more than %d addresses", w.Text, maxGroup),
			"the entry is skipped; use a firewall mark for a network as large as this")
		return
	}
	if p == 0 && f.grp.noPort == nil {
		f.grp.noPort = n
	}
	for a := start; ; a = a.Next() {
		f.add(n, config.Entry{Addr: netip.AddrPortFrom(a, p), Family: config.FamilyOf(a)})
		if a == last {
			return
		}
	}
}

// add keeps an entry unless the group has it.
func (f *frame) add(n *syntax.Node, e config.Entry) {
	g := f.grp
	if at, again := g.seen[e]; again {
		if at == n.Pos {
			return
		}
		if g.again != n {
			g.again = n
			f.report(codeSameEntry, n, &n.Words[0], fmt.Sprintf("%s is in this group twice", entryName(e)), "it is one service all the same",
				"the first time on "+lineOf(at, n.Pos))
		}
		return
	}
	g.seen[e] = n.Pos
	if e.FWMark != 0 {
		g.marks = append(g.marks, rawEntry{e, n})
	} else {
		g.addrs = append(g.addrs, rawEntry{e, n})
		if p := e.Addr.Port(); len(g.ports) < 2 && !slices.Contains(g.ports, p) {
			g.ports = append(g.ports, p)
		}
	}
}

// otherPort returns the port of the first address that has another one.
func (g *rawGroup) otherPort(port uint16) (other uint16, ok bool) {
	for _, p := range g.ports {
		if p != port {
			return p, true
		}
	}
	return 0, false
}

func entryName(e config.Entry) string {
	if e.FWMark != 0 {
		return fmt.Sprintf("fwmark %d", e.FWMark)
	}
	if e.Addr.Port() == 0 {
		return e.Addr.Addr().String()
	}
	return e.Addr.String()
}

// addressRange reads the address part of an entry; why is set on failure.
func addressRange(s string) (start, last netip.Addr, why string) {
	parse := func(s string) (netip.Addr, bool) {
		a, err := netip.ParseAddr(s)
		return a.Unmap(), err == nil && a.Zone() == ""
	}
	if base, bits, is := strings.Cut(s, "/"); is {
		a, ok := parse(base)
		if !ok {
			return start, last, "not an IP address"
		}
		m, err := strconv.Atoi(bits)
		if err != nil || m < 1 || m > a.BitLen() {
			return start, last, fmt.Sprintf("the prefix length is not within 1-%d", a.BitLen())
		}
		p := netip.PrefixFrom(a, m)
		if p.Masked().Addr() != a {
			return start, last, fmt.Sprintf("bits are set beyond the prefix; the network is %s", p.Masked())
		}
		return a, lastOf(p), ""
	}
	base, end, is := strings.Cut(s, "-")
	a, ok := parse(base)
	if !ok {
		return start, last, "not an IP address"
	}
	if !is {
		return a, a, ""
	}
	if strings.ContainsAny(end, ".:") {
		b, ok := parse(end)
		switch {
		case !ok:
			return start, last, "the end is not an IP address"
		case a.BitLen() != b.BitLen():
			return start, last, "start and end are of different families"
		case b.Less(a):
			return start, last, "the end is before the start"
		}
		return a, b, ""
	}
	b := a.AsSlice()
	if a.Is4() {
		n, err := strconv.ParseUint(end, 10, 8)
		if err != nil || n <= uint64(b[3]) {
			return start, last, fmt.Sprintf("the end is not a number from %d to 255", int(b[3])+1)
		}
		b[3] = byte(n)
	} else {
		n, err := strconv.ParseUint(end, 16, 16)
		if err != nil || n <= uint64(binary.BigEndian.Uint16(b[14:])) {
			return start, last, fmt.Sprintf("the end is not a hexadecimal number from %x to ffff", int(binary.BigEndian.Uint16(b[14:]))+1)
		}
		binary.BigEndian.PutUint16(b[14:], uint16(n))
	}
	last, _ = netip.AddrFromSlice(b)
	return a, last, ""
}

// lastOf is a network's highest address.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		switch free := (i+1)*8 - p.Bits(); {
		case free >= 8:
			b[i] = 0xff
		case free > 0:
			b[i] |= 1<<free - 1
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// rangeSize counts a range's addresses; small is false above maxGroup.
func rangeSize(start, last netip.Addr) (n int, small bool) {
	a, b := start.As16(), last.As16()
	for i := range 12 {
		if a[i] != b[i] {
			return 0, false
		}
	}
	d := uint64(binary.BigEndian.Uint32(b[12:])) - uint64(binary.BigEndian.Uint32(a[12:]))
	if d >= maxGroup {
		return 0, false
	}
	return int(d) + 1, true
}
