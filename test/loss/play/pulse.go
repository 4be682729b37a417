package play

import (
	"fmt"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// pulse tells whether the machine was fit to measure on. Clients give up after three
// seconds; on an emulated machine that shares its processors, that can pass without
// anybody having done something to the table. Two witnesses that IPVS cannot disturb
// see it: connections between the same machines that do not go through a virtual
// server, and a clock.
type pulse struct {
	control *testkit.Long
	done    chan struct{}
	wg      sync.WaitGroup
	worst   time.Duration // between two beats
	lost    int           // of control
}

const (
	controlPort  = 9000
	controlConns = 8
	beat         = 50 * time.Millisecond
	// tooLate leaves a client half of its patience.
	tooLate = 1500 * time.Millisecond
)

// newPulse begins, with connections from a client to a server's own address.
func newPulse(t testkit.T, client *testkit.NS, server *testkit.Backend) *pulse {
	testkit.NewEcho(t, server.NS, fmt.Sprintf(":%d", controlPort))
	p := &pulse{done: make(chan struct{})}
	p.wg.Go(p.loop)
	t.Cleanup(p.stop)
	p.control = testkit.OpenLong(t, client, fmt.Sprintf("%v:%d", server.Addr, controlPort), controlConns)
	return p
}

func (p *pulse) loop() {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-p.done:
			return
		}
		now := time.Now()
		p.worst = max(p.worst, now.Sub(last))
		last = now
	}
}

func (p *pulse) stop() {
	select {
	case <-p.done:
	default:
		close(p.done)
		if p.control != nil {
			p.lost = p.control.Report().Lost()
		}
	}
	p.wg.Wait()
}

// void ends the watch and says why what was measured is void, "" if it is not.
func (p *pulse) void() string {
	p.stop()
	return void(p.lost, p.worst)
}

func void(lost int, worst time.Duration) string {
	switch {
	case lost > 0:
		return fmt.Sprintf("%d of %d connections past the virtual server were lost too", lost, controlConns)
	case worst > tooLate:
		return fmt.Sprintf("the machine stood still for %v", worst.Round(100*time.Millisecond))
	}
	return ""
}
