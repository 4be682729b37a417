package metrics

// family is one metric with all its series.
type family struct{ name, kind, help string }

const (
	gauge   = "gauge"
	counter = "counter"
	// A histogram's family has three suffixes.
	histogram = "histogram"
)

// Every metric there is, in docs/metrics.md too. The last block is of metrics_detail
// server.
var (
	buildInfo     = family{"sluice_build_info", gauge, "The version that runs; the value is always 1."}
	observing     = family{"sluice_observe", gauge, "Whether nothing is written to the kernel (--observe)."}
	startTime     = family{"process_start_time_seconds", gauge, "When the daemon was started, in seconds since 1970."}
	cpuSeconds    = family{"process_cpu_seconds_total", counter, "CPU time spent by the daemon, in user and system mode."}
	residentBytes = family{"process_resident_memory_bytes", gauge, "Resident memory of the daemon."}
	openFDs       = family{"process_open_fds", gauge, "File descriptors that are open."}
	goroutines    = family{"go_goroutines", gauge, "Goroutines that exist."}
	heapBytes     = family{"go_memstats_heap_alloc_bytes", gauge, "Memory in heap objects, those not swept yet included."}

	reloadOK        = family{"sluice_config_last_reload_successful", gauge, "Whether the last reload was accepted; the start counts as one."}
	reloadTime      = family{"sluice_config_last_reload_timestamp_seconds", gauge, "When the last reload ended, accepted or not."}
	reloads         = family{"sluice_config_reloads_total", counter, "Reloads by result; the start counts as one."}
	reloadTook      = family{"sluice_config_last_reload_duration_seconds", gauge, "How long the last reload took, reading the files included."}
	reloadAppliedAt = family{"sluice_config_last_reload_success_timestamp_seconds", gauge, "When the running configuration was applied."}
	generation      = family{"sluice_config_generation", gauge, "The number of the running configuration, over restarts."}

	kernelUp         = family{"sluice_kernel_up", gauge, "Whether the last attempt to read or write the kernel's table succeeded."}
	kernelLastGood   = family{"sluice_kernel_last_success_timestamp_seconds", gauge, "When the kernel's table was last read or written with success; 0 for never."}
	kernelReconcile  = family{"sluice_kernel_reconcile_interval_seconds", gauge, "How often the whole of our services is read (reconcile_interval); 0 for never."}
	kernelOperations = family{"sluice_kernel_operations_total", counter, "Changes written to the kernel's table, by kind."}
	kernelRefused    = family{"sluice_kernel_operation_errors_total", counter, "Changes of the kernel's table that were refused or not answered, by kind."}
	kernelCalls      = family{"sluice_kernel_call_duration_seconds", histogram, "Time that exchanges with the kernel took, by kind; several changes at once are a batch."}
	kernelCallErrors = family{"sluice_kernel_call_errors_total", counter, "Exchanges with the kernel in which something failed, by kind."}
	kernelErrors     = family{"sluice_kernel_errors_total", counter, "Attempts to read or write the kernel's table that failed."}
	driftRepaired    = family{"sluice_kernel_drift_repaired_total", counter, "Changes by others in our services that were put back."}
	driftPresent     = family{"sluice_kernel_drift", gauge, "Changes by others in our services that are not put back."}

	checks  = family{"sluice_checks_total", counter, "Checks run, by kind and result; unable says nothing of the server."}
	took    = family{"sluice_check_duration_seconds", histogram, "Time that checks took which passed or failed, by kind."}
	failed  = family{"sluice_check_failures_total", counter, "Checks that failed, by kind and by how far they came."}
	overdue = family{"sluice_checks_overdue_seconds", gauge, "How late the most overdue check is."}

	lag             = family{"sluice_engine_lag_seconds", histogram, "Time that events waited until the loop took them up."}
	turn            = family{"sluice_engine_turn_duration_seconds", histogram, "Time that turns of the loop took, writing to the kernel included."}
	verdictToKernel = family{"sluice_verdict_to_kernel_seconds", histogram, "Time from a verdict until the kernel acknowledged what it changed in the table."}

	scripts       = family{"sluice_notify_scripts_total", counter, "Notify scripts by result; dropped found no room in the queue."}
	scriptsQueued = family{"sluice_notify_scripts_queued", gauge, "Notify scripts that wait or run."}
	mails         = family{"sluice_notify_mails_total", counter, "Mails by result; dropped found no room in the queue."}
	mailsQueued   = family{"sluice_notify_mails_queued", gauge, "Mails that wait or are being sent."}
	fifoMessages  = family{"sluice_notify_fifo_messages_total", counter, "Messages to FIFOs by result."}

	events          = family{"sluice_events_total", counter, "Events by level; docs/events.md has their kinds."}
	linesSuppressed = family{"sluice_log_lines_suppressed_total", counter, "Lines that the log left out, since a newer one of the same stood for them."}

	drains           = family{"sluice_drains", gauge, "Destinations that drain before they are deleted."}
	drainOldest      = family{"sluice_drain_oldest_seconds", gauge, "How long the oldest drain has lasted; 0 without one."}
	drainConnections = family{"sluice_drain_connections", gauge, "Connections on destinations that drain, when they were last looked at."}
	overrides        = family{"sluice_overrides", gauge, "Commands of operators that are in force."}
	overrideOldest   = family{"sluice_override_oldest_seconds", gauge, "How long the oldest command of an operator has been in force; 0 without one."}

	syncWanted    = family{"sluice_sync_daemon_wanted", gauge, "Whether lvs_sync_daemon asks for this half, master or backup; this and what follows only where it stands."}
	syncUp        = family{"sluice_sync_daemon_up", gauge, "Whether the kernel runs this half."}
	syncUndecided = family{"sluice_sync_daemon_undecided", gauge, "Whether the track file that says which half is to run holds no number, so that what runs is left."}
	syncQueue     = family{"sluice_sync_daemon_queue_bytes", gauge, "What waits in the half's sockets, to be sent or to be taken in; only while it runs."}
	syncDrops     = family{"sluice_sync_daemon_receive_drops_total", counter, "Messages that the half's sockets had no room for, since it was started; only while it runs."}

	virtualServers = family{"sluice_virtual_servers", gauge, "Virtual servers in the configuration."}
	suspended      = family{"sluice_virtual_servers_suspended", gauge, "Virtual servers of which nothing is checked, by ha_suspend."}

	passive        = family{"sluice_passive", gauge, "Whether this director withholds its services."}
	announced      = family{"sluice_addresses_announced", gauge, "Virtual addresses that are on their devices; only with vip_device, vip_guard or nftables_ipvs."}
	aroundRepaired = family{"sluice_host_repaired_total", counter, "Addresses and parts of tables of nftables that somebody else took away and that were put back."}
	featureUp      = family{"sluice_feature_up", gauge, "Whether vip_device, vip_guard or nftables_ipvs works."}

	vsAnnounced  = family{"sluice_virtual_server_addresses_announced", gauge, "Whether the addresses of the virtual server are to be on their device now; only with vip_device."}
	vsMissing    = family{"sluice_virtual_server_addresses_missing", gauge, "Addresses that should be on the device and are not; only with vip_device."}
	vsService    = family{"sluice_virtual_server_service_info", gauge, "A service of the kernel's table that the virtual server stands for; the value is always 1."}
	vsServers    = family{"sluice_virtual_server_real_servers", gauge, "Real servers by state."}
	vsAlive      = family{"sluice_virtual_server_alive_weight", gauge, "Sum of the weights of the real servers that are up, which the quorum is compared with."}
	vsQuorum     = family{"sluice_virtual_server_quorum", gauge, "Weight that must be up."}
	vsQuorumUp   = family{"sluice_virtual_server_quorum_up", gauge, "Whether there is quorum."}
	vsSorry      = family{"sluice_virtual_server_sorry_serving", gauge, "Whether the sorry server serves; only where there is one."}
	vsAtFloor    = family{"sluice_virtual_server_at_floor", gauge, "Whether min_alive keeps failed real servers in service; only where it is set."}
	vsExpiry     = family{"sluice_virtual_server_certificate_expiry_timestamp_seconds", gauge, "When the first certificate ends that checks of the virtual server saw; only where one did."}
	vsDrains     = family{"sluice_virtual_server_drains", gauge, "Destinations that drain before they are deleted."}
	vsMismatched = family{"sluice_virtual_server_destinations_mismatched", gauge, "Destinations whose weight in the kernel is not the wanted one."}

	rsUp     = family{"sluice_real_server_up", gauge, "Whether the real server is up: healthy and in service."}
	rsState  = family{"sluice_real_server_state", gauge, "The state that the real server is in; the value is always 1."}
	rsWeight = family{"sluice_real_server_weight", gauge, "Weight wanted in the kernel, 0 if it should not be there."}
	dsWeight = family{"sluice_destination_weight", gauge, "Weight in the kernel, of each service; only while it is there."}
	ckUp     = family{"sluice_check_up", gauge, "A check's verdict; only once there is one."}
	ckTook   = family{"sluice_check_last_duration_seconds", gauge, "How long a check's last run took; only after the first."}
	ckExpiry = family{"sluice_check_certificate_expiry_timestamp_seconds", gauge, "When the certificate ends that the check saw; only over TLS."}
	ckFailed = family{"sluice_check_failed_attempts", gauge, "How many attempts of a check in a row have failed."}
	ckLimit  = family{"sluice_check_failed_attempts_limit", gauge, "How many failed attempts in a row are a verdict."}
)
