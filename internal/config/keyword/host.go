package keyword

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// said is where something was written.
type said struct {
	f *frame
	n *syntax.Node
}

// rawVIP is what global_defs or a virtual server says of its addresses.
type rawVIP struct {
	device   opt[string]
	follow   opt[config.VIPFollow]
	followAt said
	guard    opt[bool]
	// ranges are vip_address.
	ranges []vipRange
	size   int
}

// vipRange is one word of vip_address.
type vipRange struct {
	start, last netip.Addr
	n           *syntax.Node
	w           *syntax.Word
}

func setVIPDevice(of func(*frame) *rawVIP) func(*frame, *value) {
	return func(f *frame, v *value) {
		w := &v.n.Words[1]
		f.surplus(v.n, 1)
		name := w.Text
		if name == "none" {
			of(f).device.set("")
			return
		}
		if bad := config.BadDevice(name); bad != "" {
			f.report(codeVIPDevice, v.n, w, fmt.Sprintf("vip_device: %q %s", name, bad), "write the name of a network device, 1-15 bytes without blanks, / and :, or none; "+f.ignored(v.kw))
			return
		}
		of(f).device.set(name)
	}
}

// setVIPAddress reads addresses as a group has them. Their family is known later.
func setVIPAddress(f *frame, v *value) {
	vip := &f.vs.vip
	for i := range v.n.Args() {
		w := &v.n.Words[i+1]
		start, last, why := addressRange(w.Text)
		if why != "" {
			f.report(codeVIPAddress, v.n, w, fmt.Sprintf("vip_address: %q: %s", w.Text, why), "it is left out; write an address, or a range as in a virtual_server_group")
			continue
		}
		size, small := rangeSize(start, last)
		if !small || vip.size+size > maxGroup {
			f.report(codeGroupSize, v.n, w, fmt.Sprintf("vip_address: with %q there would be more than %d addresses", w.Text, maxGroup), "it is left out")
			continue
		}
		vip.size += size
		vip.ranges = append(vip.ranges, vipRange{start, last, v.n, w})
	}
}

func setViaMark(f *frame, v *value) {
	w := &v.n.Words[1]
	f.surplus(v.n, 1)
	digits, base := w.Text, 10
	if rest, hex := strings.CutPrefix(digits, "0x"); hex {
		digits, base = rest, 16
	}
	const allowed = "write a multiple of 0x10000 within 0x10000-0xffff0000"
	num, err := strconv.ParseUint(digits, base, 64)
	switch {
	case err != nil && !isRange(err):
		f.report(codeNumber, v.n, w, fmt.Sprintf("check_via_mark: %q is not a number", w.Text), allowed+"; "+f.ignored(v.kw))
	case err != nil || num == 0 || num > uint64(config.ViaMask) || uint32(num)&^config.ViaMask != 0:
		f.report(codeRange, v.n, w, fmt.Sprintf("check_via_mark %s has other bits than the upper 16, or none", w.Text), allowed+"; "+f.ignored(v.kw))
	default:
		f.b.raw.global.ViaMark = uint32(num)
	}
}

// setPassive reads a switch or a file that is one.
func setPassive(f *frame, v *value) {
	w := &v.n.Words[1]
	raw := &f.b.raw
	if w.Text == "track_file" {
		if name, ok := f.trackName(v.n); ok {
			raw.passiveFile, raw.passiveAt, raw.global.Passive.On = name, said{f, v.n}, false
		}
		return
	}
	f.surplus(v.n, 1)
	on := slices.Contains([]string{"on", "true", "yes"}, w.Text)
	if !on && !slices.Contains([]string{"off", "false", "no"}, w.Text) {
		f.report(codeWord, v.n, w, fmt.Sprintf("passive: %q is not one of on, off, track_file", w.Text), didYouMean(w.Text, []string{"on", "off", "track_file"}, f.ignored(v.kw)))
		return
	}
	raw.passiveFile, raw.global.Passive.On = "", on
}

