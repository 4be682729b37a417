package daemon

import (
	"os"
	"runtime"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/reactor"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
)

// checks makes what runs the checks: so many threads for conversations, and
// goroutines for all others.
func checks(threads int) *checker.Front {
	goroutines, each := checker.Limits(threads)
	loops := make([]checker.Runner, threads)
	for i := range loops {
		loops[i] = reactor.New(reactor.Options{Limit: each})
	}
	return checker.NewFront(checker.NewScheduler(checker.Options{Limit: goroutines}), loops...)
}

// processors gives the runtime one more processor for each thread that leads checks. A
// thread that waits for answers keeps its own for as long as 10 ms; without another one
// to go on with, who comes back from a system call of the engine's waits for that, and
// the runtime's monitor stays awake to take it away, at a tenth of what checks cost.
func processors(threads int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + threads)
	}
}

// threadsStay says so when a configuration asks for another number of threads than
// there are.
func (d *daemon) threadsStay(cfg *config.Config) {
	if n := max(cfg.Global.CheckerThreads, config.DefaultCheckerThreads); n != d.threads {
		d.log.Warn("checker_threads is read at the start, restart to change it", event.Key, event.SettingIgnored, "running", d.threads, "configured", n)
	}
}
