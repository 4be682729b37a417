package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/host"
)

const groupSluice = "sluiced"

var sluiceRules = []rule{
	{
		id: "daemon", group: groupSluice, title: "sluiced runs", when: always,
		why:  "Without it the table stays as it is: servers that fail keep their clients.",
		help: "Start it: systemctl start sluiced",
		find: func(x *exam) []Finding {
			switch d := x.Daemon; {
			case x.DaemonUnknown != "":
				return unknown("%s", x.DaemonUnknown)
			case d == nil:
				return []Finding{{Status: Note, Found: "sluiced does not run: nobody answers on " + x.Socket, Do: x.now.help}}
			case d.Observe:
				return []Finding{{Status: Note, Found: fmt.Sprintf("sluiced (process %d) runs in observe mode", d.PID), Why: "It decides and reports, and writes nothing to the kernel."}}
			default:
				return ok("sluiced %s runs (process %d)", d.Version, d.PID)
			}
		},
	},
	{
		id: "version", group: groupSluice, title: "the running sluiced is the installed one", when: "sluiced runs",
		why:  "After an upgrade the old program runs on, with its old faults.",
		help: "The new program takes over without a loss. Where sluice itself is the older one, upgrade that.",
		find: func(x *exam) []Finding {
			if x.Daemon == nil || x.Daemon.Version == x.Version {
				return nil
			}
			return []Finding{{Status: Warn, Found: fmt.Sprintf("sluiced is %s, sluice is %s", x.Daemon.Version, x.Version), Wanted: "the same version", Do: x.now.help, Mend: []string{"sluice handover"}}}
		},
	},
	{
		id: "table_written", group: groupSluice, title: "sluiced can write the IPVS table", when: "sluiced runs",
		why:  "What fails is not taken out and what comes back not put in, for as long as this lasts. It is tried again by itself.",
		help: "See the findings on kernel modules and capabilities.",
		find: func(x *exam) []Finding {
			switch {
			case x.Daemon == nil || x.Daemon.Observe:
				return nil
			case x.Daemon.KernelError != "":
				return []Finding{{Status: Fail, Found: x.Daemon.KernelError, Wanted: "a table that can be written", Do: x.now.help}}
			}
			return ok("the IPVS table can be written")
		},
	},
	{
		id: "last_reload", group: groupSluice, title: "the last reload was accepted", when: "sluiced runs",
		why:  "The file and what runs differ. The next restart reads the file, and does not start if it is refused.",
		help: "sluice check FILE says what is wrong; then: sluice reload",
		find: func(x *exam) []Finding {
			switch {
			case x.Daemon == nil:
				return nil
			case x.Daemon.ReloadError != "":
				return []Finding{{Status: Warn, Found: "the last reload was refused: " + x.Daemon.ReloadError, Wanted: "a configuration that loads", Do: x.now.help}}
			}
			return ok("the last reload was accepted")
		},
	},
	{
		id: "namespace", group: groupSluice, title: "the right network namespace is looked at", when: "sluiced or its table is in one of its own",
		why: "Addresses, routes and most settings belong to a network namespace: those of another one say nothing about this configuration.",
		find: func(x *exam) []Finding {
			switch {
			case x.NamespaceUnknown != "":
				return unknown("%s", x.NamespaceUnknown)
			case x.Namespace != "":
				return ok("addresses, routes and settings are those of the network namespace %s", x.Namespace)
			}
			return nil
		},
	},
	{
		id: "capabilities", group: groupSluice, title: "sluiced has the capabilities that the configuration needs", when: always,
		why:  "What needs the capability does not work; everything else does.",
		help: "In the unit: CapabilityBoundingSet and, for a user other than root, AmbientCapabilities. In a container: --cap-add. Then restart.",
		find: capabilities,
	},
	{
		id: "descriptors", group: groupSluice, title: "there are descriptors enough for all checks", when: "sluiced runs and there are checks",
		why: "Each running check needs a descriptor. In an outage, when all wait for answers at once, checks without one say nothing, and failures are seen late.",
		find: func(x *exam) []Finding {
			c := x.Facts.Daemon
			if x.Daemon == nil || x.use.checks == 0 {
				return nil
			}
			if c.Unknown != "" || c.FilesUnknown != "" {
				return unknown("the limit of open files: %s%s", c.Unknown, c.FilesUnknown)
			}
			need := uint64(x.use.checks + spareFiles)
			found := fmt.Sprintf("%s with a limit of %d open files", plural(x.use.checks, "check", "checks"), c.Files)
			if c.Files >= need {
				return ok("%s", found)
			}
			return []Finding{{Status: Warn, Found: found, Wanted: fmt.Sprintf("%d or more", need),
				Mend: []string{fmt.Sprintf("prlimit --pid %d --nofile=%d:%d", c.PID, need, max(need, c.FilesHard))},
				Stay: []Line{{"/etc/systemd/system/sluiced.service.d/limits.conf", "[Service]"}, {"/etc/systemd/system/sluiced.service.d/limits.conf", fmt.Sprintf("LimitNOFILE=%d", max(need, c.FilesHard))}}}}
		},
	},
	{
		id: "state_dir", group: groupSluice, title: "the state folder can be written", when: "sluiced runs",
		why:  "Without it a restart forgets drains, operators' commands and who was down: leaving servers get new connections again.",
		help: "Make it, owned by the user of sluiced (the unit's StateDirectory does).",
		find: stateDir,
	},
	{
		id: "socket", group: groupSluice, title: "the control socket is not open to all", when: "sluiced runs without control_group",
		why: "Who can connect can drain every server.",
		find: func(x *exam) []Finding {
			p, asked := x.Facts.Paths[x.Socket]
			switch {
			case x.Daemon == nil || !asked || p.Absent:
				return nil
			case p.Unknown != "":
				return unknown("%s", p.Unknown)
			case p.Mode&0o002 != 0 && x.Config != nil && (x.use.global.ControlGroup.Name != "" || x.use.global.ControlReadGroup.Name != ""):
				return ok("%s is open to all, and sluiced goes by control_group", x.Socket)
			case p.Mode&0o002 != 0:
				return []Finding{{Status: Warn, Found: fmt.Sprintf("%s has mode %04o", x.Socket, p.Mode&0o7777), Wanted: "no access for others", Mend: []string{"chmod o= " + x.Socket}}}
			}
			return ok("%s has mode %04o", x.Socket, p.Mode&0o7777)
		},
	},
	{
		id: "other_writers", group: groupSluice, title: "nobody else writes the same table", when: always,
		why:  "Two that write the same services undo each other's work: servers that one takes out come back by the other, and connections are lost with each turn.",
		help: "Stop it; keepalived goes on with VRRP alone by -P in its DAEMON_ARGS or KEEPALIVED_OPTIONS.",
		find: writersOf,
	},
}

