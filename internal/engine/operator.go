package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Verb is what a Command does.
type Verb string

// Verbs.
const (
	VerbDrain   Verb = "drain"
	VerbUndrain Verb = "undrain"
	VerbWeight  Verb = "weight"
)

// Command is what an operator asks of real servers. They are named by VS and RS,
// each by keepalived's name, an address or an unambiguous part of one, or by Server,
// an address in every virtual server that has it.
type Command struct {
	Verb   Verb   `json:"verb"`
	VS     string `json:"virtual_server,omitempty"`
	RS     string `json:"real_server,omitempty"`
	Server string `json:"server,omitempty"`
	// Weight is for the verb weight; nil is the configured one again.
	Weight *int64 `json:"weight,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Until is when it ends by itself; zero for never.
	Until time.Time `json:"until,omitzero"`
	// Force does it though the pool falls below its quorum.
	Force bool `json:"force,omitempty"`
	// Who asks is not the client's to say.
	Who string `json:"-"`
}

// Order is what one command left in force for one real server. It is what a restart
// must not lose (Orders, Restore).
type Order struct {
	VS config.VSKey `json:"virtual_server"`
	RS config.RSKey `json:"real_server"`
	// Kind is VerbDrain or VerbWeight; both may be in force.
	Kind   Verb      `json:"kind"`
	Weight int64     `json:"weight,omitempty"`
	Who    string    `json:"who"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"`
}

// maxReason bounds what an operator has to say: it stands in one line of status.
const maxReason = 1000

type orderKey struct {
	vs   config.VSKey
	rs   config.RSKey
	kind Verb
}

func (o Order) key() orderKey { return orderKey{o.VS, o.RS, o.Kind} }

// said is who asked, why and until when, for people.
func (o Order) said() string {
	s := "by " + o.Who
	if o.Reason != "" {
		s += ": " + o.Reason
	}
	if !o.Until.IsZero() {
		s += ", until " + o.Until.Format(time.DateTime)
	}
	return s
}

// Override is an Order as readers see it, with the connections that its server has.
type Override struct {
	VS     string `json:"virtual_server"` // keepalived's name of the virtual server
	Server string `json:"real_server"`    // the real server
	// VSLabel and Label are what their people call the two, "" for nothing.
	VSLabel string    `json:"virtual_server_label,omitempty"`
	Label   string    `json:"label,omitempty"`
	Kind    Verb      `json:"kind"`             // what was asked for
	Weight  int64     `json:"weight"`           // the weight that was asked for; 0 with a drain
	Who     string    `json:"who"`              // the user who asked, or http: and an address
	Reason  string    `json:"reason,omitempty"` // what was given as the reason
	Since   time.Time `json:"since"`            // when it was asked for
	Until   time.Time `json:"until,omitzero"`   // when it ends by itself
	// Absent: the server is not configured now; the order waits for it.
	Absent bool `json:"not_configured,omitempty"`
	// Kernel is the highest weight found over the services, -1 for none.
	Kernel     int64  `json:"weight_kernel"`
	Active     uint64 `json:"active"`     // active connections, all services together
	Inactive   uint64 `json:"inactive"`   // inactive connections
	Persistent uint64 `json:"persistent"` // persistence entries
}

// place is where a server is in the table.
type place struct {
	service ipvs.ServiceKey
	dest    ipvs.DestinationKey
}

// Orders returns what operators asked for and is in force. Anyone may call it.
func (e *Engine) Orders() []Order { return e.published.Load().orders }

// Restore puts orders of an earlier process in force. It must be called before
// Start. What has ended meanwhile is left out.
func (e *Engine) Restore(orders []Order) {
	now := time.Now()
	for _, o := range orders {
		switch {
		case o.Kind == verbPassive:
			e.passive.command = &o
		case o.Until.IsZero() || now.Before(o.Until):
			e.orders[o.key()] = o
		}
	}
}

