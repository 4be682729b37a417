package keyword

import (
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

const (
	defaultMailTimeout   = 30 * time.Second
	defaultScriptTimeout = 10 * time.Second
)

// inMail makes the setter of a word about mail.
func inMail(set func(m *config.Mail, v *value)) func(*frame, *value) {
	return func(f *frame, v *value) { set(&f.b.raw.global.Mail, v) }
}

// mailRows are the words of global_defs about mail. Nothing is resolved here: a
// name server that does not answer must not hold the reading of a file.
func mailRows() []keyword {
	return each([]string{blockGlobal},
		keyword{name: "notification_email", opens: blockMail, def: "none: no mail is sent", doc: "recipients, by blanks or lines; a name needs quotes: \"Ops <ops@example.com>\"; blocks add up", close: closeMail},
		keyword{name: "notification_email_from", arg: text(), def: "the user at the host's name", doc: "sender; a name needs quotes", set: inMail(func(m *config.Mail, v *value) { m.From = v.text })},
		keyword{name: "smtp_server", arg: custom("HOST [PORT]", 1), def: "none: no mail is sent", doc: "where mail goes, port 25 by default; a name is looked up when there is mail", set: setMailServer},
		keyword{name: "smtp_helo_name", arg: text(), soft: true, def: "the host's name", doc: "name in the greeting", set: inMail(func(m *config.Mail, v *value) { m.Helo = v.text })},
		keyword{name: "smtp_connect_timeout", arg: number(0, 4294).in("s"), def: "30", doc: "bound of the connection and of each answer; 0 is an error and means 1", set: setMailTimeout},
		keyword{name: "smtp_alert", arg: boolean(), def: "off for virtual servers, on for real servers", doc: "whether blocks that do not say so send mail", set: func(f *frame, v *value) { f.b.raw.smtpAlert.set(v.yes) }},
		keyword{name: "smtp_alert_checker", arg: boolean(), def: "smtp_alert", doc: "the same; it comes before smtp_alert", set: func(f *frame, v *value) { f.b.raw.smtpAlertChecker.set(v.yes) }},
		keyword{name: "no_checker_emails", arg: boolean(), def: "off", doc: "no mail of a check that did not change its real server", set: inMail(func(m *config.Mail, v *value) { m.NoCheckerEmails = v.yes })},
	)
}

// daemonRows are the words of global_defs about what runs beside the checks:
// scripts of the daemon, FIFOs and the synchronisation of connections.
func daemonRows() []keyword {
	g := func(set func(g *config.Global, v *value)) func(*frame, *value) {
		return func(f *frame, v *value) { set(&f.b.raw.global, v) }
	}
	const fifoPath = "PATH [USER [GROUP]]"
	return each([]string{blockGlobal},
		keyword{name: "startup_script", arg: script(), dup: firstWins, def: "none", doc: "run before the services are set up; not at a reload", set: func(f *frame, v *value) { f.b.raw.global.StartupScript = f.newScript(v) }},
		keyword{name: "startup_script_timeout", arg: number(1, 1000).in("s"), def: "10", doc: "longest run", set: g(func(g *config.Global, v *value) { g.StartupTimeout = time.Duration(v.num) * time.Second })},
		keyword{name: "shutdown_script", arg: script(), dup: firstWins, def: "none", doc: "run when the services are gone; not at a reload", set: func(f *frame, v *value) { f.b.raw.global.ShutdownScript = f.newScript(v) }},
		keyword{name: "shutdown_script_timeout", arg: number(1, 1000).in("s"), def: "10", doc: "longest run", set: g(func(g *config.Global, v *value) { g.ShutdownTimeout = time.Duration(v.num) * time.Second })},
		keyword{name: "set_supplementary_groups", arg: boolean(), def: "off", doc: "scripts have their user's other groups too; for every script, where keepalived takes those after the line", set: g(func(g *config.Global, v *value) { g.SupplementaryGroups = v.yes })},
		keyword{name: "use_symlink_paths", arg: boolean(), def: "off", doc: "run scripts by the path as written", set: g(func(g *config.Global, v *value) { g.UseSymlinkPaths = v.yes })},

		keyword{name: "lvs_notify_fifo", arg: custom(fifoPath, 1), soft: true, dup: firstWins, def: "none", doc: "a FIFO that gets a line for each change; script_user owns it if nobody is named", set: setFIFO(lvsFIFO)},
		keyword{name: "lvs_notify_fifo_script", arg: script(), soft: true, dup: firstWins, def: "none", doc: "started with the FIFO, its path as last argument", set: setFIFOScript(lvsFIFO)},
		keyword{name: "notify_fifo", arg: custom(fifoPath, 1), soft: true, dup: firstWins, def: "none", doc: "another FIFO that gets the same", set: setFIFO(globalFIFO)},
		keyword{name: "notify_fifo_script", arg: script(), soft: true, dup: firstWins, def: "none", doc: "started with that one", set: setFIFOScript(globalFIFO)},

		keyword{name: "lvs_sync_daemon", arg: custom("IF [[inst] VRRP_INSTANCE] [id 0..255] [maxlen 1..65507] [port 1..65535] [ttl 1..255] [group MULTICAST_IP]", 1), soft: true, dup: firstWins,
			def: "none", doc: "tell another director the connections; without its option the id is 0, and the rest the kernel's default", set: setSync},
		keyword{name: "lvs_sync_state", arg: custom("off | master | backup | both | track_file NAME", 1), extension: true, def: "both; off with a VRRP instance", doc: "which half of lvs_sync_daemon runs, since no VRRP runs here; with a file: master unless its number is 0, then backup", set: setSyncState},
	)
}

// processRows are the words of global_defs about the process.
func processRows() []keyword {
	p := func(set func(p *config.Process, v *value)) func(*frame, *value) {
		return func(f *frame, v *value) { set(&f.b.raw.global.Process, v) }
	}
	rlimit := p(func(p *config.Process, v *value) {
		// The kernel would kill the process at once with 1; keepalived makes it 2.
		p.RealTimeLimit = time.Duration(max(v.num, 2)) * time.Microsecond
	})
	return each([]string{blockGlobal},
		keyword{name: "checker_process_name", arg: textMax(15), def: "process_names, else process_name", doc: "name of the process", set: func(f *frame, v *value) { f.b.raw.names.checker = v.text }},
		keyword{name: "lvs_process_name", arg: textMax(15), old: "checker_process_name", doc: "the old name of checker_process_name", set: func(f *frame, v *value) { f.b.raw.names.checker = v.text }},
		keyword{name: "process_name", arg: textMax(15), def: "the program's", doc: "name of the process", set: func(f *frame, v *value) { f.b.raw.names.parent = v.text }},
		keyword{name: "process_names", arg: none(), def: "off", doc: "name the process keepalived_lvs", set: func(f *frame, _ *value) { f.b.raw.names.standard = true }},
		keyword{name: "checker_priority", arg: custom("-20..19", 1), soft: true, def: "unchanged", doc: "nice value; a bad one means 0", set: setNice},
		keyword{name: "checker_no_swap", arg: none(), def: "off", doc: "lock the process in memory", set: p(func(p *config.Process, _ *value) { p.NoSwap = true })},
		keyword{name: "checker_rt_priority", arg: custom("1..99", 1), soft: true, def: "none", doc: "real-time priority; above and below the nearest is used", set: setRealTime},
		keyword{name: "checker_rlimit_rttime", arg: number(1, maxUint32).in("µs"), def: "10000", doc: "longest run without a pause at real-time priority; 1 means 2", set: rlimit},
		keyword{name: "checker_rlimit_rtime", arg: number(1, maxUint32).in("µs"), old: "checker_rlimit_rttime", doc: "the old name of checker_rlimit_rttime", set: rlimit},
		keyword{name: "checker_cpu_affinity", arg: custom("CPU ..., each 0..1023", 1), soft: true, def: "all", doc: "CPUs that the process may run on", set: setCPUs},
		keyword{name: "umask", arg: custom("0..0777 (octal, decimal, 0x) | NAME[|NAME ...] of IRUSR IWUSR IXUSR IRWXU and the like for GRP and OTH", 1), def: "the process's", doc: "mask of new files", set: setUmask},
	)
}

// pathRows are the words of global_defs about the files by which others follow and
// steer the daemon.
func pathRows() []keyword {
	p := func(set func(p *config.Paths, v *value)) func(*frame, *value) {
		return func(f *frame, v *value) { set(&f.b.raw.global.Paths, v) }
	}
	return each([]string{blockGlobal},
		keyword{name: "reload_file", arg: arg{kind: argText, optional: true}, def: "none; without a path " + reloadFile + ", with instance or use_pid_dir in " + pidDir,
			doc: "a file that is there while a reload goes on, however it ends, by what the running configuration says; not at start, when it is not known before the file is read",
			set: func(f *frame, v *value) {
				f.b.raw.global.Paths.ReloadFile, f.b.raw.defaultReloadFile = v.text, v.text == ""
			}},
		keyword{name: "reload_time_file", arg: text(), def: "none", doc: "a file with the time of a reload: HH:MM:SS, YY-MM-DD HH:MM:SS or YYYY-MM-DD HH:MM:SS, with a Z at the end in UTC; looked at every 2 s, deleted when the time has come",
			set: p(func(p *config.Paths, v *value) { p.ReloadTimeFile = v.text })},
		keyword{name: "reload_repeat", arg: none(), def: "off", doc: "a reload_time_file without a date is not deleted, and means each day", set: p(func(p *config.Paths, _ *value) { p.ReloadRepeat = true })},
		keyword{name: "state_dump_file", arg: text(), def: "none", doc: "what SIGUSR1 writes the state to besides the log; _check is put in before the extension: /run/x.data makes /run/x_check.data",
			set: p(func(p *config.Paths, v *value) { p.StateDump = v.text })},
		keyword{name: "data_use_instance", arg: boolean(), def: "off", doc: "put net_namespace and instance into the name of the state's file, after _check", set: p(func(p *config.Paths, v *value) { p.InstanceInNames = v.yes })},
		keyword{name: "config_save_dir", arg: text(), def: "none", doc: "folder, made if it is missing, that gets two files at each reload: keepalived_check.PID.N.pre, the configuration that ran, and .post, the one that runs now",
			set: p(func(p *config.Paths, v *value) { p.SaveDir = v.text })},
	)
}
