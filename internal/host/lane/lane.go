// Package lane leads a check to a virtual address through one real server: a mark on
// the check's socket, a rule and a routing table of that number, and, for TUN, a tunnel.
//
// It decides what the kernel needs for that, in which order it is written, and whether
// a lane works. It deliberately does not decide who checks what through which lane, nor
// what becomes of a check whose lane does not work.
//
// Decisions:
//
//   - What is ours is told by the kernel: rules and routes by host.Protocol, devices by
//     their group of that number and the beginning of their name, the table of nftables
//     by its name. So a process that was killed leaves nothing that the next one does not
//     adopt or remove. Every Sync reads all of it first and changes what is different.
//   - The virtual address is local on a director, and the kernel asks for local addresses
//     first, by a rule of preference 0. Ours have to come before: the same rule, of
//     protocol kernel, is added at 100 and only then deleted at 0, and put back likewise.
//     A rule that does nothing, at 101 and of our protocol, says that we moved it; it is
//     there before the first is touched and until the last is done. Where somebody else
//     moved the rule, it stays where it is, and must come after ours.
//   - One rule in front has packets without a mark of ours jump over all of ours, so
//     that what everything else pays does not grow with the number of lanes.
//   - Once its rule is there, a marked packet never falls through to the local table:
//     below the route of a table is one that prohibits. The errno of that, EACCES, is no
//     verdict on a server. In front of a tunnel's route is one that throws what is for the
//     real server itself back to the other tables: a tunnel that takes its destination
//     from the route hands the mark on to the outer packet.
//   - IPVS schedules what this machine itself sends to a virtual address, whatever the
//     route. A table of nftables around its hook hides the protocol of marked packets: one
//     bit is set right before it and cleared right after it. Nobody else sees that, and no
//     checksum changes. Without nftables there are no lanes: a check that IPVS balances
//     would give one server's verdict to another.
//   - ipip, ip6ip6, gre and their kin need one device each, whose routes say where to.
//     IPv6 in IPv4 and GUE need a device for each real server: sit has no such mode, and
//     ipip with GUE only since Linux 6.4. Such devices forward nothing that arrives.
//   - An answer over IPv4 has one of our own addresses as its source. The kernel drops
//     that unless accept_local is set on the device that it comes in by, and if rp_filter
//     is strict there. Whether the virtual address is here at the moment does not matter:
//     it may be the next. IPv6 has neither. What these settings were is remembered before
//     they are made, and put back when no lane needs the device any more.
//   - Rules, devices and addresses ring when they change, routes only if they are ours: a
//     router's come by the thousand. So each ten seconds the kernel is asked for the ways
//     of the servers, one question each, and for all the rest once a minute.
//   - Of the tunnels of one kind the kernel takes one with the same ends. Two ports of GUE
//     to one server, from one address, are two lanes with the same: the first mark has it.
package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
)

// Lane is the way of packets with one mark to virtual addresses of one family through
// one real server.
type Lane struct {
	Mark    uint32
	Server  netip.Addr
	Forward config.Forwarding
	// IPv6 is the virtual addresses' family. DR has that of the server.
	IPv6 bool
}

func (l Lane) family() uint8 { return family(l.IPv6) }

