package event

import "log/slog"

// Kind names what happened. The zero Kind is no event.
type Kind string

// Meta is what a kind means.
type Meta struct {
	Kind  Kind
	Level slog.Level
	// Topic is shared by the kinds of which each replaces what the one before said; ""
	// is the message itself, and always for what is never held back.
	Topic string
	// Meaning is for docs/events.md, Example a line of the text log without its time.
	Meaning, Example string
}

// always is the topic of what somebody asked for, and waits to read.
const always = "-"

// catalogue has what the block below defines, in its order.
var catalogue []Meta

var known = map[Kind]int{}

// Catalogue returns every kind there is. Nobody may change it.
func Catalogue() []Meta { return catalogue }

// Known reports whether a kind is in the catalogue.
func (k Kind) Known() bool { _, ok := known[k]; return ok }

// topic is what a kind tells the newest state of, "" for nothing: its message is.
func (k Kind) topic() string {
	if i, ok := known[k]; ok {
		return catalogue[i].Topic
	}
	return string(k)
}

const (
	info = slog.LevelInfo
	warn = slog.LevelWarn
	fail = slog.LevelError
)

func define(k Kind, l slog.Level, topic, meaning, example string) Kind {
	known[k] = len(catalogue)
	catalogue = append(catalogue, Meta{k, l, topic, meaning, example})
	return k
}

