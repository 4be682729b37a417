package filter

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// id names a table.
type id struct {
	family nftables.TableFamily
	name   string
}

// String returns what nft calls it.
func (i id) String() string {
	switch i.family {
	case nftables.TableFamilyIPv4:
		return "ip " + i.name
	case nftables.TableFamilyIPv6:
		return "ip6 " + i.name
	}
	return "inet " + i.name
}

func (i id) compare(o id) int {
	return cmp.Or(cmp.Compare(i.family, o.family), cmp.Compare(i.name, o.name))
}

// table is a table as it should be, or as the kernel has it. It is not changed once it
// was made.
type table struct {
	id
	sets   []*set
	chains []*chain
	// ours is what a rule's comment says of one that was read.
	ours bool
}

// set is a set, or a map if data has a size. Keys and values are the kernel's bytes.
type set struct {
	name      string
	key, data nftables.SetDatatype
	// odd is a flag that ours never have, of one that was read.
	odd      bool
	elements map[string]string
}

// chain is a base chain of the input hook, or one that rules lead to.
type chain struct {
	name     string
	base     bool
	priority int32
	rules    [][]expr.Any
	// odd is what is not as in ours, of one that was read.
	odd string
}

func (t *table) set(name string) *set {
	if t == nil {
		return nil
	}
	for _, s := range t.sets {
		if s.name == name {
			return s
		}
	}
	return nil
}

// shape lists all of a table but the elements, a thing a line, sorted: two tables with
// one shape differ in elements alone.
func (t *table) shape() []string {
	if t == nil {
		return nil
	}
	lines := []string{"table " + t.String()}
	for _, s := range t.sets {
		lines = append(lines, fmt.Sprintf("set %s %s : %s odd %v", s.name, s.key.Name, s.data.Name, s.odd))
	}
	for _, c := range t.chains {
		lines = append(lines, fmt.Sprintf("chain %s base %v priority %d %s", c.name, c.base, c.priority, c.odd))
		for i, r := range c.rules {
			lines = append(lines, fmt.Sprintf("rule %s %d %s", c.name, i, encode(t.family, r)))
		}
	}
	slices.Sort(lines)
	return lines
}

// encode returns a rule as text that is equal for equal rules. What a counter counted is
// no part of it, nor is a change of byte order, which the library leaves out of a rule
// that it reads.
func encode(family nftables.TableFamily, rule []expr.Any) string {
	var text []byte
	for _, e := range rule {
		switch e.(type) {
		case *expr.Counter:
			e = &expr.Counter{}
		case *expr.Byteorder:
			continue
		}
		b, err := expr.Marshal(byte(family), e)
		if err != nil {
			return "not readable: " + err.Error()
		}
		text = hex.AppendEncode(append(text, ' '), b)
	}
	return string(text)
}

// missing counts the lines of one sorted list that another lacks.
func missing(from, in []string) (n int) {
	for _, l := range from {
		if _, ok := slices.BinarySearch(in, l); !ok {
			n++
		}
	}
	return n
}

// differences counts the things that differ between two states of a table: sets, chains,
// rules and elements. nil is no table.
func differences(a, b *table) int {
	x, y := a.shape(), b.shape()
	n := max(missing(x, y), missing(y, x))
	if a == nil || b == nil {
		return n
	}
	for _, s := range a.sets {
		if o := b.set(s.name); o != nil {
			add, change, del := s.difference(o)
			n += len(add) + len(change) + len(del)
		}
	}
	return n
}

// difference returns the keys that come, get another value, and go on the way from one
// state of a set to another.
func (s *set) difference(to *set) (add, change, del []string) {
	for k, v := range to.elements {
		switch old, ok := s.elements[k]; {
		case !ok:
			add = append(add, k)
		case old != v:
			change = append(change, k)
		}
	}
	if len(s.elements)+len(add) == len(to.elements) {
		return add, change, nil
	}
	for k := range s.elements {
		if _, ok := to.elements[k]; !ok {
			del = append(del, k)
		}
	}
	return add, change, del
}
