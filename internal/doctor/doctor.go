package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/host"
)

// Status is how bad a finding is.
type Status string

// Statuses.
const (
	OK Status = "ok"
	// Note: nothing to do, or nothing that can be seen from here.
	Note Status = "note"
	// Unknown: it could not be read.
	Unknown Status = "unknown"
	// Warn: it hurts under a condition that is usual.
	Warn Status = "warn"
	// Fail: connections are lost or misled.
	Fail Status = "fail"
)

// Line is a line of a file that makes a setting stay.
type Line struct {
	File string `json:"file"` // the file
	Text string `json:"text"` // the line
}

// Finding is what a rule found.
type Finding struct {
	// ID is the rule's, which docs/doctor.md explains. It never changes.
	ID     string `json:"id"`
	Group  string `json:"group"`  // the rule's
	Status Status `json:"status"` // how bad it is
	// Found is the fact, for Unknown why there is none; Wanted what should be, "" for
	// a finding that wants nothing.
	Found  string `json:"found"`
	Wanted string `json:"wanted,omitempty"`
	// Why names the consequence for connections.
	Why string `json:"why,omitempty"`
	// Do is what to do where no command does it.
	Do string `json:"do,omitempty"`
	// Mend are commands that mend it now, Stay what makes it stay.
	Mend []string `json:"mend,omitempty"`
	Stay []Line   `json:"stay,omitempty"`
	// Concerns are a few of the virtual or real servers that need it; ConcernsCount is
	// how many there are.
	Concerns      []string `json:"concerns,omitempty"`
	ConcernsCount int      `json:"concerns_count,omitempty"`
}

// Report is a whole examination.
type Report struct {
	// File is the configuration that was judged, "" for none.
	File string `json:"config_file,omitempty"`
	// Namespace is the network namespace that was looked at, "" for this one.
	Namespace string `json:"network_namespace,omitempty"`
	Kernel    string `json:"kernel,omitempty"` // the kernel's release
	// Findings are in the order of the rules.
	Findings []Finding `json:"findings"`
}

// Worst is the worst status of a report; Unknown and Note count as OK, since there is
// nothing to mend.
func (r *Report) Worst() Status {
	for _, s := range []Status{Fail, Warn} {
		if r.Count(s) > 0 {
			return s
		}
	}
	return OK
}

// Count returns how many findings have a status.
func (r *Report) Count(s Status) (n int) {
	for i := range r.Findings {
		if r.Findings[i].Status == s {
			n++
		}
	}
	return n
}

// Daemon is what the running sluiced says of itself.
type Daemon struct {
	Version    string
	PID        int
	ConfigFile string
	Observe    bool
	// KernelError and ReloadError are "" where all is well.
	KernelError, ReloadError string
	// Passive is why it withholds its services, "" if it does not.
	Passive string
	// NoQuorum are the names of the virtual servers that have lost it.
	NoQuorum map[string]bool
	// Failures are the features around the table that do not work, with why.
	Failures []string
}

// SyncHalf is one of the kernel's two threads of connection synchronisation.
type SyncHalf struct {
	State, Interface string // "master" or "backup"
	ID               uint32
}

// Timeouts are the kernel's for connections, in seconds.
type Timeouts struct{ TCP, TCPFin, UDP uint32 }

// Input is all that a judgement rests on.
type Input struct {
	Facts *host.Facts
	// Config is nil for none: then only what every configuration needs counts.
	Config *config.Config
	File   string
	// Daemon is nil without one; DaemonUnknown says why it could not be asked, ""
	// if none runs.
	Daemon        *Daemon
	DaemonUnknown string
	// Timeouts is nil, with a reason, where the kernel could not be asked.
	Timeouts        *Timeouts
	TimeoutsUnknown string
	// Sync is what of connection synchronisation runs, unless SyncUnknown says why that is
	// not known.
	Sync        []SyncHalf
	SyncUnknown string
	// GuardTable is the table that vip_guard has in nftables.
	GuardTable string
	// Version is this program's.
	Version string
	// Socket is the control socket's path and StateDir the daemon's folder.
	Socket, StateDir string
	// Namespace names the network namespace that Facts are of ("lb", "of process 7"),
	// "" for the one that commands run in; Enter is the command that enters it.
	Namespace, Enter string
	// NamespaceUnknown is why it is not sure, or not seen, "" where it is.
	NamespaceUnknown string
}

// exam is one examination.
type exam struct {
	Input
	use *use
	now *rule
	// places are where this machine's addresses are, once somebody asked.
	places map[netip.Addr][]place
}

// rule is one thing that is looked at.
type rule struct {
	id, group string
	// title and when are for docs/doctor.md: what is looked at, and for whom.
	title, when string
	// why is what goes wrong.
	why string
	// sysctl and value are what mends it.
	sysctl, value string
	// help is for what a setting does not mend.
	help string
	find func(*exam) []Finding
}

