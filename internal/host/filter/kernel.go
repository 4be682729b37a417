package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// patience ends a wait for an answer that never comes: for a transaction that it takes
// none of, the kernel gives one answer where one for each message is waited for.
const patience = time.Minute

// kernel is nftables of a network namespace.
type kernel struct {
	// ns is a file of the namespace, nil for the process's.
	ns *os.File
	// most bounds a transaction in bytes, 0 for no bound. Tests set it.
	most int
}

func (k *kernel) fd() int {
	if k.ns == nil {
		return 0
	}
	return int(k.ns.Fd())
}

// conn returns what opens a socket for each call, with buffers for a transaction of that
// size.
func (k *kernel) conn(bytes, messages int) (*nftables.Conn, error) {
	return nftables.New(nftables.WithNetNSFd(k.fd()), nftables.WithSockOptions(func(c *netlink.Conn) error {
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		// An answer takes 768 bytes of the kernel's memory or more, and all of them are
		// there before the first is read. An error without the message it is about.
		if err := c.SetOption(netlink.CapAcknowledge, true); err != nil {
			return err
		}
		if err := c.SetReadBuffer(1<<18 + messages*4096); err != nil {
			return err
		}
		return c.SetWriteBuffer(1<<16 + bytes)
	}))
}

// generation returns the number of the rule set, which every transaction counts up.
func (k *kernel) generation() (uint32, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: k.fd()})
	if err != nil {
		return 0, absent(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	replies, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return 0, absent(err)
	}
	for _, m := range replies {
		if len(m.Data) < 4 {
			continue
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			return 0, err
		}
		ad.ByteOrder = binary.BigEndian
		for ad.Next() {
			if ad.Type() == unix.NFTA_GEN_ID {
				return ad.Uint32(), ad.Err()
			}
		}
	}
	return 0, errors.New("the kernel did not say the generation of its rule set")
}

// onePart is how many elements surely fit in one part of the kernel's answer.
const onePart = 64

// readElements reads a set until a reading shows nothing new. While the kernel moves a set
// into a larger hash table, which it does for some time after elements were added, the
// parts of one answer overlap and have gaps; what any of them shows is there, since
// nothing is removed within a generation.
func readElements(list func() ([]nftables.SetElement, error)) (map[string]string, error) {
	const readings = 16
	var all map[string]string
	for range readings {
		es, err := list()
		if err != nil {
			return nil, err
		}
		known := len(all)
		if all == nil {
			all = make(map[string]string, len(es))
		}
		for _, e := range es {
			all[string(e.Key)] = string(e.Val)
		}
		if len(all) == known || len(es) <= onePart && len(all) == len(es) {
			break
		}
	}
	return all, nil
}

// read returns a table, nil if there is none.
func (k *kernel) read(i id) (*table, error) {
	c, err := k.conn(0, 0)
	if err != nil {
		return nil, err
	}
	kt, err := c.ListTableOfFamily(i.name, i.family)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, err
	}
	t := &table{id: i}
	sets, err := c.GetSets(kt)
	if err != nil {
		return nil, err
	}
	for _, ks := range sets {
		s := &set{name: ks.Name, key: ks.KeyType, data: ks.DataType,
			odd: ks.Anonymous || ks.Constant || ks.Interval || ks.HasTimeout || ks.Dynamic || ks.Size != 0}
		t.sets = append(t.sets, s)
		if s.odd {
			continue
		}
		if s.elements, err = readElements(func() ([]nftables.SetElement, error) { return c.GetSetElements(ks) }); err != nil {
			return nil, err
		}
	}
	chains, err := c.ListChainsOfTableFamily(i.family)
	if err != nil {
		return nil, err
	}
	for _, kc := range chains {
		if kc.Table.Name != i.name || kc.Table.Family != i.family {
			continue
		}
		ch := &chain{name: kc.Name, base: kc.Hooknum != nil}
		if ch.base {
			ch.priority = int32(*kc.Priority)
			if kc.Type != nftables.ChainTypeFilter || *kc.Hooknum != *nftables.ChainHookInput || kc.Policy == nil || *kc.Policy != nftables.ChainPolicyAccept {
				ch.odd = fmt.Sprint(kc.Type, *kc.Hooknum, kc.Policy != nil && *kc.Policy == nftables.ChainPolicyAccept)
			}
		}
		rules, err := c.GetRules(kt, kc)
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			ch.rules = append(ch.rules, r.Exprs)
			t.ours = t.ours || isOurs(r)
		}
		t.chains = append(t.chains, ch)
	}
	return t, nil
}

func isOurs(r *nftables.Rule) bool {
	text, ok := userdata.GetString(r.UserData, userdata.TypeComment)
	return ok && text == comment
}

// readAll reads tables, all of one generation, which it returns.
func (k *kernel) readAll(ids []id) (map[id]*table, uint32, error) {
	const tries = 5
	for range tries {
		before, err := k.generation()
		if err != nil {
			return nil, 0, err
		}
		have := make(map[id]*table, len(ids))
		for _, i := range ids {
			t, err := k.read(i)
			if err != nil {
				if now, err2 := k.generation(); err2 == nil && now != before {
					have = nil // It was taken away while it was read.
					break
				}
				return nil, 0, fmt.Errorf("reading table %s: %w", i, err)
			}
			if t != nil {
				have[i] = t
			}
		}
		if have == nil {
			continue
		}
		after, err := k.generation()
		if err != nil {
			return nil, 0, err
		}
		if before == after {
			return have, after, nil
		}
	}
	return nil, 0, fmt.Errorf("somebody changes nftables all the time: %d readings in a row met a change: %w", tries, unix.EAGAIN)
}

// marked returns the tables of nftables_ipvs that carry our comment, whatever their name.
func (k *kernel) marked() ([]id, error) {
	c, err := k.conn(0, 0)
	if err != nil {
		return nil, err
	}
	var ids []id
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		chains, err := c.ListChainsOfTableFamily(family)
		if err != nil {
			return nil, err
		}
		for _, ch := range chains {
			if ch.Name != marksChain || ch.Hooknum == nil {
				continue
			}
			rules, err := c.GetRules(ch.Table, ch)
			if err != nil {
				return nil, err
			}
			if len(rules) > 0 && isOurs(rules[0]) {
				ids = append(ids, id{family, ch.Table.Name})
			}
		}
	}
	return ids, nil
}

// commit does the steps in one transaction, or in several if the socket takes no more at
// once. It returns how many were done.
func (k *kernel) commit(steps []step) (done int, err error) {
	if k.most == 0 {
		err := k.transact(steps)
		if !errors.Is(err, unix.EMSGSIZE) {
			if err == nil {
				done = 1
			}
			return done, err
		}
	}
	// What every socket takes, whatever the limits of a container are.
	most := k.most
	if most == 0 {
		most = 1 << 16
	}
	for len(steps) > 0 {
		n, bytes := 0, 0
		for n < len(steps) && (n == 0 || bytes+steps[n].bytes <= most) {
			bytes += steps[n].bytes
			n++
		}
		if err := k.transact(steps[:n]); err != nil {
			return done, err
		}
		done++
		steps = steps[n:]
	}
	return done, nil
}

func (k *kernel) transact(steps []step) error {
	bytes, messages := 0, 0
	for _, s := range steps {
		bytes, messages = bytes+s.bytes, messages+s.messages
	}
	c, err := k.conn(bytes, messages)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if err := s.do(c); err != nil {
			return err
		}
	}
	return c.Flush()
}