// spareFiles are descriptors for everything but checks.
const spareFiles = 200

func capabilities(x *exam) []Finding {
	c := x.Facts.Daemon
	if c.Unknown != "" {
		return unknown("the capabilities of process %d: %s", c.PID, c.Unknown)
	}
	lacks := c.Lacks(x.use.needs...)
	if len(lacks) == 0 {
		if x.Daemon == nil {
			return nil // whoever starts sluiced has its own
		}
		return ok("sluiced has the capabilities that it needs")
	}
	var names []string
	for _, m := range lacks {
		names = append(names, m.String())
	}
	f := Finding{Status: Fail, Found: "sluiced lacks " + strings.Join(names, "; "), Wanted: "these capabilities", Do: x.now.help}
	switch {
	case x.Daemon == nil:
		f = Finding{Status: Note, Found: "this process, if it were sluiced, would lack " + strings.Join(names, "; ")}
	case x.Daemon.Observe && !slices.ContainsFunc(lacks, func(m host.Missing) bool { return m.Name != "CAP_NET_ADMIN" }):
		f.Status = Note // it writes nothing
	}
	return []Finding{f}
}

func stateDir(x *exam) []Finding {
	p, asked := x.Facts.Paths[x.StateDir]
	c := x.Facts.Daemon
	wanted := "a folder that sluiced can write"
	switch {
	case x.Daemon == nil || x.Daemon.Observe || x.StateDir == "" || !asked:
		return nil
	case p.Absent:
		return []Finding{{Status: Warn, Found: x.StateDir + " is not there", Wanted: wanted, Do: x.now.help}}
	case p.Unknown != "":
		return unknown("%s", p.Unknown)
	case c.Unknown != "":
		return unknown("whether process %d may write %s: %s", c.PID, x.StateDir, c.Unknown)
	}
	bit := uint32(0o002)
	switch {
	case p.UID == c.UID:
		bit = 0o200
	case p.GID == c.GID || slices.Contains(c.Groups, p.GID):
		bit = 0o020
	}
	if p.Mode&bit == 0 && !c.Has(unix.CAP_DAC_OVERRIDE) {
		return []Finding{{Status: Warn, Found: fmt.Sprintf("%s has mode %04o and owner %d, sluiced runs as %d", x.StateDir, p.Mode&0o7777, p.UID, c.UID), Wanted: wanted, Do: x.now.help,
			Mend: []string{fmt.Sprintf("chown %d %s", c.UID, x.StateDir)}}}
	}
	return ok("%s can be written", x.StateDir)
}

