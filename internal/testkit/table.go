package testkit

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Table is an IPVS table as an independent reader shows it, sorted, so that two
// of them can be compared with go-cmp or as text.
type Table []Service

// Service is one virtual service. Key is "tcp 192.0.2.10:80", "udp [2001:db8::10]:53",
// "sctp ..." or, for a mark, "fwm 5" and "fwm6 5".
type Service struct {
	Key       string
	Scheduler string
	// Options are the remaining words of ipvsadm's line, as "-p 300" or "-b flag-1",
	// in its order. From /proc there are none.
	Options []string
	Dests   []Dest
}

// Dest is one destination of a service.
type Dest struct {
	Addr    netip.AddrPort
	Method  string // masq, route, tunnel or local
	Weight  int
	Options []string // the remaining words, as "--tun-type gue"

	// Active and Inactive count connections. Only /proc shows them.
	Active, Inactive int
}

// Find returns the service with the key, or nil.
func (t Table) Find(key string) *Service {
	for i := range t {
		if t[i].Key == key {
			return &t[i]
		}
	}
	return nil
}

// Find returns the destination with the address, or nil.
func (s *Service) Find(addr string) *Dest {
	if s == nil {
		return nil
	}
	for i := range s.Dests {
		if s.Dests[i].Addr.String() == addr {
			return &s.Dests[i]
		}
	}
	return nil
}

