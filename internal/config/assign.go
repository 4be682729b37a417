package config

import (
	"fmt"
	"math"
)

// Assign gives the marks of nftables_ipvs and check_via to a configuration that nobody
// else has seen yet. What earlier had a mark keeps it as long as it may have it; the
// rest get the lowest free ones, in file order. Not free are those that the file itself
// uses, and, while there are others, those that earlier had and nobody has any more: the
// kernel may still have a service of that mark, which drains.
//
// The marks of groups begin at nftables_ipvs_start_fwmark and leave out the range of
// check_via; those of check_via follow check_via_mark, which has none itself. On an
// error nothing was given.
func Assign(cfg *Config, earlier Marks) (Marks, error) {
	used := marksOfFile(cfg)
	base := cfg.Global.ViaMark
	if base == 0 {
		base = ViaMark
	}
	marks := Marks{}
	if n := cfg.Global.NFTables; n != nil {
		keys := groupKeys(cfg)
		a := allotment{first: uint64(n.FirstMark), last: math.MaxUint32, skip: base}
		var ok bool
		if marks.Groups, ok = allot(a, keys, earlier.Groups, used); !ok {
			return Marks{}, fmt.Errorf("nftables_ipvs_start_fwmark %d: no marks are left above it for %d groups; write a smaller one", n.FirstMark, len(keys))
		}
	}
	keys, checks := viaKeys(cfg)
	var ok bool
	a := allotment{first: uint64(base) + 1, last: uint64(base | ^ViaMask)}
	if marks.Via, ok = allot(a, keys, earlier.Via, used); !ok {
		return Marks{}, fmt.Errorf("check_via: %d real servers need a mark each, and the %d from check_via_mark %#x that nobody else uses do not suffice; check fewer of them through the data path", len(keys), a.last-a.first+1, base)
	}
	for _, vs := range cfg.VirtualServers {
		vs.Mark = marks.Groups[MarkKey{vs.Key.Group, vs.Protocol}]
	}
	for _, c := range checks {
		v := c.Conn.Via
		v.Mark = marks.Via[ViaKey{v.Server, v.Forward}]
		c.Conn.FWMark = v.Mark
	}
	return marks, nil
}

// marksOfFile are those that an operator wrote.
func marksOfFile(cfg *Config) map[uint32]bool {
	used := map[uint32]bool{}
	for _, vs := range cfg.VirtualServers {
		for _, e := range vs.Entries {
			if e.FWMark != 0 {
				used[e.FWMark] = true
			}
		}
		for _, rs := range vs.RealServers {
			for _, c := range rs.Checkers {
				if c.Conn.FWMark != 0 && c.Conn.Via == nil {
					used[c.Conn.FWMark] = true
				}
			}
		}
	}
	return used
}

// groupKeys are the groups with addresses, in file order.
func groupKeys(cfg *Config) []MarkKey {
	var keys []MarkKey
	seen := map[MarkKey]bool{}
	for _, vs := range cfg.VirtualServers {
		k := MarkKey{vs.Key.Group, vs.Protocol}
		if k.Group == "" || seen[k] {
			continue
		}
		for _, e := range vs.Entries {
			if e.Addr.IsValid() {
				seen[k], keys = true, append(keys, k)
				break
			}
		}
	}
	return keys
}

// viaKeys are the ways that checks lead through, in file order, and those checks.
func viaKeys(cfg *Config) (keys []ViaKey, checks []*Checker) {
	seen := map[ViaKey]bool{}
	for _, vs := range cfg.VirtualServers {
		for _, rs := range vs.RealServers {
			for _, c := range rs.Checkers {
				v := c.Conn.Via
				if v == nil {
					continue
				}
				checks = append(checks, c)
				if k := (ViaKey{v.Server, v.Forward}); !seen[k] {
					seen[k], keys = true, append(keys, k)
				}
			}
		}
	}
	return keys, checks
}

// allotment is a range of marks, without those of check_via at skip if that is set.
type allotment struct {
	first, last uint64
	skip        uint32
}

func (a *allotment) has(m uint32) bool {
	return m != 0 && uint64(m) >= a.first && uint64(m) <= a.last && (a.skip == 0 || m&ViaMask != a.skip)
}

// allot gives each key a mark; ok is false when there are not enough.
func allot[K comparable](a allotment, keys []K, earlier map[K]uint32, used map[uint32]bool) (given map[K]uint32, ok bool) {
	given = make(map[K]uint32, len(keys))
	taken := make(map[uint32]bool, len(keys))
	for _, k := range keys {
		if m := earlier[k]; a.has(m) && !used[m] && !taken[m] {
			given[k], taken[m] = m, true
		}
	}
	gone := map[uint32]bool{}
	for _, m := range earlier {
		if !taken[m] {
			gone[m] = true
		}
	}
	next := a.first
	for _, k := range keys {
		if given[k] != 0 {
			continue
		}
		for {
			if next > a.last {
				if len(gone) == 0 {
					return nil, false
				}
				gone, next = nil, a.first
			}
			m := uint32(next)
			if a.skip != 0 && m&ViaMask == a.skip {
				next = uint64(a.skip|^ViaMask) + 1
				continue
			}
			next++
			if a.has(m) && !used[m] && !taken[m] && !gone[m] {
				given[k], taken[m] = m, true
				break
			}
		}
	}
	return given, true
}
