package engine

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/state"
)

// SavedMarks returns the firewall marks that an earlier process had given, for
// config.Assign. What cannot be read is left out: it gets another mark. s may be nil.
func SavedMarks(s *state.State) config.Marks {
	m := config.Marks{Groups: map[config.MarkKey]uint32{}, Via: map[config.ViaKey]uint32{}}
	if s == nil {
		return m
	}
	for _, k := range s.Marks {
		if k.Mark == 0 {
			continue
		}
		if k.Group != "" {
			if p, ok := protocolNamed(k.Protocol); ok {
				m.Groups[config.MarkKey{Group: k.Group, Protocol: p}] = k.Mark
			}
			continue
		}
		addr, err := netip.ParseAddr(k.Server)
		f, ok := forwardingNamed(k.Forward)
		if err == nil && ok {
			m.Via[config.ViaKey{Server: addr, Forward: f}] = k.Mark
		}
	}
	return m
}

// MarksOf returns the marks that a configuration was given.
func MarksOf(cfg *config.Config) config.Marks {
	m := config.Marks{Groups: map[config.MarkKey]uint32{}, Via: map[config.ViaKey]uint32{}}
	for _, vc := range cfg.VirtualServers {
		if vc.Mark != 0 {
			m.Groups[config.MarkKey{Group: vc.Key.Group, Protocol: vc.Protocol}] = vc.Mark
		}
		for _, rc := range vc.RealServers {
			for _, c := range rc.Checkers {
				if v := c.Conn.Via; v != nil && v.Mark != 0 {
					m.Via[config.ViaKey{Server: v.Server, Forward: v.Forward}] = v.Mark
				}
			}
		}
	}
	return m
}

// savedMarks are the marks of the running configuration, made once for each.
func (e *Engine) savedMarks() []state.Mark {
	if e.marked == e.config {
		return e.marks
	}
	all := MarksOf(e.config)
	e.marked, e.marks = e.config, nil
	for k, mark := range all.Groups {
		e.marks = append(e.marks, state.Mark{Group: k.Group, Protocol: k.Protocol.String(), Mark: mark})
	}
	for k, mark := range all.Via {
		e.marks = append(e.marks, state.Mark{Server: k.Server.String(), Forward: forwardingName(k.Forward), Mark: mark})
	}
	slices.SortFunc(e.marks, func(a, b state.Mark) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Server, b.Server), cmp.Compare(a.Forward, b.Forward), cmp.Compare(a.Mark, b.Mark))
	})
	return e.marks
}

func protocolNamed(name string) (config.Protocol, bool) {
	for _, p := range []config.Protocol{config.TCP, config.UDP, config.SCTP, config.None} {
		if p.String() == name {
			return p, true
		}
	}
	return 0, false
}

var (
	tunnelNames   = map[config.Tunnel]string{config.IPIP: "ipip", config.GUE: "gue", config.GRE: "gre"}
	checksumNames = map[config.Checksum]string{config.NoCsum: "nocsum", config.Csum: "csum", config.RemCsum: "remcsum"}
)

// forwardingName is "DR", or a tunnel like "TUN gue 6080 csum".
func forwardingName(f config.Forwarding) string {
	if f.Method != config.TUN {
		return f.Method.String()
	}
	return fmt.Sprintf("%s %s %d %s", f.Method, tunnelNames[f.Tunnel], f.Port, checksumNames[f.Checksum])
}

func forwardingNamed(name string) (f config.Forwarding, ok bool) {
	words := strings.Fields(name)
	switch {
	case len(words) == 1 && words[0] == config.DR.String():
		return config.Forwarding{Method: config.DR}, true
	case len(words) != 4 || words[0] != config.TUN.String():
		return f, false
	}
	f.Method = config.TUN
	tunnel, checksum := false, false
	for t, n := range tunnelNames {
		if n == words[1] {
			f.Tunnel, tunnel = t, true
		}
	}
	for c, n := range checksumNames {
		if n == words[3] {
			f.Checksum, checksum = c, true
		}
	}
	_, err := fmt.Sscanf(words[2], "%d", &f.Port)
	return f, tunnel && checksum && err == nil
}
