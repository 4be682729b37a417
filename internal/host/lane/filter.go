package lane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const tableName = "sluice_lanes"

// chains are around IPVS's hook for what this machine sends, at -98; the one before
// that, at -99, is for answers of NAT.
var chains = []struct {
	name     string
	priority nftables.ChainPriority
}{{"before_ipvs", -101}, {"after_ipvs", -97}}

// hidden is the bit of the protocol's number that is set: no protocol of IPVS has it,
// and none that it makes is one of IPVS's.
const hidden = 0x80

// openFilter returns what opens a socket for each call. Without patience a call might
// never end: to a transaction that it takes none of, the kernel gives one answer where
// one for each message is waited for.
func openFilter() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error { return c.SetReadDeadline(time.Now().Add(patience)) }))
}

func writeFilter(v verb, f filter) error {
	c, err := openFilter()
	if err != nil {
		return noNFTables(err)
	}
	t := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	if v == remove {
		c.DelTable(t)
		return noNFTables(c.Flush())
	}
	// In one transaction: there is no moment without.
	c.AddTable(t)
	c.DelTable(t)
	c.AddTable(t)
	for _, spec := range chains {
		chain := c.AddChain(&nftables.Chain{Name: spec.name, Table: t, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookOutput, Priority: &spec.priority})
		for _, base := range f.bases() {
			for _, proto := range []struct {
				family byte
				offset uint32
			}{{unix.NFPROTO_IPV4, 9}, {unix.NFPROTO_IPV6, 6}} {
				c.AddRule(&nftables.Rule{Table: t, Chain: chain, UserData: []byte(f), Exprs: toggle(base, proto.family, proto.offset)})
			}
		}
	}
	return noNFTables(c.Flush())
}

// toggle changes the bit in packets of a family with marks of a range.
func toggle(base uint32, family byte, offset uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, Mask), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, base)},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{0xff}, Xor: []byte{hidden}},
		&expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 1},
	}
}

func (f filter) bases() []uint32 {
	var list []uint32
	for s := range strings.SplitSeq(string(f), ",") {
		if n, err := strconv.ParseUint(s, 16, 32); err == nil {
			list = append(list, uint32(n))
		}
	}
	return list
}

// broken is a table of our name that is not as we make it.
const broken filter = "broken"

// readFilter tells what our table holds. A kernel without nftables has none, which writing
// will say. Any other error is one: what is not known to be there would stay.
func readFilter() (filter, error) {
	c, err := openFilter()
	if err != nil {
		return "", err
	}
	t, err := c.ListTableOfFamily(tableName, nftables.TableFamilyINet)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP),
		errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT):
		return "", nil
	case err != nil:
		return "", unanswered(err)
	}
	found := broken
	for i, spec := range chains {
		chain, err := c.ListChain(t, spec.name)
		if err != nil || chain.Priority == nil || *chain.Priority != spec.priority {
			return broken, nil
		}
		rules, err := c.GetRules(t, chain)
		if err != nil {
			return broken, nil
		}
		for j, r := range rules {
			if f := filter(r.UserData); i == 0 && j == 0 {
				found = f
			} else if f != found {
				return broken, nil
			}
		}
		if len(rules) != 2*len(found.bases()) {
			return broken, nil
		}
	}
	return found, nil
}

func noNFTables(err error) error {
	var errno unix.Errno
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOENT):
		return err
	case errors.As(err, &errno):
		err = errno // the first, and not that there was no second
	case errors.Is(err, os.ErrDeadlineExceeded):
		return unanswered(err)
	}
	return fmt.Errorf("%w; without nftables (modules nf_tables and nf_tables_inet), IPVS would balance checks like any other packet", err)
}

func unanswered(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("no answer from the kernel in %v: %w", patience, os.ErrDeadlineExceeded)
	}
	return err
}