// option says whether a short option, alone or among others, or a long one is there.
func option(w host.Writer, short byte, long string) bool {
	for _, a := range w.Args[min(1, len(w.Args)):] {
		if a == long {
			return true
		}
		if !strings.HasPrefix(a, "-") || strings.HasPrefix(a, "--") {
			continue
		}
		// What follows an option with a value is that value.
		letters := a[1:]
		if i := strings.IndexAny(letters, "fprcaiuSsgGtTe"); i >= 0 {
			letters = letters[:i+1]
		}
		if strings.IndexByte(letters, short) >= 0 {
			return true
		}
	}
	return false
}

// writes says whether a keepalived is sure to write the table.
func writes(w host.Writer) bool { return option(w, 'C', "--check") && !option(w, 'P', "--vrrp") }

// fileOf is the configuration of a keepalived.
func fileOf(w host.Writer) string {
	for i, a := range w.Args {
		if v, ok := strings.CutPrefix(a, "--use-file="); ok {
			return v
		}
		if (a == "-f" || a == "--use-file") && i+1 < len(w.Args) {
			return w.Args[i+1]
		}
	}
	return "/etc/keepalived/keepalived.conf"
}

func writersOf(x *exam) (found []Finding) {
	if x.Facts.WritersUnknown != "" {
		return unknown("the processes of this machine: %s", x.Facts.WritersUnknown)
	}
	told := map[string]bool{}
	tell := func(s Status, w host.Writer, text string) {
		// A keepalived has children that look the same.
		if !told[w.Name] {
			told[w.Name] = true
			f := Finding{Status: s, Found: fmt.Sprintf("%s (process %d) %s", w.Name, w.PID, text)}
			if s != OK && s != Note {
				f.Wanted, f.Do = "one writer", x.now.help
			}
			found = append(found, f)
		}
	}
	for _, w := range x.Facts.Writers {
		switch {
		case w.Elsewhere:
		case w.Name == "sluiced" && slices.Contains(w.Args, "--observe"):
		case w.Name == "sluiced" && x.Daemon != nil:
			tell(Warn, w, "is another sluiced; it is right only if their virtual servers differ")
		case w.Name == "sluiced":
			tell(Note, w, "does not answer on "+x.Socket+"; name its socket with --socket")
		case strings.HasPrefix(w.Name, "keepalived") && option(w, 'P', "--vrrp"):
			tell(OK, w, "runs VRRP alone")
		case strings.HasPrefix(w.Name, "keepalived") && (writes(w) || x.File != "" && filepath.Clean(fileOf(w)) == filepath.Clean(x.File)):
			tell(Fail, w, "writes IPVS too")
		case strings.HasPrefix(w.Name, "keepalived"):
			tell(Warn, w, "writes IPVS too if "+fileOf(w)+" has virtual servers")
		case strings.HasPrefix(w.Name, "kube-proxy"):
			if slices.ContainsFunc(x.Facts.Devices, func(d host.Device) bool { return d.Name == "kube-ipvs0" }) {
				tell(Fail, w, "runs in IPVS mode, and deletes services that it does not know")
			}
		default:
			tell(Fail, w, "writes IPVS too")
		}
	}
	if len(found) == 0 {
		return ok("no other process is known to write IPVS")
	}
	return found
}