// Every kind there is, in docs/events.md too.
var (
	ServerUp          = define("server_up", info, "server", "A real server serves from now on.", "Adding service [10.0.0.11]:tcp:80 to VS [192.0.2.10]:tcp:80 rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 alive=2/2 weight=2")
	ServerDown        = define("server_down", warn, "server", "A real server serves no longer.", "Removing service [10.0.0.11]:tcp:80 from VS [192.0.2.10]:tcp:80 rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 alive=1/2 weight=1")
	ServerWeight      = define("server_weight", info, "weight", "The weight of a real server is another one: by a check, a track file, an operator or a reload.", "Changing weight of service [10.0.0.11]:tcp:80 in VS [192.0.2.10]:tcp:80 to 5 rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 weight=5 configured=10")
	ServerKept        = define("server_kept", warn, "kept", "min_alive keeps a real server in service though its checks fail.", "Keeping service [10.0.0.11]:tcp:80 in VS [192.0.2.10]:tcp:80, though its checks fail rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 min_alive=1 reason=\"TCP_CHECK: connection refused\"")
	ServerUnkept      = define("server_unkept", info, "kept", "A real server that min_alive kept is good again.", "Service [10.0.0.11]:tcp:80 of VS [192.0.2.10]:tcp:80 is good again, min_alive need not keep it rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80")
	FlapHeld          = define("flap_held", warn, "flap", "flap_damping holds a real server back that went up and down too often.", "Holding back service [10.0.0.11]:tcp:80 of VS [192.0.2.10]:tcp:80, it flaps rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 flaps=5 for=1m0s why=flap_damping")
	FlapReleased      = define("flap_released", info, "flap", "flap_damping lets a real server serve again.", "Holding back service [10.0.0.11]:tcp:80 of VS [192.0.2.10]:tcp:80 no longer rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 why=flap_damping")
	SlowStart         = define("slow_start", info, "slow_start", "A real server begins with a part of its weight.", "Slow start rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 weight=1 full=10 until=2026-11-30T11:03:00Z")
	SlowStartOver     = define("slow_start_over", info, "slow_start", "A real server has all of its weight.", "Slow start over rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 weight=10")
	CheckFailed       = define("check_failed", warn, "check", "A check has failed as often as it may and holds its real server for bad.", "Check failed checker=TCP_CHECK rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 reason=\"connection refused\" attempt=4/4 took=212µs")
	CheckPassed       = define("check_passed", info, "check", "A check holds its real server for good that was bad or unknown.", "Check passed checker=TCP_CHECK rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 reason=connected took=190µs")
	CheckAttempt      = define("check_attempt", info, "check_attempt", "One attempt of a check has failed that may fail more often; with checker_log_all_failures.", "Check failed checker=TCP_CHECK rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 reason=\"connection refused\" attempt=1 limit=4")
	CheckUnable       = define("check_unable", fail, "check_able", "A check cannot be run, by no fault of the real server, and its last verdict stays.", "Check could not run, the last verdict stays checker=MISC_CHECK rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 reason=\"no such file\"")
	CheckAble         = define("check_able", info, "check_able", "A check that could not be run is run again.", "Check runs again checker=MISC_CHECK rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80")
	CertificateExpiry = define("certificate_expiry", warn, "certificate", "The certificate of a real server ends soon or has ended; with tls_expiry_warn.", "A server's certificate ends soon certificate=CN=web1 issuer=CN=ca ends=2026-12-05T00:00:00Z seen_at=10.0.0.11:443")
	QuorumGained      = define("quorum_gained", info, "quorum", "Enough weight of a virtual server is up.", "Gained quorum 1+0=1 <= 2 for VS [192.0.2.10]:tcp:80 vs=[192.0.2.10]:tcp:80 weight=2 quorum=1 hysteresis=0")
	QuorumLost        = define("quorum_lost", fail, "quorum", "Too little weight of a virtual server is up.", "Lost quorum 1-0=1 > 0 for VS [192.0.2.10]:tcp:80 vs=[192.0.2.10]:tcp:80 weight=0 quorum=1 hysteresis=0")
	SorryIn           = define("sorry_in", warn, "sorry", "The sorry server serves in place of the real servers.", "Adding sorry server [10.0.0.99]:tcp:80 to VS [192.0.2.10]:tcp:80 vs=[192.0.2.10]:tcp:80 sorry_server=[10.0.0.99]:tcp:80")
	SorryOut          = define("sorry_out", info, "sorry", "The real servers serve in place of the sorry server.", "Removing sorry server [10.0.0.99]:tcp:80 from VS [192.0.2.10]:tcp:80 vs=[192.0.2.10]:tcp:80 sorry_server=[10.0.0.99]:tcp:80")
	FloorReached      = define("floor_reached", fail, "floor", "min_alive keeps real servers in service whose checks fail.", "VS [192.0.2.10]:tcp:80 is at its floor, real servers whose checks fail are kept in service vs=[192.0.2.10]:tcp:80 min_alive=1 floor=1 kept=1 good=0 configured=2")
	FloorLeft         = define("floor_left", info, "floor", "min_alive keeps no failed real server in service any more.", "VS [192.0.2.10]:tcp:80 is off its floor, no failed real server is kept in service vs=[192.0.2.10]:tcp:80 after=1m30s")
	Suspended         = define("suspended", info, "suspend", "ha_suspend: a virtual server is not checked, its address is not on this host.", "Checks suspended, the address of the virtual server is not on this host vs=[192.0.2.10]:tcp:80 why=ha_suspend")
	Resumed           = define("resumed", info, "suspend", "ha_suspend: a virtual server is checked again.", "Checks resumed, the address of the virtual server is on this host vs=[192.0.2.10]:tcp:80 why=ha_suspend")
	ServiceRemoved    = define("service_removed", info, "service_removed", "A virtual server is not configured any more, and drains.", "Virtual server removed from the configuration, draining it vs=[192.0.2.10]:tcp:80")

	HoldBegun   = define("hold_begun", warn, "hold", "departure_hold: real servers that a reload took away serve on, since the pool needs them.", "The reload takes away servers that this pool needs, they serve until those in their place have passed a check vs=[192.0.2.10]:tcp:80 held=10.0.0.11:80 why=departure_hold")
	HoldRenewed = define("hold_renewed", info, "hold", "departure_hold: another reload has its time begin anew.", "Other servers come in place of those that are held, the time of the hold begins anew vs=[192.0.2.10]:tcp:80 until=2026-11-30T11:03:00Z")
	HoldEnded   = define("hold_ended", info, "hold", "departure_hold: the new real servers are good, the old ones drain.", "The servers in their place have passed their checks, departing ones drain vs=[192.0.2.10]:tcp:80 took=1.2s")
	HoldExpired = define("hold_expired", warn, "hold", "departure_hold: the old real servers drain though the new ones are not known to be good.", "Departing servers are held no longer, though those in their place have not passed their checks vs=[192.0.2.10]:tcp:80 why=\"departure_hold is over\"")
	HoldStuck   = define("hold_stuck", fail, "hold", "departure_hold is over, and without the old real servers nothing would serve.", "departure_hold is over and no configured server can serve: those that the reload took away go on, or nothing would vs=[192.0.2.10]:tcp:80 waits_for=10.0.0.12:80")

	OperatorDrain     = define("operator_drain", info, always, "An operator has a real server drained.", "An operator drains a real server vs=[192.0.2.10]:tcp:80 rs=[10.0.0.11]:tcp:80 who=root reason=kernel")
	OperatorUndrain   = define("operator_undrain", info, always, "An operator has ended a drain.", "An operator's order is withdrawn order=drain vs=[192.0.2.10]:tcp:80 rs=10.0.0.11:80 who=root")
	OperatorWeight    = define("operator_weight", info, always, "An operator has set a weight.", "An operator sets a weight vs=[192.0.2.10]:tcp:80 rs=[10.0.0.11]:tcp:80 who=root reason=canary weight=1")
	OperatorUnweight  = define("operator_unweight", info, always, "An operator has given a weight back to the configuration.", "An operator's order is withdrawn order=weight vs=[192.0.2.10]:tcp:80 rs=10.0.0.11:80 who=root")
	OperatorExpired   = define("operator_expired", info, always, "The time of an operator's order is over.", "An operator's order ends, its time is over order=drain vs=[192.0.2.10]:tcp:80 rs=10.0.0.11:80")
	OperatorForced    = define("operator_forced", warn, always, "An operator insisted on what takes a pool below its quorum or floor.", "An operator's command is forced who=root against=\"[192.0.2.10]:tcp:80: weight 0 of 1 alive would be left, and its quorum needs 1\"")
	OperatorRestored  = define("operator_restored", info, always, "Orders that operators gave to an earlier process are in force.", "Operators' orders of an earlier process are in force orders=2")
	OperatorForgotten = define("operator_forgotten", fail, always, "Orders of operators could not be read or saved.", "Operators' orders of an earlier process cannot be read and are not in force: give them again err=\"unexpected end of JSON input\"")

	PassiveAsked = define("passive_asked", info, always, "An operator has this director withhold its services, or ends that.", "An operator has this director withhold its services no longer who=root reason=\"the other one is back\"")
	PassiveOn    = define("passive_on", warn, "passive", "This director is passive: it goes on checking and withholds its services.", "This director is passive, its services are withheld source=command who=root reason=kernel services=12")
	PassiveOff   = define("passive_off", info, "passive", "This director is not passive any more.", "This director is no longer passive, its services come back after=12m3s services=12")

	OperatorTest = define("operator_test", info, always, "An operator has the checks of a real server run once, beside the schedule.", "An operator tests a real server vs=[192.0.2.10]:tcp:80 rs=[10.0.0.11]:tcp:80 who=root")

	DrainBegun     = define("drain_begun", info, "drain", "A destination that has to leave has weight 0 and waits for its connections.", "Draining destination service=TCP_192.0.2.10:80 destination=10.0.0.11:80 why=removed active=12 inactive=3 persistent=0 drain_timeout=5m0s")
	DrainDone      = define("drain_done", info, "drain", "A destination that had to leave has no connection and is removed.", "Drained, removing destination service=TCP_192.0.2.10:80 destination=10.0.0.11:80 why=removed took=1m2s")
	DrainTimeout   = define("drain_timeout", warn, "drain", "A destination had to leave, and connections that it still had are cut.", "Drain timed out, removing destination and cutting its connections service=TCP_192.0.2.10:80 destination=10.0.0.11:80 why=removed active=2 inactive=0 drain_timeout=5m0s")
	DrainCancelled = define("drain_cancelled", info, "drain", "A destination that drained is wanted again.", "Drain cancelled, the destination is wanted again service=TCP_192.0.2.10:80 destination=10.0.0.11:80")
	DrainLost      = define("drain_lost", warn, "drain", "Somebody else removed a destination that drained.", "Somebody else removed a draining destination service=TCP_192.0.2.10:80 destination=10.0.0.11:80 why=removed")
	DrainReused    = define("drain_reused", warn, "drain_reused", "A destination that drains gets new connections.", "A draining destination gets new connections service=TCP_192.0.2.10:80 destination=10.0.0.11:80 why=\"a client reuses its ports\" sysctl=net.ipv4.vs.conn_reuse_mode")

	ServiceAdopted = define("service_adopted", info, "service_adopted", "A service that was in the IPVS table is taken over as it is.", "Adopting a service of ours, drains go on service=TCP_192.0.2.10:80 destinations=3 draining=1")
	ServiceDiffers = define("service_differs", warn, "service_adopted", "A service that was in the IPVS table is taken over, and something in it will change.", "Taking over a service that was in the IPVS table and is not as configured; what is not configured drains service=TCP_192.0.2.10:80 destinations=3 not_configured=10.0.0.13:80")
	ServiceLeft    = define("service_left", warn, "service_adopted", "A service of an earlier process is left alone.", "Leaving a service alone that was ours: it holds a destination that is not service=TCP_192.0.2.10:80 destination=10.0.0.13:80")
	DriftFound     = define("drift_found", warn, "drift", "Somebody changed the IPVS table, and drift report leaves it so.", "Somebody changed the IPVS table, leaving it as it is (drift report) service=TCP_192.0.2.10:80 what=weight found=7 wanted=1")
	DriftRepaired  = define("drift_repaired", warn, "drift", "Somebody changed the IPVS table, and it is put back.", "Somebody changed the IPVS table, putting it back service=TCP_192.0.2.10:80 what=weight found=7 wanted=1")
	DriftOver      = define("drift_over", info, "drift", "What somebody changed in the IPVS table is as wanted again.", "What somebody changed in the IPVS table is as wanted again service=TCP_192.0.2.10:80")

	KernelRefused     = define("kernel_refused", fail, "kernel", "The kernel refused a change; it is tried again.", "Kernel refused a change, will retry err=\"no buffer space available\" retry_in=1s")
	KernelUnreachable = define("kernel_unreachable", fail, "kernel", "The IPVS table cannot be reached; it is tried again.", "IPVS table not reachable, will retry; checks go on err=\"operation not permitted\" retry_in=1s")
	KernelBack        = define("kernel_back", info, "kernel", "The IPVS table can be reached, or takes changes, again.", "IPVS table reachable, applying everything")
	KernelFlushed     = define("kernel_flushed", warn, "kernel_flushed", "The whole IPVS table is emptied, as lvs_flush or lvs_flush_on_stop say.", "Emptying the whole IPVS table, other programs' services too why=lvs_flush")
	KernelSet         = define("kernel_set", info, "kernel_set", "A setting of the kernel was made.", "Sysctl set sysctl=net.ipv4.vs.conntrack value=1 was=0")
	KernelUnset       = define("kernel_unset", fail, "kernel_set", "A setting of the kernel could not be made.", "Sysctl not set sysctl=net.ipv4.vs.conntrack want=1 err=\"read-only file system\"")
	KernelUnread      = define("kernel_unread", warn, "kernel_unread", "Something could not be read from the kernel, and it goes without.", "The kernel's connection timeouts could not be read, ends of drains are not estimated err=\"operation not permitted\"")
	SyncDaemon        = define("sync_daemon", info, "sync_daemon", "The kernel's synchronisation daemon was started or stopped.", "Sync daemon started state=master interface=eth0 syncid=7")

	Started      = define("started", info, always, "The first configuration is in the kernel, or known not to be for now.", "Ready version=1.0 virtual_servers=1 real_servers=2 operations=3 kernel_ok=true observe=false took=12ms")
	StartRefused = define("start_refused", fail, always, "The daemon does not start.", "Configuration refused, not starting file=/etc/keepalived/keepalived.conf err=\"1 error\"")
	Stopping     = define("stopping", info, always, "The daemon was told to stop, or goes one step further.", "Stopping signal=terminated")
	StopCut      = define("stop_cut", warn, always, "A stop that waits, for connections to end or for withdraw_delay, waits no longer.", "stop_timeout is over, cutting the connections that are left active=2 inactive=0 stop_timeout=1m0s")
	Stopped      = define("stopped", info, always, "The daemon has ended in order.", "Stopped")
	Failed       = define("failed", fail, always, "The daemon ends since a part without which it cannot be has failed.", "Stopped after a failure err=\"...\"")
	Handover     = define("handover", info, always, "The daemon ends for the next process to go on.", "Handing over: ending with the IPVS table as it is services=4 draining=1 exit_status=75")
	PartFailed   = define("part_failed", fail, "part_failed", "A part of the daemon has failed, and the rest goes on without.", "A part of the daemon has failed, the rest goes on without it; restart to mend it part=\"track files\" err=\"...\"")
	EngineStuck  = define("engine_stuck", fail, "engine_stuck", "The part that decides does not answer.", "The engine does not answer; systemd restarts this process unless it does soon err=\"context deadline exceeded\"")
	Bug          = define("bug", fail, "", "Something that cannot be has happened; please report it.", "Change lost, this is a bug err=\"...\"")
	Asked        = define("asked", info, always, "Somebody asked for a reload or a handover over the control socket.", "Reload asked for over the control socket uid=0 pid=4711")
	AddressMoved = define("address_moved", info, "", "This host got or lost an address; with --address-monitoring.", "Address 192.0.2.10 added")

	ReloadBegun     = define("reload_begun", info, always, "The configuration is read anew.", "Reloading file=/etc/keepalived/keepalived.conf")
	ReloadAccepted  = define("reload_accepted", info, always, "A new configuration is in force.", "Reloaded file=/etc/keepalived/keepalived.conf virtual_servers=2 took=12ms")
	ReloadRefused   = define("reload_refused", fail, always, "A new configuration is not in force, the one before is.", "Reload refused, configuration unchanged file=/etc/keepalived/keepalived.conf err=\"...\"")
	ReloadScheduled = define("reload_scheduled", info, always, "reload_time_file sets a reload, or its time has come.", "Reload scheduled path=/etc/keepalived/reload time=2026-11-30T12:00:00Z")
	ReloadCancelled = define("reload_cancelled", info, always, "A scheduled reload will not be.", "Scheduled reload cancelled time=2026-11-30T12:00:00Z reason=\"the file is gone\"")
	Finding         = define("finding", warn, "", "Something in the configuration; errors are of level error, and remarks of level info.", "keepalived.conf:12:3: warning: ... code=...")
	SettingIgnored  = define("setting_ignored", warn, "setting_ignored", "A setting or an option has no effect.", "An option has no effect option=\"--snmp: SNMP is not served\"")
	SettingRefused  = define("setting_refused", warn, "setting_refused", "The system refuses a setting of the process or a right that it needs.", "Missing a capability capability=CAP_NET_RAW needed_for=PING_CHECK")
	FileFailed      = define("file_failed", warn, "file_failed", "A file that was asked for could not be written or removed; what it tells of is not affected.", "The state was not written to state_dump_file; sluice status shows it path=/tmp/state err=\"permission denied\"")
	FileWritten     = define("file_written", info, "file_failed", "The state was written to state_dump_file.", "State written path=/tmp/state")
	StateFound      = define("state_found", info, "state", "The state of an earlier process was found.", "State of an earlier process found saved=2026-11-30T11:00:00Z generation=3 services=2 verdicts=4")
	StateSaved      = define("state_saved", info, "state", "The state can be saved again.", "State saved again file=/var/lib/sluice/state")
	StateFailed     = define("state_failed", fail, "state", "The state could not be read or saved: a restart will know less.", "State not saved, will retry; a restart meanwhile goes by the file before it and by the IPVS table err=\"no space left on device\"")
	SystemdDeaf     = define("systemd_deaf", warn, "systemd_deaf", "systemd could not be told of a change.", "systemd was not told err=\"connection refused\"")

	HTTPServed  = define("http_served", info, "http", "http_listen is served.", "The dashboard and metrics are served over HTTP http_listen=127.0.0.1:9476")
	HTTPFailed  = define("http_failed", fail, "http", "http_listen or http_admin does not work, or a page cannot be made.", "The HTTP listener has failed, it is opened again http_listen=127.0.0.1:9476 err=\"...\"")
	HTTPLogin   = define("http_login", info, always, "An operator has logged in over HTTP.", "An operator logs in over HTTP who=http:anna remote=192.0.2.7")
	HTTPRefused = define("http_refused", warn, "", "Somebody tried to change something over HTTP with a wrong token, or from another site.", "A wrong token for http_admin remote=192.0.2.7 path=/admin/drain")

	TrackFile       = define("track_file", info, "track_file", "The value of a track file is another one.", "Track file changed track_file=maintenance path=/run/maintenance value=1 was=0")
	TrackFileKept   = define("track_file_kept", warn, "track_file", "A track file cannot be read as a number and has its last value.", "Track file keeps its last value track_file=maintenance path=/run/maintenance value=1 reason=\"not a number\"")
	TrackFilePolled = define("track_file_polled", warn, "track_file_polled", "A track file cannot be watched and is read every second.", "Cannot watch track files, reading them every second instead err=\"too many open files\"")
	TrackFileFailed = define("track_file_failed", fail, "track_file_failed", "A track file could not be written or is not followed.", "init_file not written track_file=maintenance path=/run/maintenance err=\"permission denied\"")

	ScriptBegun  = define("script_begun", info, "script", "startup_script, shutdown_script or the script of a FIFO runs.", "Running script script=/etc/sluice/start what=startup_script")
	ScriptEnded  = define("script_ended", info, "script", "startup_script or shutdown_script has ended well.", "Script ended script=/etc/sluice/start what=startup_script took=12ms")
	ScriptFailed = define("script_failed", fail, "script", "A script was not run, or did not end well.", "Script failed notice=rs_down vs=[192.0.2.10]:tcp:80 rs=[10.0.0.11]:tcp:80 script=/etc/sluice/notify took=12ms reason=\"exit status 3\"")
	ScriptUnsafe = define("script_unsafe", warn, "", "A script can be changed by others than the one it runs as.", "A script is not safe reason=\"/etc/sluice/notify is writable by others\"")
	ScriptSpared = define("script_spared", info, "script_spared", "A script is not run, as nothing is with --observe.", "Observing, the script is not run notice=rs_down vs=[192.0.2.10]:tcp:80 rs=[10.0.0.11]:tcp:80 script=/etc/sluice/notify")

	FIFOOpen   = define("fifo_open", info, "fifo", "A notify FIFO can be written to.", "Notify FIFO is open fifo=/run/sluice/fifo made=true")
	FIFOFailed = define("fifo_failed", fail, "fifo", "A notify FIFO cannot be used, or messages to it are lost.", "Messages to notify FIFO are lost fifo=/run/sluice/fifo lost=12 err=\"resource temporarily unavailable\"")
	FIFOUnread = define("fifo_unread", warn, "fifo_script", "The script that reads a notify FIFO has ended, or the FIFO is left behind.", "Script of notify FIFO has ended, nothing reads the FIFO fifo=/run/sluice/fifo script=/etc/sluice/reader")

	MailRetried = define("mail_retried", warn, "mail", "A mail could not be sent and is tried again, or is let go at a stop.", "Mail could not be sent, will retry subject=\"[lb1] Realserver [10.0.0.11]:tcp:80\" server=127.0.0.1:25 try=1 retry_in=5s")
	MailFailed  = define("mail_failed", fail, "mail", "A mail, or one of its recipients, is given up.", "Mail is given up subject=\"[lb1] Realserver [10.0.0.11]:tcp:80\" server=127.0.0.1:25 tries=5")
	MailSpared  = define("mail_spared", info, "mail", "A mail has no recipient or server any more.", "Mail is not sent, the configuration has no recipient or server any more subject=\"[lb1] Realserver [10.0.0.11]:tcp:80\"")

	Note = define("note", warn, "", "Anything else of level warn or above.", "...")
)