// String renders the table for people, a service or destination a line.
func (t Table) String() string {
	var b strings.Builder
	for _, s := range t {
		fmt.Fprintln(&b, strings.Join(slices.Concat([]string{s.Key, s.Scheduler}, s.Options), " "))
		for _, d := range s.Dests {
			fmt.Fprintf(&b, "  -> %v %s weight %d active %d inactive %d", d.Addr, d.Method, d.Weight, d.Active, d.Inactive)
			if len(d.Options) > 0 {
				b.WriteString(" " + strings.Join(d.Options, " "))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// sort gives a table the one order that it can be compared in.
func (t Table) sort() {
	slices.SortFunc(t, func(a, b Service) int { return cmp.Compare(a.Key, b.Key) })
	for _, s := range t {
		slices.SortFunc(s.Dests, func(a, b Dest) int { return a.Addr.Compare(b.Addr) })
	}
}

// ReadTable reads the namespace's table with `ipvsadm -Sn`, which shows all but
// thresholds and counters.
func ReadTable(t T, ns *NS) Table {
	t.Helper()
	table, err := ParseSave(ns.Run(t, "ipvsadm", "-S", "-n"))
	if err != nil {
		t.Fatalf("%s: %v", ns.Name, err)
	}
	return table
}

// ReadProc reads the namespace's table from /proc/net/ip_vs, the only place
// that has the connection counters of a destination beside its weight. Options
// are left out (a persistence timeout stands there in the kernel's ticks), and
// marks for IPv4 and IPv6 look alike.
func ReadProc(t T, ns *NS) Table {
	t.Helper()
	text, err := ns.ReadProcNet("ip_vs")
	if err != nil {
		t.Fatalf("%v", err)
	}
	table, err := ParseProc(text)
	if err != nil {
		t.Fatalf("%s: %v", ns.Name, err)
	}
	return table
}

// ParseSave parses what `ipvsadm -Sn` prints.
func ParseSave(text string) (Table, error) {
	var table Table
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := table.addSaved(words); err != nil {
			return nil, fmt.Errorf("ipvsadm -Sn: %q: %w", strings.TrimSpace(line), err)
		}
	}
	table.sort()
	return table, nil
}

func (t *Table) addSaved(words []string) error {
	key, rest, err := cutKey(words[1:])
	if err != nil {
		return err
	}
	switch words[0] {
	case "-A":
		s := Service{Key: key}
		s.Scheduler, s.Options = cutOption(options(rest), "-s")
		*t = append(*t, s)
	case "-a":
		s := t.Find(key)
		if s == nil {
			return fmt.Errorf("destination of an unknown service %s", key)
		}
		d, err := savedDest(options(rest))
		if err != nil {
			return err
		}
		s.Dests = append(s.Dests, d)
	default:
		return fmt.Errorf("unknown command %s", words[0])
	}
	return nil
}

var methods = map[string]string{"-m": "masq", "-g": "route", "-i": "tunnel"}

func savedDest(opts []string) (d Dest, err error) {
	addr, opts := cutOption(opts, "-r")
	weight, opts := cutOption(opts, "-w")
	if d.Addr, err = netip.ParseAddrPort(addr); err != nil {
		return d, err
	}
	if d.Weight, err = strconv.Atoi(weight); err != nil {
		return d, err
	}
	for _, o := range opts {
		if m, ok := methods[o]; ok {
			d.Method = m
		} else {
			d.Options = append(d.Options, o)
		}
	}
	return d, nil
}

// cutKey takes the words that name the service off the front.
func cutKey(words []string) (key string, rest []string, err error) {
	if len(words) < 2 {
		return "", nil, fmt.Errorf("no service named")
	}
	protocol, ok := map[string]string{"-t": "tcp", "-u": "udp", "--sctp-service": "sctp", "-f": "fwm"}[words[0]]
	if !ok {
		return "", nil, fmt.Errorf("unknown kind of service %s", words[0])
	}
	rest = words[2:]
	if protocol == "fwm" && len(rest) > 0 && rest[0] == "-6" {
		protocol, rest = "fwm6", rest[1:]
	}
	return protocol + " " + words[1], rest, nil
}

// options joins each option with its value, if it has one: the next word that
// is no option itself.
func options(words []string) []string {
	var opts []string
	for _, w := range words {
		if strings.HasPrefix(w, "-") || len(opts) == 0 {
			opts = append(opts, w)
		} else {
			opts[len(opts)-1] += " " + w
		}
	}
	return opts
}

// cutOption takes the option with the name out and returns its value.
func cutOption(opts []string, name string) (value string, rest []string) {
	for _, o := range opts {
		if v, ok := strings.CutPrefix(o, name+" "); ok && value == "" {
			value = v
		} else {
			rest = append(rest, o)
		}
	}
	return value, rest
}

// ParseProc parses /proc/net/ip_vs.
func ParseProc(text string) (Table, error) {
	var table Table
	for n, line := range slices.Collect(strings.Lines(text)) {
		if n < 3 { // version, and two lines of headings
			continue
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := table.addProc(words); err != nil {
			return nil, fmt.Errorf("/proc/net/ip_vs: %q: %w", strings.TrimSpace(line), err)
		}
	}
	table.sort()
	return table, nil
}

func (t *Table) addProc(words []string) error {
	if words[0] == "->" {
		if len(*t) == 0 || len(words) != 6 {
			return fmt.Errorf("misplaced destination")
		}
		d := Dest{Method: strings.ToLower(words[2])}
		var err error
		if d.Addr, err = parseProcAddr(words[1]); err != nil {
			return err
		}
		for i, into := range []*int{&d.Weight, &d.Active, &d.Inactive} {
			if *into, err = strconv.Atoi(words[3+i]); err != nil {
				return err
			}
		}
		s := &(*t)[len(*t)-1]
		s.Dests = append(s.Dests, d)
		return nil
	}
	if len(words) < 3 {
		return fmt.Errorf("short line")
	}
	protocol := strings.ToLower(words[0])
	s := Service{Scheduler: words[2]}
	if protocol == "fwm" {
		mark, err := strconv.ParseUint(words[1], 16, 32)
		if err != nil {
			return err
		}
		s.Key = fmt.Sprintf("fwm %d", mark)
	} else {
		addr, err := parseProcAddr(words[1])
		if err != nil {
			return err
		}
		s.Key = protocol + " " + addr.String()
	}
	*t = append(*t, s)
	return nil
}

// parseProcAddr reads "C000020A:0050" or "[2001:0db8:...]:0050": IPv6 addresses
// are written as such, IPv4 ones in hexadecimal, ports always in hexadecimal.
func parseProcAddr(s string) (netip.AddrPort, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return netip.AddrPort{}, fmt.Errorf("address %q without port", s)
	}
	addr, err := parseHexAddr(s[:i])
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := strconv.ParseUint(s[i+1:], 16, 16)
	return netip.AddrPortFrom(addr, uint16(port)), err
}

func parseHexAddr(s string) (netip.Addr, error) {
	if v6, ok := strings.CutPrefix(s, "["); ok {
		return netip.ParseAddr(strings.TrimSuffix(v6, "]"))
	}
	if strings.Contains(s, ":") {
		return netip.ParseAddr(s)
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		return netip.Addr{}, err
	}
	addr, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.Addr{}, fmt.Errorf("address %q of %d bytes", s, len(b))
	}
	return addr, nil
}

// Conn is one connection that IPVS tracks.
type Conn struct {
	Protocol              string // tcp, udp, sctp
	Client, Virtual, Dest netip.AddrPort
	State                 string // as /proc names it, for example ESTABLISHED
}

// ReadConns reads /proc/net/ip_vs_conn of the namespace; templates of
// persistence are among the connections, with client port 0.
func ReadConns(t T, ns *NS) []Conn {
	t.Helper()
	text, err := ns.ReadProcNet("ip_vs_conn")
	if err != nil {
		t.Fatalf("%v", err)
	}
	conns, err := ParseConns(text)
	if err != nil {
		t.Fatalf("%s: %v", ns.Name, err)
	}
	return conns
}

// ParseConns parses /proc/net/ip_vs_conn.
func ParseConns(text string) ([]Conn, error) {
	var conns []Conn
	for n, line := range slices.Collect(strings.Lines(text)) {
		words := strings.Fields(line)
		if n == 0 || len(words) == 0 { // the heading
			continue
		}
		if len(words) < 8 {
			return nil, fmt.Errorf("/proc/net/ip_vs_conn: short line %q", strings.TrimSpace(line))
		}
		c := Conn{Protocol: strings.ToLower(words[0]), State: words[7]}
		for i, into := range []*netip.AddrPort{&c.Client, &c.Virtual, &c.Dest} {
			addr, err := parseHexAddr(words[1+2*i])
			if err != nil {
				return nil, fmt.Errorf("/proc/net/ip_vs_conn: %q: %w", strings.TrimSpace(line), err)
			}
			port, err := strconv.ParseUint(words[2+2*i], 16, 16)
			if err != nil {
				return nil, fmt.Errorf("/proc/net/ip_vs_conn: %q: %w", strings.TrimSpace(line), err)
			}
			*into = netip.AddrPortFrom(addr, uint16(port))
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// Stats are the counters of a service or destination since it was added.
type Stats struct{ Conns, InPkts, OutPkts, InBytes, OutBytes uint64 }

// ReadStats reads `ipvsadm -Ln --stats --exact`. The keys are the service's key
// and, for a destination, that key, " -> " and the destination's address.
func ReadStats(t T, ns *NS) map[string]Stats {
	t.Helper()
	stats, err := ParseStats(ns.Run(t, "ipvsadm", "-L", "-n", "--stats", "--exact"))
	if err != nil {
		t.Fatalf("%s: %v", ns.Name, err)
	}
	return stats
}

// ParseStats parses what `ipvsadm -Ln --stats --exact` prints.
func ParseStats(text string) (map[string]Stats, error) {
	stats := map[string]Stats{}
	service := ""
	for n, line := range slices.Collect(strings.Lines(text)) {
		words := strings.Fields(line)
		if n < 3 || len(words) == 0 { // version, and two lines of headings
			continue
		}
		var key string
		if words[0] == "->" {
			if service == "" {
				return nil, fmt.Errorf("ipvsadm --stats: destination without service: %q", strings.TrimSpace(line))
			}
			key = service + " -> " + words[1]
		} else {
			service = strings.ToLower(words[0]) + " " + words[1]
			// "FWM  5 IPv6 ..." is how a mark for IPv6 is told apart.
			if words[2] == "IPv6" {
				service, words = "fwm6 "+words[1], slices.Delete(words, 2, 3)
			}
			key = service
		}
		if len(words) != 7 {
			return nil, fmt.Errorf("ipvsadm --stats: %d words: %q", len(words), strings.TrimSpace(line))
		}
		var s Stats
		for i, into := range []*uint64{&s.Conns, &s.InPkts, &s.OutPkts, &s.InBytes, &s.OutBytes} {
			v, err := strconv.ParseUint(words[2+i], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("ipvsadm --stats: %q: %w", strings.TrimSpace(line), err)
			}
			*into = v
		}
		stats[key] = s
	}
	return stats, nil
}
