package ipvstest

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// checkSaved compares what ipvsadm -Sn printed with what was written.
func checkSaved(t *testing.T, text string, want map[ipvs.Service][]ipvs.Destination) {
	t.Helper()
	got, err := parseSaved(text)
	if err != nil {
		t.Errorf("%v in what ipvsadm printed:\n%s", err, text)
		return
	}
	if len(got) != len(want) {
		t.Errorf("ipvsadm lists %d services, want %d", len(got), len(want))
	}
	for s, ds := range want {
		s = s.Canonical()
		g, ok := got[s.ServiceKey]
		if !ok {
			t.Errorf("ipvsadm does not list %s", s.ServiceKey)
			continue
		}
		if g.service != s {
			t.Errorf("ipvsadm reads %+v,\nwrote %+v", g.service, s)
		}
		if len(g.dests) != len(ds) {
			t.Errorf("ipvsadm reads %d destinations of %s, want %d", len(g.dests), s.ServiceKey, len(ds))
		}
		for _, d := range ds {
			d = d.Canonical()
			// ipvsadm -S leaves the thresholds out and has no word for Local.
			d.UpperThreshold, d.LowerThreshold = 0, 0
			if d.Forward == ipvs.Local {
				d.Forward = ipvs.DirectRoute
			}
			if gd := g.dests[d.DestinationKey]; gd != d {
				t.Errorf("ipvsadm reads %+v,\nwrote %+v", gd, d)
			}
		}
	}
}

type saved struct {
	service ipvs.Service
	dests   map[ipvs.DestinationKey]ipvs.Destination
}

// parseSaved reads the output of ipvsadm -Sn, one command of ipvsadm a line.
func parseSaved(text string) (map[ipvs.ServiceKey]*saved, error) {
	out := make(map[ipvs.ServiceKey]*saved)
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		s, d, isDest, err := parseCommand(words)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		}
		s = s.Canonical()
		if !isDest {
			out[s.ServiceKey] = &saved{s, make(map[ipvs.DestinationKey]ipvs.Destination)}
			continue
		}
		svc := out[s.ServiceKey]
		if svc == nil {
			return nil, fmt.Errorf("%q: no such service before it", strings.TrimSpace(line))
		}
		svc.dests[d.DestinationKey] = d
	}
	return out, nil
}

func parseCommand(words []string) (s ipvs.Service, d ipvs.Destination, isDest bool, err error) {
	i := 1
	value := func() string {
		if i++; i < len(words) {
			return words[i]
		}
		err = fmt.Errorf("%s without a value", words[i-1])
		return ""
	}
	number := func() uint32 {
		n, nerr := strconv.ParseUint(value(), 10, 32)
		if nerr != nil {
			err = nerr
		}
		return uint32(n)
	}
	endpoint := func() netip.AddrPort {
		ap, perr := netip.ParseAddrPort(value())
		if perr != nil {
			err = perr
		}
		return ap
	}
	address := func(p ipvs.Protocol) {
		ap := endpoint()
		s.Protocol, s.Addr, s.Port, s.Family = p, ap.Addr(), ap.Port(), ipvs.FamilyOf(ap.Addr())
	}
	switch words[0] {
	case "-A":
	case "-a":
		isDest = true
	default:
		return s, d, false, fmt.Errorf("unknown command")
	}
	for ; i < len(words) && err == nil; i++ {
		switch w := words[i]; w {
		case "-t":
			address(ipvs.TCP)
		case "-u":
			address(ipvs.UDP)
		case "--sctp-service":
			address(ipvs.SCTP)
		case "-f":
			// ipvsadm prints marks with a sign.
			n, perr := strconv.ParseInt(value(), 10, 64)
			if perr != nil {
				return s, d, isDest, perr
			}
			s.FWMark, s.Family = uint32(n), ipvs.INET
		case "-6":
			s.Family = ipvs.INET6
		case "-s":
			s.Scheduler = value()
		case "-p":
			s.Flags |= ipvs.Persistent
			s.Timeout = number()
		case "-M":
			if s.Family == ipvs.INET6 {
				s.Netmask = number()
				break
			}
			a, perr := netip.ParseAddr(value())
			if perr != nil || !a.Is4() {
				return s, d, isDest, fmt.Errorf("netmask: %w", perr)
			}
			b := a.As4()
			s.Netmask = uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		case "--pe":
			s.PersistenceEngine = value()
		case "-o":
			s.Flags |= ipvs.OnePacket
		case "-b":
			for f := range strings.SplitSeq(value(), ",") {
				switch f {
				case "flag-1", "sh-fallback", "mh-fallback":
					s.Flags |= ipvs.Sched1
				case "flag-2", "sh-port", "mh-port":
					s.Flags |= ipvs.Sched2
				case "flag-3":
					s.Flags |= ipvs.Sched3
				default:
					return s, d, isDest, fmt.Errorf("unknown flag %s", f)
				}
			}
		case "-r":
			ap := endpoint()
			d.Addr, d.Port = ap.Addr(), ap.Port()
		case "-m":
			d.Forward = ipvs.Masquerade
		case "-g":
			d.Forward = ipvs.DirectRoute
		case "(null)": // nor for Bypass
			d.Forward = ipvs.Bypass
		case "-i":
			d.Forward = ipvs.Tunnel
		case "-w":
			d.Weight = number()
		case "--tun-type":
			switch v := value(); v {
			case "ipip":
			case "gue":
				d.TunnelType = ipvs.GUE
			case "gre":
				d.TunnelType = ipvs.GRE
			default:
				return s, d, isDest, fmt.Errorf("unknown tunnel type %s", v)
			}
		case "--tun-port":
			d.TunnelPort = uint16(number())
		case "--tun-nocsum":
		case "--tun-csum":
			d.TunnelFlags |= ipvs.Checksum
		case "--tun-remcsum":
			d.TunnelFlags |= ipvs.RemoteChecksum
		default:
			return s, d, isDest, fmt.Errorf("unknown option %s", w)
		}
	}
	return s, d, isDest, err
}