// trackName reads the name after the word track_file of a keyword in global_defs.
func (f *frame) trackName(n *syntax.Node) (string, bool) {
	if len(n.Words) < 3 {
		f.report(codeTrackFileUse, n, &n.Words[1], n.Keyword()+" track_file names no track_file", "the line is ignored; write "+n.Keyword()+" track_file NAME")
		return "", false
	}
	f.surplus(n, 2)
	return n.Words[2].Text, true
}

// globalTrack resolves a track file of global_defs, which may well stand before it.
func (b *builder) globalTrack(name string, at said, then string) *config.TrackFileUse {
	t := b.raw.tracks[name]
	if t == nil {
		at.f.report(codeTrackFileUse, at.n, &at.n.Words[2], fmt.Sprintf("there is no track_file %s", name), b.didYouMean(name, b.raw.trackNames, then))
		return nil
	}
	b.globalTracks = append(b.globalTracks, name)
	// The number itself counts, and not what it would do to a weight.
	return &config.TrackFileUse{Name: name, Weight: 1}
}

// defaultNFTable is keepalived's name of the table of nftables_ipvs.
const defaultNFTable = "keepalived_ipvs"

// maxNFTable is the kernel's bound of a table's name.
const maxNFTable = 255

func setNFTables(f *frame, v *value) {
	if len(v.text) > maxNFTable {
		f.report(codeWord, v.n, v.w, fmt.Sprintf("nftables_ipvs: the name has %d bytes", len(v.text)), fmt.Sprintf("write one of at most %d bytes; %s", maxNFTable, f.ignored(v.kw)))
		return
	}
	f.b.raw.global.NFTables = &config.NFTables{Pos: v.n.Pos, Table: firstText(v.text, defaultNFTable), Priority: -1, FirstMark: 1000}
}

// nftablesWord makes the setter of a word that nftables_ipvs resets.
func nftablesWord(set func(*config.NFTables, *value)) func(*frame, *value) {
	return func(f *frame, v *value) {
		t := f.b.raw.global.NFTables
		if t == nil {
			f.report(codeNFTables, v.n, &v.n.Words[0], v.kw.name+" has no effect without nftables_ipvs before it", "the line is ignored, as keepalived does; write nftables_ipvs first")
			return
		}
		set(t, v)
	}
}

// hostGlobals finishes what global_defs says of the machine.
func (b *builder) hostGlobals(g *config.Global) {
	if g.NFTables != nil {
		g.NFTables.Counters = b.raw.nftCounters
	}
	if name := b.raw.passiveFile; name != "" {
		g.Passive.File = b.globalTrack(name, b.raw.passiveAt, "this director is not passive")
	}
}