func family(six bool) uint8 {
	if six {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// Mask are the bits of a mark that all lanes of a configuration have in common.
const Mask = config.ViaMask

// Options are what a Keeper needs to know.
type Options struct {
	// Before says that an earlier process had lanes. Begin is called before the first
	// thing is written, End when nothing of ours is left; both may be nil.
	Before     bool
	Begin, End func() error
	// Manage tells whether settings of the kernel may be written, manage_sysctls, and Set
	// is told of each that was; nil for no and nobody.
	Manage func() bool
	Set    func(name, value, was, why string)
	// Made are the settings that an earlier process had made, and Remember is told of
	// all that are made and not put back, before each change; nil for nobody.
	Made     []Setting
	Remember func([]Setting) error
	// Changed is told of lanes that began or ceased to work; err is nil for the former.
	Changed func(l Lane, err error)

	// open is the kernel's, or a test's.
	open     func() (kernel, error)
	settings settings
	watch    func(ctx context.Context, ring chan<- struct{}) error
}

// Keeper keeps lanes in the kernel. Its methods may be called at the same time.
type Keeper struct {
	opts Options

	mu    sync.Mutex // held by the one who works
	want  []Lane
	dirty bool
	// moved: the local rule of a family was moved by this process.
	moved map[uint8]bool
	made  []Setting
	// ways are how the servers were reached at the last look.
	ways map[netip.Addr]way
	rung chan struct{}

	told sync.RWMutex
	errs map[key]error
	// failed: the last Sync had an error.
	failed bool
}

type key struct {
	mark uint32
	ipv6 bool
}

// New makes a Keeper, which does nothing yet.
func New(o Options) *Keeper {
	if o.open == nil {
		o.open = openKernel
	}
	if o.watch == nil {
		o.watch = watch
	}
	if o.settings == nil {
		o.settings = proc{}
	}
	return &Keeper{opts: o, dirty: o.Before, made: o.Made, moved: map[uint8]bool{}, errs: map[key]error{}, rung: make(chan struct{}, 1)}
}

var errNotYet = errors.New("check_via: the way through this real server is not set up yet")

// Err says why a lane does not work now, nil if it does.
func (k *Keeper) Err(mark uint32, ipv6 bool) error {
	k.told.RLock()
	defer k.told.RUnlock()
	err, known := k.errs[key{mark, ipv6}]
	if !known {
		return errNotYet
	}
	return err
}

// Sync makes the kernel have these lanes and no others. The error is that of all; a
// lane's own is Err's.
func (k *Keeper) Sync(ctx context.Context, want []Lane) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.want = slices.Clone(want)
	slices.SortFunc(k.want, func(a, b Lane) int {
		if a.IPv6 != b.IPv6 {
			return cmp.Compare(a.family(), b.family())
		}
		return cmp.Compare(a.Mark, b.Mark)
	})
	k.want = slices.Compact(k.want)
	return k.sync(ctx)
}

// again is Sync with the same lanes.
func (k *Keeper) again(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sync(ctx)
}

func (k *Keeper) sync(ctx context.Context) (err error) {
	defer func() {
		k.told.Lock()
		k.failed = err != nil
		k.told.Unlock()
		select {
		case k.rung <- struct{}{}: // Run's next look is at its time after this one
		default:
		}
	}()
	if len(k.want) == 0 && !k.dirty {
		return nil
	}
	if !k.dirty && k.opts.Begin != nil {
		if err := k.opts.Begin(); err != nil {
			return k.failAll(fmt.Errorf("check_via: note that there are lanes: %w", err))
		}
	}
	k.dirty = true
	kern, err := k.opts.open()
	if err != nil {
		return k.failAll(explain(err))
	}
	defer kern.close()
	errs, err := k.make(ctx, kern)
	k.publish(errs)
	if err != nil {
		return err
	}
	if len(k.want) == 0 {
		if k.opts.End != nil {
			if err := k.opts.End(); err != nil {
				return fmt.Errorf("check_via: note that there are no lanes any more: %w", err)
			}
		}
		k.dirty = false
	}
	return nil
}

// make reads, plans and writes.
func (k *Keeper) make(ctx context.Context, kern kernel) (map[key]error, error) {
	errs := map[key]error{}
	have, err := kern.read()
	if err != nil {
		err = explain(err)
		for _, l := range k.want {
			errs[key{l.Mark, l.IPv6}] = err
		}
		return errs, err
	}
	ways := make(map[Lane]way, len(k.want))
	asked := map[netip.Addr]way{}
	for _, l := range k.want {
		w, ok := asked[l.Server]
		if !ok {
			if w, err = kern.way(l.Server); err != nil {
				w.err = explain(err)
			}
			asked[l.Server] = w
		}
		ways[l] = w
	}
	k.ways = asked
	for f := range k.moved {
		have.moved[f] = have.moved[f] || k.moved[f]
	}
	p := makePlan(have, k.want, ways)
	var all []error
	devices := map[string]error{}
	for _, o := range p.ops {
		if ctx.Err() != nil {
			all = append(all, ctx.Err())
			break
		}
		if r, ok := o.what.(route); ok && o.verb == add && devices[r.device] != nil {
			p.fail(o, devices[r.device])
			continue
		}
		if o.after != nil && p.failed[*o.after] || o.leads && (p.unhidden || p.errs[key{o.mark, o.family == unix.AF_INET6}] != nil) {
			continue
		}
		err := kern.do(ctx, o)
		if err == nil {
			continue
		}
		err = fmt.Errorf("check_via: %s: %w", o, explain(err))
		if d, ok := o.what.(device); ok && o.verb == add {
			devices[d.name] = err
			continue // its lanes say it
		}
		all = append(all, err)
		p.fail(o, err)
		if _, ok := o.what.(filter); ok && o.verb == add {
			p.unhidden = true
		}
	}
	for f, here := range p.moved {
		k.moved[f] = here || p.failed[f]
	}
	for _, l := range k.want {
		id := key{l.Mark, l.IPv6}
		if errs[id] = p.errs[id]; errs[id] == nil && !l.IPv6 {
			errs[id] = k.answers(ways[l].device)
		}
	}
	return errs, errors.Join(errors.Join(all...), k.putBack(ways))
}

// strayed tells whether a server is reached another way than at the last look.
func (k *Keeper) strayed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.want) == 0 {
		return false
	}
	kern, err := k.opts.open()
	if err != nil {
		return true // which the look says
	}
	defer kern.close()
	for server, was := range k.ways {
		now, err := kern.way(server)
		if err != nil {
			now.err = explain(err)
		}
		if text(now.err) != text(was.err) {
			return true
		}
		now.err, was.err = nil, nil
		if now != was {
			return true
		}
	}
	return false
}

func (k *Keeper) failAll(err error) error {
	errs := map[key]error{}
	for _, l := range k.want {
		errs[key{l.Mark, l.IPv6}] = err
	}
	k.publish(errs)
	return err
}

// publish makes the errors Err's, and tells of those that are other than before.
func (k *Keeper) publish(errs map[key]error) {
	k.told.Lock()
	before := k.errs
	k.errs = errs
	k.told.Unlock()
	if k.opts.Changed == nil {
		return
	}
	for _, l := range k.want {
		id := key{l.Mark, l.IPv6}
		if old, now := before[id], errs[id]; text(old) != text(now) {
			k.opts.Changed(l, now)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// explain says what an operator can do about an error of the kernel's.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w; check_via needs CAP_NET_ADMIN", err)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("%w; this kernel lacks a part that check_via needs", err)
	}
	return err
}