// Operate carries a command out and returns, at the end of the turn that wrote it to
// the table, the orders that it made or ended. A *CommandError says that nothing was
// done and why.
func (e *Engine) Operate(ctx context.Context, c Command) ([]Override, error) {
	var done []Override
	var refusal error
	if err := e.call(ctx, func(e *Engine) {
		var orders []Order
		orders, refusal = e.operate(c)
		for _, o := range orders {
			v := o.override()
			v.VSLabel, v.Label = e.labelsFor(o)
			done = append(done, v)
		}
	}); err != nil {
		return nil, err
	}
	if refusal != nil {
		return nil, refusal
	}
	// What cannot be read is left out: the order is in force all the same.
	now, _ := e.Overrides(ctx)
	out := make([]Override, 0, len(done))
	for _, v := range done {
		i := slices.IndexFunc(now, func(n Override) bool { return n.VS == v.VS && n.Server == v.Server && n.Kind == v.Kind })
		if i >= 0 {
			v = now[i]
		}
		out = append(out, v)
	}
	return out, nil
}

func (o Order) override() Override {
	return Override{VS: o.VS.String(), Server: o.RS.String(), Kind: o.Kind, Weight: o.Weight, Who: o.Who, Reason: o.Reason, Since: o.Since, Until: o.Until, Kernel: -1}
}

// operate does all of a command or nothing.
func (e *Engine) operate(c Command) ([]Order, error) {
	ts, err := e.operands(c)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if !c.Until.IsZero() && !now.Before(c.Until) {
		return nil, &CommandError{Code: CodeInvalid, Message: fmt.Sprintf("the time %s is over already", c.Until.Format(time.DateTime))}
	}
	if len(c.Reason) > maxReason {
		return nil, &CommandError{Code: CodeInvalid, Message: fmt.Sprintf("the reason is longer than %d bytes", maxReason)}
	}
	o := Order{Kind: VerbDrain, Who: cmp.Or(c.Who, "unknown"), Reason: strings.Join(strings.Fields(c.Reason), " "), Since: now, Until: c.Until}
	switch {
	case c.Verb == VerbDrain:
	case c.Verb == VerbUndrain:
		return e.withdraw(ts, VerbDrain, o.Who)
	case c.Verb == VerbWeight && c.Weight == nil:
		return e.withdraw(ts, VerbWeight, o.Who)
	case c.Verb == VerbWeight && (*c.Weight < 0 || *c.Weight > framework.MaxWeight):
		return nil, &CommandError{Code: CodeInvalid, Message: fmt.Sprintf("weight %d is not within 0..%d", *c.Weight, int64(framework.MaxWeight))}
	case c.Verb == VerbWeight:
		o.Kind, o.Weight = VerbWeight, *c.Weight
	default:
		return nil, &CommandError{Code: CodeInvalid, Message: fmt.Sprintf("there is no command %q", c.Verb)}
	}
	if err := e.guard(ts, o); err != nil {
		if !c.Force {
			return nil, err
		}
		e.log.Warn("An operator's command is forced", event.Key, event.OperatorForced, "who", o.Who, "against", err)
	}
	var done []Order
	for _, t := range ts {
		o.VS, o.RS = t.vs.Config.Key, t.vs.Servers[t.server].Config.Key
		e.orders[o.key()] = o
		args := []any{"vs", t.vs.name, "rs", rsName(o.RS, t.vs.Config), "who", o.Who, "reason", o.Reason}
		if !o.Until.IsZero() {
			args = append(args, "until", o.Until.Format(time.RFC3339))
		}
		if o.Kind == VerbWeight {
			e.log.Info("An operator sets a weight", append(args, event.Key, event.OperatorWeight, "weight", o.Weight)...)
		} else {
			e.log.Info("An operator drains a real server", append(args, event.Key, event.OperatorDrain)...)
		}
		e.obey(o.VS, o.RS)
		done = append(done, o)
	}
	e.ordersDue = true
	return done, nil
}

// saveOrders hands the orders out to be saved, if they changed in this turn.
func (e *Engine) saveOrders() {
	if !e.ordersDue {
		return
	}
	e.ordersDue = false
	orders := slices.SortedFunc(maps.Values(e.orders), func(a, b Order) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.VS.String(), b.VS.String()), cmp.Compare(a.RS.String(), b.RS.String()), cmp.Compare(a.Kind, b.Kind))
	})
	if e.passive.command != nil {
		orders = append(orders, *e.passive.command)
	}
	section, err := json.Marshal(orders)
	if err != nil {
		e.log.Error("Operators' orders are not saved, this is a bug", event.Key, event.Bug, "err", err)
		return
	}
	e.setOperator(section)
}

