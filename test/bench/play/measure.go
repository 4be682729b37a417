package play

// The measures. Each is a figure of one daemon in one run.
const (
	CPU        = "cpu"         // ms of CPU for 1,000 checks
	RSS        = "rss"         // MiB, the process that checks
	RSSAll     = "rss-all"     // MiB, all of the daemon's processes
	Syscalls   = "syscalls"    // for each check
	FirstRound = "first-round" // s from the start until each server was checked
	Done       = "done"        // % of the checks that were due
	Late50     = "late-p50"    // ms
	Late99     = "late-p99"    // ms
	Waited     = "waited"      // % of the window in which threads waited for the CPU
	Backend    = "backend"     // % of its CPU that the backend used

	Gap        = "gap"         // ms without any check around a reload
	Delayed99  = "delayed-p99" // ms, each server's worst around a reload
	DelayedMax = "delayed-max" // ms
	NewChecked = "new-checked" // s from the reload to the new server's first check

	Install = "install" // s from the start until the table is complete
	// Installing leaves out what comes before: the program's start, reading the file.
	Installing = "installing" // s from the first service until the table is complete

	AddOne    = "add-one"    // s from SIGHUP until the table has the new server
	RemoveOne = "remove-one" // s from SIGHUP until the table is without it
	AddOps    = "add-ops"    // operations of it; keepalived: messages
	NoneOps   = "none-ops"   // the same of a reload without a change

	OutOne  = "out-one"  // s until one server that failed is out
	Out50   = "out-p50"  // s, half of all servers failed
	Out99   = "out-p99"  // s
	OutMax  = "out-max"  // s beyond delay_loop until the last was out
	OutOps  = "out-ops"  // operations of it
	OutCall = "out-send" // system calls that carried them

	IdleCPU      = "idle-cpu"      // ms of CPU in ten seconds without a check
	IdleSwitches = "idle-switches" // how often it woke in them
)