// Examine judges.
func Examine(in Input) *Report {
	x := &exam{Input: in, use: useOf(in.Config, in.Facts)}
	r := &Report{File: in.File, Namespace: in.Namespace, Kernel: in.Facts.Kernel, Findings: []Finding{}}
	for _, rules := range allRules {
		for i := range rules {
			x.now = &rules[i]
			for _, f := range x.now.find(x) {
				f.ID, f.Group = x.now.id, x.now.group
				if f.Status != OK {
					f.Why = cmp.Or(f.Why, x.now.why)
				}
				r.Findings = append(r.Findings, x.inNamespace(f))
			}
		}
	}
	return r
}

// allRules are the rules in the order in which they are shown.
var allRules = [][]rule{sluiceRules, moduleRules, ipvsRules, pathRules, addressRules, vipRules, checkRules, viaRules, syncRules}

// few is how many examples a finding names.
const few = 3

func (f Finding) about(names []string) Finding {
	f.ConcernsCount = len(names)
	f.Concerns = slices.Clone(names[:min(few, len(names))])
	return f
}

func ok(format string, args ...any) []Finding {
	return []Finding{{Status: OK, Found: fmt.Sprintf(format, args...)}}
}

func unknown(format string, args ...any) []Finding {
	return []Finding{{Status: Unknown, Found: fmt.Sprintf(format, args...)}}
}

// sysctlFile is where lines for sysctls go, loadFile what loads a module at boot.
const (
	sysctlFile = "/etc/sysctl.d/90-sluice.conf"
	loadFile   = "/etc/modules-load.d/sluice.conf"
	optionFile = "/etc/modprobe.d/sluice.conf"
)

// mended adds how a sysctl is set now and for good.
func (f Finding) mended(name, value string) Finding {
	f.Mend = append(f.Mend, "sysctl -w "+argument(name)+"="+quoted(value))
	if strings.HasPrefix(name, "net.ipv4.vs.") {
		// The setting is there only once the module is.
		f.Stay = appendLine(f.Stay, Line{loadFile, "ip_vs"})
	}
	f.Stay = appendLine(f.Stay, Line{sysctlFile, argument(name) + " = " + value})
	return f
}

func appendLine(list []Line, l Line) []Line {
	if slices.Contains(list, l) {
		return list
	}
	return append(list, l)
}

func quoted(value string) string {
	if strings.Contains(value, " ") {
		return "'" + value + "'"
	}
	return value
}

// argument writes a sysctl's name as sysctl(8) takes it: with slashes where a
// device's name has a dot.
func argument(name string) string {
	for _, tree := range []string{"net.ipv4.conf.", "net.ipv6.conf."} {
		rest, found := strings.CutPrefix(name, tree)
		end := strings.LastIndexByte(rest, '.')
		if found && end >= 0 && strings.Contains(rest[:end], ".") {
			return strings.ReplaceAll(tree, ".", "/") + rest[:end] + "/" + rest[end+1:]
		}
	}
	return name
}

// inNamespace has commands enter the namespace that the finding is about.
func (x *exam) inNamespace(f Finding) Finding {
	if x.Enter == "" {
		return f
	}
	for i, c := range f.Mend {
		if strings.HasPrefix(c, "sysctl ") || strings.HasPrefix(c, "ip ") {
			f.Mend[i] = x.Enter + " " + c
		}
	}
	if slices.ContainsFunc(f.Stay, func(l Line) bool { return l.File == sysctlFile }) {
		f.Stay = nil
		f.Do = strings.TrimSpace(f.Do + " Have it set where that network namespace is made: files in /etc/sysctl.d do not reach it.")
	}
	return f
}

// setting reads a sysctl. done is not nil where there is nothing to judge.
func (x *exam) setting(name string) (value string, done []Finding) {
	s, read := x.Facts.Settings[name]
	switch {
	case strings.HasPrefix(name, "net.ipv4.vs.") && !x.Facts.Table.Present:
		return "", []Finding{} // ipvs_settings says it once
	case !read:
		return "", unknown("%s was not read", name)
	case s.Absent:
		return "", unknown("this kernel has no %s", name)
	case s.Unknown != "":
		return "", unknown("%s cannot be read: %s", name, s.Unknown)
	}
	return s.Value, nil
}

// is judges a sysctl by whether it has one of the values.
func (x *exam) is(concerned []string, bad Status, good ...string) []Finding {
	if len(concerned) == 0 {
		return nil
	}
	r := x.now
	value, done := x.setting(r.sysctl)
	if done != nil {
		return done
	}
	if slices.Contains(good, value) {
		return ok("%s is %s", r.sysctl, value)
	}
	f := Finding{Status: bad, Found: r.sysctl + " is " + value, Wanted: strings.Join(good, " or ")}
	return []Finding{f.mended(r.sysctl, r.value).about(concerned)}
}

// plural is for people.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
