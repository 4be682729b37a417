package soak

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestIdleTakesNoCPU: with no check due a daemon of 200 servers does next to nothing.
func TestIdleTakesNoCPU(t *testing.T) {
	var s strings.Builder
	fmt.Fprint(&s, "virtual_server 192.0.2.1 80 {\n delay_loop 3600\n warmup 0\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n")
	const servers = 200
	for i := range servers {
		// Nothing listens on port 1; refused is an answer as well.
		fmt.Fprintf(&s, " real_server 127.0.1.%d 1 {\n  TCP_CHECK {\n   retry 0\n  }\n }\n", i+1)
	}
	d := start(t, s.String()+"}\n")
	begun := time.Now()
	for d.metric("sluice_checks_total") < servers {
		if time.Since(begun) > patience {
			t.Fatalf("%v checks of %d after %v", d.metric("sluice_checks_total"), servers, patience)
		}
		wait(50 * time.Millisecond)
	}
	// What the checks left behind is done with.
	wait(time.Second)
	const window = 8 * time.Second
	ticks, switches := d.ticks(), d.switches()
	wait(window)
	ticks, switches = d.ticks()-ticks, d.switches()-switches
	perSecond := float64(switches) / window.Seconds()
	t.Logf("in %v: %d ticks of CPU, %.1f context switches a second", window, ticks, perSecond)
	if ticks > 3 {
		t.Errorf("idle took %d ticks of CPU in %v, want 1 or less", ticks, window)
	}
	if perSecond > 40 {
		t.Errorf("idle took %.1f context switches a second", perSecond)
	}
}
