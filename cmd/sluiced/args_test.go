package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/sluice-lb/sluice/internal/daemon"
)

// defaults is what no option at all comes to.
func defaults() options {
	return options{file: "/etc/keepalived/keepalived.conf", socket: daemon.DefaultSocket, stateDir: daemon.DefaultStateDir, format: "text", level: "info"}
}

var same = cmp.Options{
	cmp.AllowUnexported(options{}, optionalFile{}, mask{}, facility{}),
	cmpopts.IgnoreFields(options{}, "pid", "checkersPID", "mask"), // they are in daemon
}

// TestOptions: what each option sets, in both of its forms.
func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		args string // alternatives, separated by " | "
		set  func(*options)
		told string // of the note, "" for none
	}{
		{"", func(*options) {}, ""},
		{"-f /x | -f/x | --use-file /x | --use-file=/x | --use=/x", func(o *options) { o.file = "/x" }, ""},
		{"-f -n", func(o *options) { o.file = "-n" }, ""}, // as getopt does
		{"-t | --config-test", func(o *options) { o.test.given = true }, ""},
		{"-t/log | -t=/log | --config-test=/log", func(o *options) { o.test = optionalFile{true, "/log"} }, ""},
		{"-t=log", func(o *options) { o.test = optionalFile{true, "log"} }, ""},
		{"-tf /x | -f /x -t | -nltf /x", func(o *options) { o.test.given, o.file = true, "/x" }, ""},
		{"-i lb1 | -ilb1 | --config-id lb1", func(o *options) { o.id = "lb1" }, ""},
		{"-e | --all-config", func(o *options) { o.daemon.AllConfig = true }, ""},
		{"-s blue | --namespace=blue", func(o *options) { o.daemon.NetNamespace = "blue" }, ""},
		{"-I | --dont-release-ipvs | --dont-release-i", func(o *options) { o.daemon.DontRelease = true }, ""},
		{"-p /run/a.pid | --pid /run/a.pid", func(o *options) { o.daemon.PIDFiles = []string{"/run/a.pid"} }, ""},
		{"-c /run/b.pid | --checkers_pid=/run/b.pid", func(o *options) { o.daemon.PIDFiles = []string{"/run/b.pid"} }, ""},
		{"-c /b -p /a", func(o *options) { o.daemon.PIDFiles = []string{"/a", "/b"} }, ""},
		{"-d | --dump-conf", func(o *options) { o.dump = true }, ""},
		{"-D | --log-detail", func(o *options) { o.detail = 1 }, ""},
		{"-DD | -D -D", func(o *options) { o.detail = 2 }, ""},
		{"-g/log | -g=/log | --log-file=/log", func(o *options) { o.logFile = optionalFile{true, "/log"} }, ""},
		{"-g | --log-file", func(o *options) { o.logFile.given = true }, ""},
		{"-a | --address-monitoring", func(o *options) { o.daemon.LogAddresses = true }, ""},
		{"-u 077 | -u63 | --umask=0x3f | --umask 077", func(o *options) { o.daemon.Umask = new(uint32(0o077)) }, ""},
		{"-u 0 | --umask=0", func(o *options) { o.daemon.Umask = new(uint32(0)) }, ""},
		{"--signum=STOP | --signum STOP | --sig=STOP", func(o *options) { o.signum = 15 }, ""},
		{"--signum=RELOAD", func(o *options) { o.signum = 1 }, ""},
		{"--signum=DATA", func(o *options) { o.signum = 10 }, ""},
		{"--ignore-sigint", func(o *options) { o.daemon.IgnoreInterrupt = true }, ""},
		{"-v | --version", func(o *options) { o.version = true }, ""},
		{"-h | --help", func(*options) {}, ""},

		{"--strict", func(o *options) { o.strict = true }, ""},
		{"--observe", func(o *options) { o.observe = true }, ""},
		{"--socket=/s", func(o *options) { o.socket = "/s" }, ""},
		{"--socket=", func(o *options) { o.socket = "" }, ""},
		{"--state-dir=/s | --state-dir /s", func(o *options) { o.stateDir = "/s" }, ""},
		{"--state-dir=", func(o *options) { o.stateDir = "" }, ""},
		{"--log-format json", func(o *options) { o.format = "json" }, ""},
		{"--log-level warn", func(o *options) { o.level = "warn" }, ""},
		{"--json", func(o *options) { o.json = true }, ""},

		{"-C | --check | -n | --dont-fork | -R | --dont-respawn | -l | --log-console | -G | --no-syslog | --flush-log-file", func(*options) {}, ""},
		{"-B | --no_bfd | --all | -r /run/vrrp.pid | --vrrp_pid=/x | -b /run/bfd.pid | --bfd_pid /x", func(*options) {}, ""},
		{"-nlCRGB", func(*options) {}, ""},
		{"-X | --release-vips", func(*options) {}, "--release-vips: sluiced runs no VRRP: give this option to keepalived --vrrp"},
		{"-V | --dont-release-vrrp", func(*options) {}, "--dont-release-vrrp: sluiced runs no VRRP: give this option to keepalived --vrrp"},
		{"-x | --snmp", func(*options) {}, "--snmp: SNMP is not served: read the state by sluice status"},
		{"-A unix:/x | --snmp-agent-socket=unix:/x", func(*options) {}, "--snmp-agent-socket: SNMP is not served"},
		{"-m | --core-dump", func(*options) {}, "--core-dump: core dumps are not set up: put LimitCORE=infinity"},
		{"-M | -M/x/core | --core-dump-pattern=core", func(*options) {}, "--core-dump-pattern: core dumps are not set up"},
		{"-S 0 | -S7 | -S local0 | -S user | --log-facility=daemon", func(*options) {}, "--log-facility: sluiced logs to standard error: set the facility by SyslogFacility="},
	} {
		for args := range strings.SplitSeq(tt.args, " | ") {
			want := defaults()
			tt.set(&want)
			got, flags, _, err := parse(strings.Fields(args))
			if err != nil {
				t.Errorf("%q: %v", args, err)
				continue
			}
			if diff := cmp.Diff(want, got, same); diff != "" {
				t.Errorf("%q (-want +got):\n%s", args, diff)
			}
			told, refusals := notes(flags)
			if len(refusals) > 0 || (tt.told == "") != (len(told) == 0) || len(told) > 1 || tt.told != "" && !strings.HasPrefix(told[0], tt.told) {
				t.Errorf("%q tells %q and refuses with %q, want %q", args, told, refusals, tt.told)
			}
		}
	}
}

