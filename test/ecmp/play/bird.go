package play

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// routerBird is the router's configuration: it accepts addresses of the service range
// from the directors that it knows, and hands all equal routes to the kernel.
const routerBird = `log stderr all;
router id 10.0.0.1;
protocol device { scan time 1; }
protocol kernel {
	merge paths on;
	ipv4 { import none; export where source = RTS_BGP; };
}
filter service { if net ~ [ 192.0.2.0/24{32,32} ] then accept; reject; }
template bgp director {
	local 10.0.0.1 as 65000;
	hold time 3; keepalive time 1;
	connect retry time 1; connect delay time 1; error wait time 1, 2;
	ipv4 { import filter service; export none; };
}
`

// directorBird announces what is on the device of the virtual addresses.
const directorBird = `log stderr all;
router id ADDRESS;
protocol device { scan time 1; }
protocol direct { ipv4; interface "vips"; }
filter service { if net ~ [ 192.0.2.0/24{32,32} ] then accept; reject; }
protocol bgp upstream {
	local ADDRESS as 65001;
	neighbor 10.0.0.1 as 65000;
	hold time 3; keepalive time 1;
	connect retry time 1; connect delay time 1; error wait time 1, 2;
	ipv4 { import none; export filter service; };
}
`

// bird starts a routing daemon in a namespace.
func (r *run) bird(ns *testkit.NS, conf string) *testkit.Process {
	base := filepath.Join(r.dir, "bird-"+ns.Name)
	r.must(os.WriteFile(base+".conf", []byte(conf), 0o644))
	argv := append(slices.Clip(r.plan.Bird), "-f", "-c", base+".conf", "-s", base+".ctl", "-P", base+".pid")
	return r.start(ns, argv)
}

// start starts a program whose output is kept with the run.
func (r *run) start(ns *testkit.NS, argv []string) *testkit.Process {
	p := ns.Start(r, nil, argv[0], argv[1:]...)
	r.programs = append(r.programs, program{ns.Name + " " + filepath.Base(argv[len(argv)-1]), p})
	return p
}

// program is one that was started, and what it is called in the log.
type program struct {
	name string
	*testkit.Process
}

// routerConf has a session for every director that may come.
func routerConf(directors int) string {
	var b strings.Builder
	b.WriteString(routerBird)
	for i := range directors {
		fmt.Fprintf(&b, "protocol bgp d%d from director { neighbor %v as 65001; }\n", i+1, directorAddr(i))
	}
	return b.String()
}

func directorConf(i int) string {
	return strings.ReplaceAll(directorBird, "ADDRESS", directorAddr(i).String())
}
