package filter

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/edge"
)

// Filter writes our tables. It is for one goroutine.
type Filter struct {
	k kernel
	// generation is that of the rule set at which the mirrors that are true are so.
	generation   uint32
	guard, marks mirror
}

var _ edge.Filter = (*Filter)(nil)

// mirror is what the kernel is believed to have of one feature.
type mirror struct {
	have map[id]*table
	// read: have was read or written, so that what the kernel has instead is somebody's
	// doing. fresh: and nobody changed anything since.
	read, fresh bool
}

// Open returns a Filter for a network namespace, "" for that of the process. It opens no
// socket yet.
func Open(netns string) (*Filter, error) {
	f := &Filter{}
	if netns != "" {
		ns, err := os.Open(netns)
		if err != nil {
			return nil, fmt.Errorf("nftables: %w", err)
		}
		f.k.ns = ns
	}
	return f, nil
}

// Close leaves the tables as they are.
func (f *Filter) Close() error {
	if f.k.ns != nil {
		return f.k.ns.Close()
	}
	return nil
}

// Guard makes the table of vip_guard what is wanted.
func (f *Filter) Guard(want *edge.Guard) (repaired int, err error) {
	var tables []*table
	if t := guardOf(want); t != nil {
		tables = append(tables, t)
	}
	ids := func() ([]id, error) { return []id{{nftables.TableFamilyINet, GuardTable}}, nil }
	repaired, err = f.sync(&f.guard, tables, ids, func(*table) error { return nil })
	return repaired, explain("vip_guard", err)
}

// Marks makes the tables of nftables_ipvs what is wanted, and removes those that a
// configuration or a process before had.
func (f *Filter) Marks(want *edge.Marking) (repaired int, err error) {
	tables := markingOf(want)
	ids := func() ([]id, error) {
		var ids []id
		if want != nil {
			ids = append(ids, id{nftables.TableFamilyIPv4, want.Table}, id{nftables.TableFamilyIPv6, want.Table})
		}
		for i := range f.marks.have {
			ids = append(ids, i)
		}
		if f.marks.read {
			return ids, nil
		}
		left, err := f.k.marked()
		return append(ids, left...), err
	}
	repaired, err = f.sync(&f.marks, tables, ids, replaceable)
	return repaired, explain("nftables_ipvs", err)
}

// sync brings the tables of a feature to what is wanted. ids names those that may be
// there, may says why one must not be replaced.
func (f *Filter) sync(m *mirror, want []*table, ids func() ([]id, error), may func(*table) error) (repaired int, err error) {
	if err := f.look(); err != nil {
		return 0, err
	}
	for wasFresh := m.fresh; ; wasFresh = m.fresh {
		if !m.fresh {
			n, err := f.reread(m, ids)
			repaired += n
			if err != nil {
				return repaired, err
			}
		}
		err := f.write(m, want, may)
		if err == nil || !wasFresh {
			return repaired, err
		}
		// Somebody was quicker between the look and the write.
		m.fresh = false
	}
}

// look finds out whether anybody changed nftables.
func (f *Filter) look() error {
	g, err := f.k.generation()
	if err != nil {
		return err
	}
	f.at(g)
	return nil
}

// at is the generation now; at another one no mirror is known to be true.
func (f *Filter) at(g uint32) {
	if g != f.generation {
		f.generation, f.guard.fresh, f.marks.fresh = g, false, false
	}
}

// reread reads what the kernel has, and counts what somebody changed of it.
func (f *Filter) reread(m *mirror, ids func() ([]id, error)) (repaired int, err error) {
	names, err := ids()
	if err != nil {
		return 0, err
	}
	slices.SortFunc(names, id.compare)
	names = slices.Compact(names)
	have, g, err := f.k.readAll(names)
	if err != nil {
		return 0, err
	}
	f.at(g)
	if m.read {
		for _, i := range names {
			if before := m.have[i]; before != nil && before.ours {
				repaired += differences(before, have[i])
			}
		}
	}
	m.have, m.read, m.fresh = have, true, true
	return repaired, nil
}

// write brings the kernel from what it has to what is wanted.
func (f *Filter) write(m *mirror, want []*table, may func(*table) error) error {
	next := make(map[id]*table, len(want))
	for _, t := range want {
		next[t.id] = t
	}
	var steps, gone []step
	var refused []error
	for i, have := range m.have {
		if next[i] != nil {
			continue
		}
		// What is not wanted goes only if it is ours.
		if err := may(have); err == nil && (have.ours || i.name == GuardTable) {
			gone = append(gone, plan(have, nil)...)
		}
	}
	for _, t := range want {
		have := m.have[t.id]
		if have != nil {
			if err := may(have); err != nil {
				refused = append(refused, err)
				continue
			}
		}
		steps = append(steps, plan(have, t)...)
	}
	steps = append(steps, gone...)
	if len(refused) > 0 || len(steps) == 0 {
		return errors.Join(refused...)
	}
	done, err := f.k.commit(steps)
	if err != nil {
		m.fresh, m.read = false, m.read && done == 0
		return err
	}
	for _, t := range next {
		t.ours = true
	}
	m.have = next
	g, err := f.k.generation()
	if err != nil {
		m.fresh = false
		return err
	}
	if g == f.generation+uint32(done) {
		f.generation = g
	} else {
		f.at(g)
	}
	return nil
}

// errAbsent is a kernel that does not know the question.
var errAbsent = errors.New("this kernel has no nftables (modprobe nf_tables)")

// absent marks what a kernel without nftables answers to any question.
func absent(err error) error {
	for _, no := range []error{unix.EINVAL, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.ENOENT} {
		if errors.Is(err, no) {
			return fmt.Errorf("%w: %w", errAbsent, err)
		}
	}
	return err
}

// explain says which keyword a failure is about and what to do.
func explain(feature string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%s: nftables may be written with CAP_NET_ADMIN only, which this process lacks: %w", feature, err)
	case errors.Is(err, unix.ENOENT) && !errors.Is(err, errAbsent):
		// What our own rules name is in the same transaction.
		return fmt.Errorf("%s: this kernel lacks a part of nftables (modprobe nft_reject_inet; CONFIG_NF_TABLES_INET, CONFIG_NFT_REJECT_INET): %w", feature, err)
	}
	return fmt.Errorf("%s: %w", feature, err)
}