// TestOptionsOfKeepalived: each option that keepalived 2.2.7 and 2.3 know is known.
func TestOptionsOfKeepalived(t *testing.T) {
	flags := newSet()
	for _, g := range define(new(options)) {
		flags.AddFlagSet(g.flags)
	}
	letters := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) { letters[f.Name] = f.Shorthand })
	for name, letter := range map[string]string{
		"use-file": "f", "vrrp": "P", "check": "C", "no_bfd": "B", "all": "", "log-console": "l", "log-detail": "D",
		"log-facility": "S", "log-file": "g", "flush-log-file": "", "no-syslog": "G", "umask": "u", "release-vips": "X",
		"dont-release-vrrp": "V", "dont-release-ipvs": "I", "dont-respawn": "R", "dont-fork": "n", "dump-conf": "d",
		"pid": "p", "vrrp_pid": "r", "genhash": "T", "checkers_pid": "c", "address-monitoring": "a", "bfd_pid": "b",
		"snmp": "x", "snmp-agent-socket": "A", "namespace": "s", "core-dump": "m", "core-dump-pattern": "M",
		"all-config": "e", "config-id": "i", "signum": "", "config-test": "t", "ignore-sigint": "", "version": "v", "help": "h",
	} {
		if got, known := letters[name]; !known || got != letter {
			t.Errorf("--%s is -%s, want -%s (known: %v)", name, got, letter, known)
		}
	}
}

// TestOptionErrors: one line that says what is wrong.
func TestOptionErrors(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"-Q", "unknown option -Q"},
		{"-nQ", "unknown option -Q"},
		{"-é", `unknown option -` + "\xc3"},
		{"--nonsense", "unknown option --nonsense"},
		{"--nonsense=1", "unknown option --nonsense"},
		{"--=1", "unknown option --"},
		{"-f", "option -f needs a FILE"},
		{"-nf", "option -f needs a FILE"},
		{"--use-file", "option --use-file needs a FILE"},
		{"--config", "option --config could be --config-test or --config-id"},
		{"-S foo", "want 0 to 7, local0 to local7, user or daemon"},
		{"-S local8", "want 0 to 7"},
		{"-S 10", "want 0 to 7"},
		{"-S local", "want 0 to 7"},
		{"-u 999", "want a number of 0 to 0777"},
		{"-u 01000", "want a number of 0 to 0777"},
		{"-u rw", "want a number of 0 to 0777"},
		{"-u -1", "want a number of 0 to 0777"},
		{"--signum=stop", "want STOP, RELOAD or DATA"},
		{"--signum=STATS", "STATS is a signal of VRRP, which sluiced does not run; see: sluice status"},
		{"--signum=STATS_CLEAR", "STATS_CLEAR is a signal of VRRP"},
		{"--signum=JSON", "JSON is a signal of VRRP"},
		{"--signum=TDUMP", "TDUMP is a signal of VRRP"},
		{"--signum", "option --signum needs a NAME"},
	} {
		_, _, _, err := parse(strings.Fields(tt.args))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
}

// TestArguments: what is no option, and where options end.
func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		args, want []string
		file       string
	}{
		{nil, nil, defaults().file},
		{[]string{"a", "-n", "b"}, []string{"a", "b"}, defaults().file},
		{[]string{"-f", "/x", "--", "-n", "a"}, []string{"-n", "a"}, "/x"},
		{[]string{"-"}, []string{"-"}, defaults().file},
		{[]string{"-f", "--"}, nil, "--"},
		{[]string{"--use-file=a=b"}, nil, "a=b"},
		{[]string{""}, []string{""}, defaults().file},
	} {
		o, flags, _, err := parse(tt.args)
		if err != nil || !slices.Equal(flags.Args(), tt.want) || o.file != tt.file {
			t.Errorf("%q: file %s and %q, %v; want file %s and %q", tt.args, o.file, flags.Args(), err, tt.file, tt.want)
		}
	}
}

// FuzzParse: no command line makes it panic, and what is refused has a reason.
func FuzzParse(f *testing.F) {
	f.Add("-nltf /x --config-test=/log -S local0 -- -x")
	f.Add("-g/log -M -T --sig STOP --lo")
	f.Add("-DDIe -u 0x3f -\xff --=")
	f.Fuzz(func(t *testing.T, line string) {
		_, flags, _, err := parse(strings.Split(line, " "))
		if err != nil && err.Error() == "" {
			t.Errorf("%q: an error without text", line)
		}
		notes(flags)
	})
}