// restoreOrders takes up what an earlier process saved of them.
func (e *Engine) restoreOrders(section json.RawMessage) {
	if len(section) == 0 {
		return
	}
	var orders []Order
	if err := json.Unmarshal(section, &orders); err != nil {
		e.log.Error("Operators' orders of an earlier process cannot be read and are not in force: give them again", event.Key, event.OperatorForgotten, "err", err)
		return
	}
	e.Restore(orders)
	if len(e.orders) > 0 {
		e.log.Info("Operators' orders of an earlier process are in force", event.Key, event.OperatorRestored, "orders", len(e.orders))
	}
}

// guard refuses an order that would take a pool below its quorum or its floor.
func (e *Engine) guard(ts []operand, o Order) error {
	byVS := map[*server]map[int]framework.Order{}
	var order []*server
	for _, t := range ts {
		if byVS[t.vs] == nil {
			byVS[t.vs] = map[int]framework.Order{}
			order = append(order, t.vs)
		}
		f := t.vs.Servers[t.server].Order()
		if o.Kind == VerbDrain {
			f.Drain = true
		} else {
			f.Weight, f.Weighed = o.Weight, true
		}
		byVS[t.vs][t.server] = f
	}
	var short []string
	for _, vs := range order {
		if left, bad := vs.Ordered(byVS[vs]); bad {
			short = append(short, fmt.Sprintf("%s: weight %d of %d alive would be left, and its quorum needs %d", vs.name, left, vs.Sum(), vs.Needed()))
		}
		serving, left := 0, 0
		for i, rs := range vs.Servers {
			if !rs.Alive() || rs.Weight() == 0 {
				continue
			}
			serving++
			if f, ordered := byVS[vs][i]; !ordered || !f.Drain && (!f.Weighed || f.Weight > 0) {
				left++
			}
		}
		if floor := vs.Floor(); left < serving && left < floor {
			short = append(short, fmt.Sprintf("%s: %d of %d serving real servers would be left, and min_alive is %d", vs.name, left, serving, floor))
		}
	}
	if len(short) > 0 {
		return &CommandError{Code: CodeRefused, Message: strings.Join(short, "\n")}
	}
	return nil
}

// withdraw ends orders.
func (e *Engine) withdraw(ts []operand, kind Verb, who string) ([]Order, error) {
	var done []Order
	for _, t := range ts {
		k := orderKey{t.vsKey, t.rsKey, kind}
		if o, ok := e.orders[k]; ok {
			ends := event.OperatorUndrain
			if kind == VerbWeight {
				ends = event.OperatorUnweight
			}
			e.log.Info("An operator's order is withdrawn", event.Key, ends, "order", kind, "vs", t.vsKey.String(), "rs", t.rsKey.String(), "who", who, "it_was", o.said())
			e.endOrder(o)
			done = append(done, o)
		}
	}
	if len(done) == 0 {
		what := "is not drained by an operator; a drain by track_file or by weight 0 in the file ends there"
		if kind == VerbWeight {
			what = "has no weight from an operator"
		}
		return nil, &CommandError{Code: CodeUnknown, Message: ts[0].rsKey.String() + " " + what}
	}
	return done, nil
}

func (e *Engine) endOrder(o Order) {
	delete(e.orders, o.key())
	e.obey(o.VS, o.RS)
	e.ordersDue = true
}

// obey hands the orders for one real server to the framework, if it is configured.
func (e *Engine) obey(vsKey config.VSKey, rsKey config.RSKey) {
	e.headTouched = true
	vs := e.byKey[vsKey]
	if vs == nil {
		return
	}
	for i, rs := range vs.Servers {
		if rs.Config.Key != rsKey {
			continue
		}
		e.catchUp(vs, time.Now())
		change, err := vs.SetOrder(i, e.ordersOf(vsKey)(rsKey))
		e.must(err)
		e.mark(vs, i)
		e.apply(vs, change, "")
		e.must(e.applier.SetMaintenance(vsKey, rsKey, rs.Maintenance()))
	}
}

