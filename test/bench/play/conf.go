package play

import (
	"fmt"
	"strings"

	"github.com/sluice-lb/sluice/test/bench/backend"
)

// Ports of the backend. Every server is on the first but one, which can fail alone,
// and every second one, which can fail together.
const (
	portStays = 9001
	portHalf  = 9002
	portOne   = 9003
)

// Ports are all of them.
var Ports = []int{portStays, portHalf, portOne}

// Mode is how servers are checked.
type Mode string

// The modes. Reset is TCP with the cheap end, which only sluice has.
const (
	TCP   Mode = "tcp"
	Reset Mode = "tcp-reset"
	HTTP  Mode = "http"
)

// Spec says what to configure.
type Spec struct {
	Mode     Mode `json:"mode"`
	Services int  `json:"services"`
	Each     int  `json:"each"`  // servers of a service
	Delay    int  `json:"delay"` // delay_loop in seconds
	// Warmup bounds the first check's pause; 0 leaves it at the delay.
	Warmup int `json:"warmup,omitempty"`
	// Extra servers go to the first service: a reload brings them.
	Extra int `json:"extra,omitempty"`
}

// Servers is how many there are.
func (s Spec) Servers() int { return s.Services*s.Each + s.Extra }

// Shape names it for people.
func (s Spec) Shape() string { return fmt.Sprintf("%d x %d", s.Services, s.Each) }

// port of a target.
func port(target int) int {
	switch {
	case target == 0:
		return portOne
	case target%2 == 1:
		return portHalf
	}
	return portStays
}

// failing is how many of the servers are on the port of the half.
func (s Spec) failing() (n int) {
	for t := range s.Servers() {
		if port(t) == portHalf {
			n++
		}
	}
	return n
}

// vip is the address of a service, of a network that is reserved for benchmarks.
func vip(service int) string { return fmt.Sprintf("198.18.%d.%d", service/250, 1+service%250) }

// each calls fn with the targets of each service, in the order of the file.
func (s Spec) each(fn func(service int, targets []int)) {
	for v := range s.Services {
		var targets []int
		for n := range s.Each {
			targets = append(targets, v*s.Each+n)
		}
		if v == 0 {
			for n := range s.Extra {
				targets = append(targets, s.Services*s.Each+n)
			}
		}
		fn(v, targets)
	}
}

// Conf is a file that both daemons take.
func (s Spec) Conf() string {
	var b strings.Builder
	b.WriteString("global_defs {\n")
	if s.Mode == Reset {
		b.WriteString("    #sluice checker_close reset\n")
	}
	b.WriteString("}\n")
	check := "TCP_CHECK {\n            connect_timeout 3\n            retry 0\n        }"
	if s.Mode == HTTP {
		check = "HTTP_GET {\n            url {\n                path /\n                status_code 200\n            }\n            connect_timeout 3\n            retry 0\n        }"
	}
	s.each(func(service int, targets []int) {
		fmt.Fprintf(&b, "virtual_server %s 80 {\n    delay_loop %d\n    lvs_sched rr\n    lvs_method NAT\n    protocol TCP\n", vip(service), s.Delay)
		if s.Warmup > 0 {
			fmt.Fprintf(&b, "    warmup %d\n", s.Warmup)
		}
		for _, t := range targets {
			fmt.Fprintf(&b, "    real_server %s %d {\n        %s\n    }\n", backend.Addr(t), port(t), check)
		}
		b.WriteString("}\n")
	})
	return b.String()
}

// Rules is the same table for ipvsadm -R.
func (s Spec) Rules() string {
	var b strings.Builder
	s.each(func(service int, targets []int) {
		fmt.Fprintf(&b, "-A -t %s:80 -s rr\n", vip(service))
		for _, t := range targets {
			fmt.Fprintf(&b, "-a -t %s:80 -r %s:%d -m -w 1\n", vip(service), backend.Addr(t), port(t))
		}
	})
	return b.String()
}
