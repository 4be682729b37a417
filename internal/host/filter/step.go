package filter

import (
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/userdata"
)

// step is a part of a transaction that must not be cut.
type step struct {
	do func(*nftables.Conn) error
	// bytes is what it takes of the socket's buffer, or more; messages how many answers
	// there will be.
	bytes, messages int
}

// An attribute has 16 bits for its size, and a list of elements is one. The largest of
// ours takes 52 bytes.
const perMessage = 1000

// A message that is no list of elements is smaller than this.
const small = 1 << 10

// comment is what rules of ours carry, for people and for a later start.
const comment = "sluice"

var mark = userdata.AppendString(nil, userdata.TypeComment, comment)

// plan returns the steps from a table as it is to what it should be, nil for none. What
// comes in comes before what goes.
func plan(have, want *table) []step {
	switch {
	case want == nil && have == nil:
		return nil
	case want == nil:
		return []step{remove(have)}
	case have == nil:
		return create(want)
	case !slices.Equal(have.shape(), want.shape()):
		return append([]step{remove(have)}, create(want)...)
	}
	var in, out []step
	for _, s := range want.sets {
		add, change, del := have.set(s.name).difference(s)
		if len(change) > 0 {
			// The kernel has no other way to give a key another value. Both halves in
			// one step, or the key would be gone for a moment.
			for part := range slices.Chunk(change, perMessage) {
				gone := elements(want, have.set(s.name), part, false)
				come := elements(want, s, part, true)
				in = append(in, step{bytes: gone.bytes + come.bytes, messages: 2, do: func(c *nftables.Conn) error {
					if err := gone.do(c); err != nil {
						return err
					}
					return come.do(c)
				}})
			}
		}
		in = append(in, chunks(want, s, add, true)...)
		out = append(out, chunks(want, s, del, false)...)
	}
	return append(in, out...)
}

func remove(t *table) step {
	return step{bytes: small, messages: 1, do: func(c *nftables.Conn) error {
		c.DelTable(&nftables.Table{Family: t.family, Name: t.name})
		return nil
	}}
}

// create makes a table. The guard has its rules last: without them it lets everything in
// until it is whole. Marks have them at once, since they say whose a table is that a killed
// process left unfinished.
func create(t *table) []step {
	frame := step{bytes: small * (1 + len(t.sets)), messages: 1 + len(t.sets), do: func(c *nftables.Conn) error {
		k := c.AddTable(&nftables.Table{Family: t.family, Name: t.name})
		for i, s := range t.sets {
			ks := s.kernel(k)
			// An id of a transaction has to be one of its own there.
			ks.ID = uint32(t.family)<<8 + uint32(i) + 1
			if err := c.AddSet(ks, nil); err != nil {
				return err
			}
		}
		return nil
	}}
	steps := []step{frame}
	if t.name != GuardTable {
		steps = append(steps, rules(t))
	}
	for _, s := range t.sets {
		keys := make([]string, 0, len(s.elements))
		for k := range s.elements {
			keys = append(keys, k)
		}
		steps = append(steps, chunks(t, s, keys, true)...)
	}
	if t.name == GuardTable {
		steps = append(steps, rules(t))
	}
	return steps
}

// rules makes the chains with what is in them.
func rules(t *table) step {
	s := step{messages: len(t.chains), do: func(c *nftables.Conn) error {
		k := &nftables.Table{Family: t.family, Name: t.name}
		var chains []*nftables.Chain
		for _, ch := range t.chains {
			kc := &nftables.Chain{Table: k, Name: ch.name}
			if ch.base {
				policy := nftables.ChainPolicyAccept
				kc.Type, kc.Hooknum, kc.Policy = nftables.ChainTypeFilter, nftables.ChainHookInput, &policy
				kc.Priority = new(nftables.ChainPriority(ch.priority))
			}
			chains = append(chains, c.AddChain(kc))
		}
		for i, ch := range t.chains {
			for _, r := range ch.rules {
				c.AddRule(&nftables.Rule{Table: k, Chain: chains[i], Exprs: r, UserData: mark})
			}
		}
		return nil
	}}
	for _, ch := range t.chains {
		// A rule is answered twice: it comes back besides.
		s.messages += 2 * len(ch.rules)
	}
	s.bytes = small * s.messages
	return s
}

func chunks(t *table, s *set, keys []string, add bool) []step {
	var steps []step
	for part := range slices.Chunk(keys, perMessage) {
		steps = append(steps, elements(t, s, part, add))
	}
	return steps
}

// elements adds keys of a set with its values, or takes them away.
func elements(t *table, s *set, keys []string, add bool) step {
	return step{bytes: small + len(keys)*(28+len(keys[0])), messages: 1, do: func(c *nftables.Conn) error {
		list := make([]nftables.SetElement, 0, len(keys))
		for _, k := range keys {
			e := nftables.SetElement{Key: []byte(k)}
			if v := s.elements[k]; v != "" {
				e.Val = []byte(v)
			}
			list = append(list, e)
		}
		ks := s.kernel(&nftables.Table{Family: t.family, Name: t.name})
		if add {
			return c.SetAddElements(ks, list)
		}
		return c.SetDeleteElements(ks, list)
	}}
}

func (s *set) kernel(t *nftables.Table) *nftables.Set {
	k := &nftables.Set{Table: t, Name: s.name, KeyType: s.key, KeyByteOrder: binaryutil.BigEndian}
	k.Concatenation = len(nftables.ConcatSetTypeElements(s.key)) > 1
	if s.data.Bytes > 0 {
		k.IsMap, k.DataType = true, s.data
	}
	if s.key.Name == nftables.TypeMark.Name {
		k.KeyByteOrder = binaryutil.NativeEndian
	}
	return k
}
