package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/daemon"
)

// options are what the command line says.
type options struct {
	file, id, socket, format, level string
	stateDir                        string
	test, logFile                   optionalFile
	strict, observe, json, version  bool
	detail                          int
	signum                          signum
	facility                        facility
	mask                            mask
	pid, checkersPID                string
	dump                            bool
	daemon                          daemon.CommandLine
}

// standardError stands for a value that was left out.
const standardError = "-"

// optional is the type of a value that may be left out.
const optional = "optional"

// optionalFile is FILE of an option that works without.
type optionalFile struct {
	given bool
	file  string // "" for standard error
}

// String returns the file.
func (o *optionalFile) String() string { return o.file }

// Set takes the file, or standardError.
func (o *optionalFile) Set(s string) error {
	o.given, o.file = true, s
	if s == standardError {
		o.file = ""
	}
	return nil
}

// Type tells pflag and normalize.
func (o *optionalFile) Type() string { return optional }

// ignored is an option of keepalived whose value, if it has one, is of no use.
type ignored struct{ typ string }

// String has nothing to show.
func (ignored) String() string { return "" }

// Set takes anything.
func (ignored) Set(string) error { return nil }

// Type tells pflag whether there is a value.
func (i ignored) Type() string { return i.typ }

// signum is the number of a signal that this daemon heeds.
type signum int

// signals are keepalived's names.
var signals = map[string]signum{"STOP": signum(unix.SIGTERM), "RELOAD": signum(unix.SIGHUP), "DATA": signum(unix.SIGUSR1)}

// String returns the number.
func (s *signum) String() string { return strconv.Itoa(int(*s)) }

// Set takes a name.
func (s *signum) Set(name string) error {
	switch n, known := signals[name]; {
	case known:
		*s = n
		return nil
	case name == "STATS", name == "STATS_CLEAR", name == "JSON", name == "TDUMP":
		return fmt.Errorf("%s is a signal of VRRP, which sluiced does not run; see: sluice status", name)
	}
	return fmt.Errorf("want STOP, RELOAD or DATA")
}

// Type names the value.
func (s *signum) Type() string { return "NAME" }

// facility is a syslog facility.
type facility struct{}

// String has nothing to show.
func (facility) String() string { return "" }

// Set takes what keepalived takes.
func (facility) Set(s string) error {
	n := strings.TrimPrefix(s, "local")
	if s == "user" || s == "daemon" || len(n) == 1 && n[0] >= '0' && n[0] <= '7' {
		return nil
	}
	return fmt.Errorf("want 0 to 7, local0 to local7, user or daemon")
}

// Type names the value.
func (facility) Type() string { return "FACILITY" }

// mask is a umask, octal with a leading 0.
type mask struct{ value *uint32 }

// String returns the mask.
func (m *mask) String() string {
	if m.value == nil {
		return ""
	}
	return fmt.Sprintf("%04o", *m.value)
}

// Set takes a number as C writes it.
func (m *mask) Set(s string) error {
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil || n > 0o777 {
		return fmt.Errorf("want a number of 0 to 0777, octal with a leading 0")
	}
	m.value = new(uint32(n))
	return nil
}

// Type names the value.
func (m *mask) Type() string { return "MASK" }

// group is a part of the help.
type group struct {
	title string
	flags *pflag.FlagSet
}