// vip resolves what becomes of a virtual server's addresses.
func (b *builder) vip(d *draft, family config.Family) {
	r, all := &d.raw.vip, &b.raw.vip
	d.vs.VIP = config.VIP{
		Device: b.pool.text(first("", r.device, all.device)),
		Follow: first(config.VIPAlways, r.follow, all.follow),
		Guard:  first(false, r.guard, all.guard),
	}
	if len(r.ranges) == 0 {
		return
	}
	marked := slices.ContainsFunc(d.vs.Entries, func(e config.Entry) bool { return e.FWMark != 0 })
	if !marked {
		n := r.ranges[0].n
		d.raw.f.report(codeVIPAddress, n, &n.Words[0], fmt.Sprintf("vip_address in %s, which has no firewall mark", title(d.raw.f.n)), "the line is ignored: the addresses are those that it names")
		return
	}
	list := make([]netip.Addr, 0, r.size)
	for _, v := range r.ranges {
		if own := config.FamilyOf(v.start); family != config.FamilyUnknown && own != family {
			d.raw.f.report(codeVIPAddress, v.n, v.w, fmt.Sprintf("vip_address %s is %s, and its virtual server is %s", v.w.Text, own, family), "it is left out: the mark's service takes no packets of that family")
			continue
		}
		for a := v.start; ; a = a.Next() {
			list = append(list, a)
			if a == v.last {
				break
			}
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	if list = slices.Compact(list); len(list) > 0 {
		d.vs.VIPAddresses = slices.Clip(list)
	}
}

// host judges what the virtual servers want of the machine, now that all are known.
func (b *builder) host(drafts []*draft) {
	devices := map[netip.Addr]*draft{}
	guarded := map[netip.Addr]bool{}
	placed := false
	for _, d := range drafts {
		b.viaChecks(d)
		if d.vs.VIP == (config.VIP{}) {
			continue
		}
		addrs := d.vs.Addresses()
		if len(addrs) == 0 && (d.vs.VIP.Device != "" || d.vs.VIP.Guard) {
			what, none, has := "vip_device", "vip_device none", "has"
			switch {
			case d.vs.VIP.Device == "":
				what, none = "vip_guard", "vip_guard off"
			case d.vs.VIP.Guard:
				what, none, has = "vip_device and vip_guard", "vip_device none and vip_guard off", "have"
			}
			d.raw.f.reportBlock(codeVIPNothing, fmt.Sprintf("%s %s no effect for %s: its addresses are not known", what, has, title(d.raw.f.n)), "a firewall mark does not tell for which addresses it stands; write vip_address ADDRESS, or "+none)
		}
		b.oneDevice(d, addrs, devices)
		b.follows(d)
		placed = placed || d.vs.VIP.Device != ""
		if d.vs.VIP.Guard {
			for _, a := range addrs {
				guarded[a] = true
			}
		}
	}
	if at := b.raw.vip.followAt; at.n != nil && b.raw.vip.follow.v == config.VIPQuorum && !placed && b.raw.vip.device.v == "" {
		at.f.report(codeVIPFollow, at.n, &at.n.Words[0], "vip_follow quorum without vip_device", "it has no effect; write vip_device NAME")
	}
	b.guardedChecks(drafts, guarded)
}

// oneDevice holds each address to one device, and to one that brings it.
func (b *builder) oneDevice(d *draft, addrs []netip.Addr, devices map[netip.Addr]*draft) {
	vs, f := d.vs, d.raw.f
	if vs.VIP.Device == "" {
		return
	}
	if vs.HASuspend {
		n := d.raw.haAt
		f.report(codeVIPSuspend, n, &n.Words[0], "ha_suspend waits for an address that somebody else brings, and vip_device brings it", "ha_suspend is cleared; write vip_device none if keepalived's VRRP or another program moves the address")
		vs.HASuspend = false
	}
	conflict := func() (netip.Addr, *draft) {
		for _, a := range addrs {
			if other := devices[a]; other != nil && other.vs.VIP.Device != vs.VIP.Device {
				return a, other
			}
		}
		return netip.Addr{}, nil
	}
	if a, other := conflict(); other != nil {
		f.reportBlock(codeVIPConflict, fmt.Sprintf("%s wants %s on %s, and %s wants it on %s", title(f.n), a, vs.VIP.Device, title(other.raw.f.n), other.vs.VIP.Device),
			"the first one's device is used; write one vip_device for both", "the first one is on "+lineOf(other.vs.Pos, vs.Pos))
		vs.VIP.Device = other.vs.VIP.Device
		if _, other := conflict(); other != nil {
			vs.VIP.Device = "" // three devices for two addresses: the others bring them
			return
		}
	}
	for _, a := range addrs {
		devices[a] = d
	}
}

// follows says when vip_follow has nothing that could follow.
func (b *builder) follows(d *draft) {
	if d.vs.VIP.Device != "" || d.vs.VIP.Follow == config.VIPAlways {
		return
	}
	d.vs.VIP.Follow = config.VIPAlways
	if at := d.raw.vip.followAt; at.n != nil {
		at.f.report(codeVIPFollow, at.n, &at.n.Words[0], "vip_follow quorum without vip_device", "it has no effect; write vip_device NAME here or in global_defs")
	}
}

// guardedChecks warns of checks whose answers the guard refuses: to it they are new
// packets to a port that is no service. Those of TCP are no new connections.
func (b *builder) guardedChecks(drafts []*draft, guarded map[netip.Addr]bool) {
	if len(guarded) == 0 {
		return
	}
	for _, d := range drafts {
		for _, c := range d.bound {
			if guarded[c.bind] {
				c.f.reportBlock(codeGuardedCheck, fmt.Sprintf("%s has the source %s, which vip_guard guards", c.kind, c.bind), "its answers may be refused, and the real server be taken for dead; write another bindto, or leave it away")
			}
		}
	}
}
