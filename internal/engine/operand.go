package engine

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
)

// Code says what is wrong with a command.
type Code string

// Codes of a CommandError.
const (
	// CodeInvalid: the command makes no sense.
	CodeInvalid Code = "invalid"
	// CodeUnknown: nothing has that name.
	CodeUnknown Code = "unknown"
	// CodeAmbiguous: several have it.
	CodeAmbiguous Code = "ambiguous"
	// CodeRefused: it would cost the pool its quorum.
	CodeRefused Code = "refused"
)

// CommandError says that a command did nothing, and why.
type CommandError struct {
	Code    Code   `json:"code,omitempty"` // what kind of refusal it is
	Message string `json:"error"`          // why nothing was done
	// Candidates are what may have been meant.
	Candidates []string `json:"candidates,omitempty"`
}

func (e *CommandError) Error() string { return e.Message }

// operand is one real server of a command; vs is nil for one that is not configured
// and has an order.
type operand struct {
	vs     *server
	server int
	vsKey  config.VSKey
	rsKey  config.RSKey
}

// operands finds what a command names.
func (e *Engine) operands(c Command) ([]operand, error) {
	all := e.allOperands(c.Verb == VerbUndrain || c.Verb == VerbWeight && c.Weight == nil)
	if c.Server != "" {
		return onServer(all, c.Server)
	}
	t, err := pick(all, c.VS, c.RS)
	if err != nil {
		return nil, err
	}
	return []operand{t}, nil
}

// pick finds the real server that two texts name.
func pick(all []operand, vs, rs string) (operand, error) {
	at, in, err := pool(all, vs)
	if err != nil {
		return at, err
	}
	return member(at, in, rs)
}

// pool finds the virtual server that a text names, by one of its real servers, and all
// of those.
func pool(all []operand, vs string) (at operand, in []operand, err error) {
	vss := slices.Clone(all)
	vss = slices.CompactFunc(vss, func(a, b operand) bool { return a.vsKey == b.vsKey })
	names := func(t operand) []string { return vsNames(t.vsKey, t.vs) }
	if at, err = one("virtual server", vs, vss, names); err != nil {
		return at, nil, err
	}
	for _, t := range all {
		if t.vsKey == at.vsKey {
			in = append(in, t)
		}
	}
	return at, in, nil
}

// member finds the one of a virtual server's real servers that a text names.
func member(at operand, in []operand, rs string) (operand, error) {
	proto := at.vsKey.Protocol
	if at.vs != nil {
		proto = at.vs.Config.Protocol
	}
	if found := atAddress(in, rs); len(found) > 0 {
		in = found
	}
	return one("real server of "+at.vsKey.String(), rs, in, func(t operand) []string {
		k := t.rsKey
		names := []string{k.String(), fmt.Sprintf("[%s]:%s:%d", k.Addr(), strings.ToLower(proto.String()), k.Port()), k.Addr().String()}
		if t.vs != nil {
			if l := t.vs.Servers[t.server].Config.Label; l != "" {
				names = append(names, l)
			}
		}
		return names
	})
}

// atAddress are the servers at an address, if the text is one: of ten thousand not all
// have to be named to find one.
func atAddress(from []operand, text string) (found []operand) {
	text, whole := canonical(text)
	if !whole {
		return nil
	}
	ap, err := netip.ParseAddrPort(text)
	addr, aerr := netip.ParseAddr(text)
	for _, t := range from {
		k := t.rsKey
		if err == nil && k.Addr().Unmap() == ap.Addr() && k.Port() == ap.Port() || aerr == nil && k.Addr().Unmap() == addr {
			found = append(found, t)
		}
	}
	return found
}

// allOperands are all real servers, those of one virtual server together. With absent,
// those that are not configured and have an order are among them.
func (e *Engine) allOperands(absent bool) []operand {
	var all []operand
	for _, vs := range e.vss {
		for i, rs := range vs.Servers {
			all = append(all, operand{vs, i, vs.Config.Key, rs.Config.Key})
		}
		if absent {
			all = append(all, e.absent(vs.Config.Key, keys(vs.Config))...)
		}
	}
	if absent {
		gone := map[config.VSKey]bool{}
		for k := range e.orders {
			if e.byKey[k.vs] == nil && !gone[k.vs] {
				gone[k.vs] = true
				all = append(all, e.absent(k.vs, nil)...)
			}
		}
	}
	return all
}