// define returns the options of keepalived that this daemon serves, then its own,
// then those that it takes and has no use for.
func define(o *options) []group {
	served, own, without := newSet(), newSet(), newSet()

	served.StringVarP(&o.file, "use-file", "f", "/etc/keepalived/keepalived.conf", "configuration `FILE`")
	served.VarP(&o.test, "config-test", "t", "check the configuration, change nothing, and exit; findings go to standard error or to the end of `LOG`")
	served.Lookup("config-test").NoOptDefVal = standardError
	served.StringVarP(&o.id, "config-id", "i", "", "`ID` for conditional lines (@ID); default: the host name up to the first dot")
	served.BoolVarP(&o.daemon.AllConfig, "all-config", "e", false, "an include without a file is an error")
	served.StringVarP(&o.daemon.NetNamespace, "namespace", "s", "", "run in network namespace `NAME`, whatever net_namespace says")
	served.BoolVarP(&o.daemon.DontRelease, "dont-release-ipvs", "I", false, "leave the IPVS table as it is at the stop")
	served.StringVarP(&o.pid, "pid", "p", "", "write the process's number to `FILE`, and do not start if one that runs has it")
	served.StringVarP(&o.checkersPID, "checkers_pid", "c", "", "another such `FILE`: checker and daemon are one process")
	served.BoolVarP(&o.dump, "dump-conf", "d", false, "print the configuration with every default at the start")
	served.CountVarP(&o.detail, "log-detail", "D", "the same as --log-level debug")
	served.VarP(&o.logFile, "log-file", "g", "log to the end of `FILE`")
	served.Lookup("log-file").NoOptDefVal = standardError
	served.BoolVarP(&o.daemon.LogAddresses, "address-monitoring", "a", false, "log each address that the machine gets or loses")
	served.VarP(&o.mask, "umask", "u", "`MASK` of new files, whatever umask says")
	served.Var(&o.signum, "signum", "print the number of signal `NAME` (STOP, RELOAD or DATA) and exit")
	served.BoolVar(&o.daemon.IgnoreInterrupt, "ignore-sigint", false, "an interrupt (^C) does not stop the daemon")
	served.BoolP("genhash", "T", false, "print the digest of a page and exit; must come first, and has its own options: see -T --help")
	served.BoolVarP(&o.version, "version", "v", false, "print the version and exit")
	served.BoolP("help", "h", false, "print this and exit")

	own.BoolVar(&o.strict, "strict", false, "refuse a configuration with errors that keepalived would live with")
	own.BoolVar(&o.observe, "observe", false, "check, decide and report, but write nothing to the kernel")
	own.StringVar(&o.socket, "socket", daemon.DefaultSocket, "control socket `PATH`; empty for none")
	own.StringVar(&o.stateDir, "state-dir", daemon.DefaultStateDir, "folder `PATH` for what survives a restart; empty for none")
	own.StringVar(&o.format, "log-format", "text", "`FORMAT`: text or json")
	own.StringVar(&o.level, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	own.BoolVar(&o.json, "json", false, "with -t: findings as JSON")

	for _, u := range useless {
		f := without.VarPF(ignored{u.value}, u.long, u.short, u.usage)
		switch u.value {
		case "bool":
			f.NoOptDefVal = "true"
		case optional:
			f.NoOptDefVal = standardError
		}
	}
	without.VarP(&o.facility, "log-facility", "S", "syslog `FACILITY`: see -l")

	return []group{{"As with keepalived", served}, {"Of its own", own}, {"Known from keepalived, without effect here", without}}
}

func newSet() *pflag.FlagSet {
	f := pflag.NewFlagSet("sluiced", pflag.ContinueOnError)
	f.SortFlags = false
	return f
}

// useless are options of keepalived that have nothing to act on here. value is
// "bool" for none, optional, or the name of one.
var useless = []struct {
	long, short, value, usage string
	// note is what an operator should know, "" if it makes no difference. With
	// refuse it is why the daemon does not start.
	note   string
	refuse bool
}{
	{"check", "C", "bool", "run the checkers: sluiced runs nothing else", "", false},
	{"dont-fork", "n", "bool", "sluiced never forks", "", false},
	{"dont-respawn", "R", "bool", "there is no child to start again", "", false},
	{"log-console", "l", "bool", "sluiced logs to standard error, from where systemd takes it to the journal and syslog", "", false},
	{"no-syslog", "G", "bool", "see -l", "", false},
	{"flush-log-file", "", "bool", "each line of the log is written at once", "", false},
	{"vrrp_pid", "r", "FILE", "`FILE` of a process that there is not", "", false},
	{"bfd_pid", "b", "FILE", "`FILE` of a process that there is not", "", false},
	{"no_bfd", "B", "bool", "there is no BFD process", "", false},
	{"all", "", "bool", "there is one process only", "", false},
	{"vrrp", "P", "bool", "refused: sluiced runs no VRRP", "sluiced runs no VRRP: keep keepalived --vrrp for it, and start sluiced without this option for the checkers", true},
	{"release-vips", "X", "bool", "concerns VRRP", "sluiced runs no VRRP: give this option to keepalived --vrrp", false},
	{"dont-release-vrrp", "V", "bool", "concerns VRRP", "sluiced runs no VRRP: give this option to keepalived --vrrp", false},
	{"snmp", "x", "bool", "SNMP is not served", "SNMP is not served: read the state by sluice status", false},
	{"snmp-agent-socket", "A", "SOCKET", "`SOCKET` of an SNMP agent: SNMP is not served", "SNMP is not served: read the state by sluice status", false},
	{"core-dump", "m", "bool", "the unit says it by LimitCORE= and Environment=GOTRACEBACK=crash", "core dumps are not set up: put LimitCORE=infinity and Environment=GOTRACEBACK=crash in the unit", false},
	{"core-dump-pattern", "M", optional, "`PATTERN` of core dumps: see -m", "core dumps are not set up: put LimitCORE=infinity and Environment=GOTRACEBACK=crash in the unit, and the pattern in sysctl kernel.core_pattern", false},
}

const facilityNote = "sluiced logs to standard error: set the facility by SyslogFacility= in the unit"

// notes are what to tell about the options that were given, in their order;
// refusals are those that keep the daemon from starting.
func notes(flags *pflag.FlagSet) (told, refusals []string) {
	flags.Visit(func(f *pflag.Flag) {
		if f.Name == "log-facility" {
			told = append(told, "--log-facility: "+facilityNote)
		}
		for _, u := range useless {
			switch line := "--" + u.long + ": " + u.note; {
			case u.long != f.Name || u.note == "":
			case u.refuse:
				refusals = append(refusals, line)
			default:
				told = append(told, line)
			}
		}
	})
	return told, refusals
}