// ordersOf returns what is asked of a virtual server's real servers.
func (e *Engine) ordersOf(vs config.VSKey) framework.Orders {
	return func(rs config.RSKey) framework.Order {
		_, drain := e.orders[orderKey{vs, rs, VerbDrain}]
		w, weighed := e.orders[orderKey{vs, rs, VerbWeight}]
		return framework.Order{Drain: drain, Weight: w.Weight, Weighed: weighed}
	}
}

// expiry is when the next order or hold ends by itself; zero for never.
func (e *Engine) expiry() (next time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, o := range e.orders {
		earlier(o.Until)
	}
	for _, h := range e.holds {
		if !h.over {
			earlier(h.until)
		}
	}
	return next
}

// expire ends the orders and holds whose time is over.
func (e *Engine) expire(now time.Time) {
	for _, o := range e.orders {
		if !o.Until.IsZero() && !now.Before(o.Until) {
			e.log.Info("An operator's order ends, its time is over", event.Key, event.OperatorExpired, "order", o.Kind, "vs", o.VS.String(), "rs", o.RS.String(), "it_was", o.said())
			e.endOrder(o)
		}
	}
	if len(e.holds) > 0 {
		e.endHolds(now)
	}
}

// ordered adds to a server's reason what operators asked of it.
func (e *Engine) ordered(vs *server, rs *framework.RealServer, reason string) string {
	k := orderKey{vs.Config.Key, rs.Config.Key, VerbDrain}
	if o, ok := e.orders[k]; ok {
		was := reason
		reason = "drained " + o.said()
		if _, also, ok := strings.Cut(was, "; also "); ok {
			reason += "; also " + also
		}
	}
	k.kind = VerbWeight
	if o, ok := e.orders[k]; ok {
		reason += fmt.Sprintf("; weight %d %s", o.Weight, o.said())
	}
	return reason
}

// publishOrders adds the orders to what readers see.
func (e *Engine) publishOrders(p *published) {
	for _, o := range e.orders {
		p.orders = append(p.orders, o)
	}
	slices.SortFunc(p.orders, func(a, b Order) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.VS.String(), b.VS.String()),
			strings.Compare(a.RS.String(), b.RS.String()), strings.Compare(string(a.Kind), string(b.Kind)))
	})
	for _, o := range p.orders {
		v := o.override()
		v.Absent = true
		v.VSLabel, v.Label = e.labelsFor(o)
		var at []place
		if kernel := e.applier.Lookup(o.VS); kernel != nil {
			for _, s := range kernel.Services {
				if dk, ok := kernel.Destination(o.RS, s.ServiceKey); ok {
					v.Absent = false
					at = append(at, place{s.ServiceKey, dk})
				}
			}
		}
		p.head.Overrides = append(p.head.Overrides, v)
		p.places = append(p.places, at)
	}
}

// Overrides returns the orders in force with the connections that their servers have
// just now. Only the services concerned are read.
func (e *Engine) Overrides(ctx context.Context) ([]Override, error) {
	p := e.published.Load()
	out := slices.Clone(p.head.Overrides)
	if e.opts.Read == nil || len(out) == 0 {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return out, e.reader.use(ctx, e.opts.Read, func(r Reader) error { return connectionsOf(ctx, r, out, p) })
}

// connectionsOf reads the connections of servers with orders.
func connectionsOf(ctx context.Context, r Reader, out []Override, p *published) error {
	seen := map[ipvs.ServiceKey]map[ipvs.DestinationKey]ipvs.DestinationInfo{}
	for i := range out {
		for _, at := range p.places[i] {
			ds, ok := seen[at.service]
			if !ok {
				all, err := r.Destinations(ctx, at.service)
				if err != nil {
					return err
				}
				ds = map[ipvs.DestinationKey]ipvs.DestinationInfo{}
				for _, d := range all {
					ds[d.DestinationKey] = d
				}
				seen[at.service] = ds
			}
			if d, ok := ds[at.dest]; ok {
				o := &out[i]
				o.Kernel = max(o.Kernel, int64(d.Weight))
				o.Active += uint64(d.Counters.Active)
				o.Inactive += uint64(d.Counters.Inactive)
				o.Persistent += uint64(d.Counters.Persistent)
			}
		}
	}
	return nil
}
