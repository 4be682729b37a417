package keyword_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/keyword"
)

const shared = "../../../../shared/configs"

// collected says what each published configuration, by the number in its name,
// must give: the findings in order and the status of a test run. Scripts that
// are not installed do not count for keepalived's status, and do here; VRRP
// counts there, and does not here.
var collected = map[string]struct {
	codes  string
	status int
	// override says why keepalived's table is not the right one; there are then
	// this many lines.
	override string
	lines    int
}{
	"01":  {codes: "N301 E111 E101 W223 W216 W216 W216", status: 5, override: "an unknown scheduler rejects the service (P04)", lines: 0},
	"02":  {codes: "N301", status: 0},
	"04":  {codes: "N301", status: 0},
	"05":  {codes: "N301", status: 0},
	"07":  {codes: "N301 E101 E101", status: 5},
	"08":  {codes: "E101 W223 E101 W223 E101", status: 5},
	"10":  {codes: "N301 E128", status: 5},
	"12":  {codes: "N301 W223", status: 5},
	"14":  {codes: "W215", status: 6, override: "keepalived did not run: the namespace was missing", lines: 3},
	"16":  {codes: "W215 E129 W216 W216", status: 6},
	"17":  {codes: "W215", status: 6},
	"18":  {codes: "N301", status: 0},
	"20":  {codes: "E124 W216", status: 5},
	"21":  {codes: "W222 W216 W222", status: 5},
	"24":  {codes: "W216 W216 W216 W216", status: 5},
	"25":  {codes: "N301 W206", status: 5},
	"27":  {codes: "W215 W216 W216", status: 6},
	"28":  {codes: "W215", status: 6},
	"29":  {codes: "W214 W221", status: 5},
	"31":  {codes: "N301", status: 0},
	"32":  {codes: "E003 E120 E121", status: 5},
	"34":  {codes: "F001 N301 E142", status: 5},
	"36":  {codes: "N301 E123 E123", status: 5},
	"39":  {codes: "N301 W215", status: 6},
	"40":  {codes: "W224 W215", status: 6},
	"42":  {codes: "", status: 0},
	"43a": {codes: "N301 N001", status: 0},
	"43b": {codes: "E101 E101", status: 5},
	"44":  {codes: "E101 N301", status: 5},
	"47":  {codes: "N301 E101 W207 E101", status: 5},
	"50":  {codes: "", status: 0},
	"53":  {codes: "E112", status: 5, override: "an unknown forwarding method rejects the service (P04)", lines: 0},
	"55":  {codes: "W215 E131", status: 6},
}

// TestCollectedConfigurations loads configurations that people have published,
// where they are at hand, and compares the table that follows from them with
// what keepalived put into the kernel.
func TestCollectedConfigurations(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(shared, "*.conf"))
	if len(files) == 0 {
		t.Skip("no collected configurations beside the checkout")
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".conf")
		t.Run(name, func(t *testing.T) {
			number, _, _ := strings.Cut(name, "-")
			want, known := collected[number]
			if !known {
				t.Errorf("no expectation for this file")
			}
			cfg, list := keyword.Load(file, options())
			if got := codes(list); got != want.codes {
				t.Errorf("codes\n got %s\nwant %s\n%v", got, want.codes, list)
			}
			if got := list.ExitCode(); got != want.status {
				t.Errorf("status %d, want %d", got, want.status)
			}
			got := tableAtStart(cfg)
			if want.override != "" {
				if len(got) != want.lines {
					t.Errorf("%d lines, want %d (%s): %v", len(got), want.lines, want.override, got)
				}
			} else {
				b, err := os.ReadFile(filepath.Join(shared, "keepalived-tables", name+".txt"))
				if err != nil {
					t.Fatal(err)
				}
				_, table, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
				if diff := cmp.Diff(strings.FieldsFunc(table, func(r rune) bool { return r == '\n' }), got); diff != "" {
					t.Errorf("table (-keepalived +got):\n%s", diff)
				}
			}
			if cfg != nil {
				if err := config.Validate(cfg); err != nil {
					t.Error(err)
				}
				again(t, cfg)
			}
		})
	}
}

// tableAtStart is what the kernel's table holds before the first verdict, as
// ipvsadm -Sn prints it, sorted.
func tableAtStart(cfg *config.Config) []string {
	lines := []string{}
	if cfg == nil {
		return lines
	}
	for _, vs := range cfg.VirtualServers {
		for _, e := range vs.Entries {
			service := serviceName(vs, e)
			line := "-A " + service + " -s " + vs.Scheduler
			if vs.Persistence != 0 {
				line += fmt.Sprintf(" -p %d", vs.Persistence)
			}
			if g := vs.Granularity; g != 0 && g != 0xffffffff {
				line += fmt.Sprintf(" -M %d.%d.%d.%d", g>>24, g>>16&255, g>>8&255, g&255)
			}
			if vs.Flags.OnePacket {
				line += " -o"
			}
			lines = append(lines, line)
			for _, rs := range vs.RealServers {
				down := slices.ContainsFunc(rs.Checkers, func(c *config.Checker) bool { return c.Alpha })
				if down && !rs.Inhibit {
					continue
				}
				weight := rs.Weight
				if down {
					weight = 0
				}
				key := rs.Key.AddrPort
				port := key.Port()
				if rs.Forward.Method != config.NAT {
					port = e.Addr.Port()
				}
				dest := fmt.Sprintf("-a %s -r %s %s -w %d", service, join(key.Addr().String(), port), map[config.Method]string{config.NAT: "-m", config.DR: "-g", config.TUN: "-i"}[rs.Forward.Method], weight)
				if rs.Forward.Method == config.TUN {
					dest += " --tun-type ipip"
				}
				if !slices.Contains(lines, dest) {
					lines = append(lines, dest)
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func serviceName(vs *config.VirtualServer, e config.Entry) string {
	if e.FWMark != 0 {
		return fmt.Sprintf("-f %d", e.FWMark)
	}
	letter := map[config.Protocol]string{config.TCP: "-t", config.UDP: "-u", config.SCTP: "--sctp-service"}[vs.Protocol]
	return letter + " " + join(e.Addr.Addr().String(), e.Addr.Port())
}

func join(addr string, port uint16) string {
	if strings.Contains(addr, ":") {
		addr = "[" + addr + "]"
	}
	return fmt.Sprintf("%s:%d", addr, port)
}