// absent are servers of one virtual server that have an order and are not configured.
func (e *Engine) absent(vs config.VSKey, configured map[config.RSKey]bool) []operand {
	var all []operand
	seen := map[config.RSKey]bool{}
	for k := range e.orders {
		if k.vs == vs && !configured[k.rs] && !seen[k.rs] {
			seen[k.rs] = true
			all = append(all, operand{vsKey: vs, rsKey: k.rs, server: -1})
		}
	}
	return all
}

// onServer are all real servers at an address.
func onServer(all []operand, address string) ([]operand, error) {
	text := strings.Trim(address, "[]")
	addr, err := netip.ParseAddr(text)
	port := uint16(0)
	if err != nil {
		ap, perr := netip.ParseAddrPort(address)
		if perr != nil {
			return nil, &CommandError{Code: CodeInvalid, Message: fmt.Sprintf("--server takes an address, and %q is none", address)}
		}
		addr, port = ap.Addr(), ap.Port()
	}
	var found []operand
	for _, t := range all {
		if t.rsKey.Addr().Unmap() == addr.Unmap() && (port == 0 || t.rsKey.Port() == port) {
			found = append(found, t)
		}
	}
	if len(found) == 0 {
		var candidates []string
		for _, t := range all {
			candidates = append(candidates, t.rsKey.Addr().String())
		}
		return nil, unknown("real server at "+address, candidates)
	}
	return found, nil
}

// vsNames are the names of a virtual server, the one to show first.
func vsNames(k config.VSKey, vs *server) []string {
	names := []string{k.String()}
	if k.Addr.IsValid() {
		names = append(names, k.Addr.String(), k.Addr.Addr().String())
	}
	if k.FWMark != 0 {
		names = append(names, fmt.Sprintf("fwmark %d", k.FWMark))
	}
	if k.Group != "" {
		names = append(names, k.Group)
	}
	if vs == nil {
		return names
	}
	if l := vs.Config.Label; l != "" {
		names = append(names, l)
	}
	if m := vs.Config.Mark; m != 0 {
		names = append(names, fmt.Sprintf("fwmark %d", m))
	}
	for _, en := range vs.Config.Entries {
		if en.Addr.IsValid() {
			names = append(names, en.Addr.String(), en.Addr.Addr().String())
		}
	}
	return append(names, vs.name)
}

// one picks what a text names: what has exactly that name, else what has it as a part
// of one. A whole address is no part of another: 10.0.0.1 must not drain 10.0.0.11.
func one(what, text string, from []operand, names func(operand) []string) (operand, error) {
	text, whole := canonical(text)
	for _, match := range []func(string) bool{
		func(n string) bool { return strings.EqualFold(n, text) },
		func(n string) bool {
			return !whole && text != "" && strings.Contains(strings.ToLower(n), strings.ToLower(text))
		},
	} {
		var found []operand
		for _, t := range from {
			if slices.ContainsFunc(names(t), match) {
				found = append(found, t)
			}
		}
		switch len(found) {
		case 0:
			continue
		case 1:
			return found[0], nil
		}
		err := &CommandError{Code: CodeAmbiguous, Candidates: firsts(found, names)}
		err.Message = fmt.Sprintf("%q may be any of %d: %s", text, len(found), list(err.Candidates))
		return operand{}, err
	}
	return operand{}, unknown(fmt.Sprintf("%s %q", what, text), firsts(from, names))
}

func firsts(ts []operand, names func(operand) []string) []string {
	var out []string
	for _, t := range ts {
		out = append(out, names(t)[0])
	}
	return out
}

// canonical writes an address as names have it, and says whether it is one.
func canonical(text string) (string, bool) {
	text = strings.TrimSpace(text)
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return a.Unmap().String(), true
	}
	if a, err := netip.ParseAddrPort(text); err == nil {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String(), true
	}
	return text, false
}

func unknown(what string, candidates []string) error {
	slices.Sort(candidates)
	candidates = slices.Compact(candidates)
	return &CommandError{Code: CodeUnknown, Message: fmt.Sprintf("there is no %s; there are: %s", what, cmp.Or(list(candidates), "none")), Candidates: candidates}
}

// list shows some of many names.
func list(names []string) string {
	const most = 10
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
