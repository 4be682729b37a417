// Package metrics writes the daemon's state in Prometheus' text format.
//
// It decides what is told, under which name, and how much: by default some ten
// series for each virtual server, with its real servers as counts by state, and only
// on demand (metrics_detail server) series of each real server, destination and
// check. It deliberately knows nothing of how the state comes about and keeps none:
// a scrape reads one published snapshot and never asks the engine's loop, so that it
// can delay no verdict.
//
// # Decisions
//
// The format is written here and not by prometheus/client_golang. That library,
// linked and with an empty registry, takes 2.0 MB of resident memory in an idle
// daemon of 13.3 MB (1.7 MB of it the larger program) and 2.3 MB of the program's
// 11 MB, scraped or not. The text format is a page of rules, and the library's parser
// and linter judge the result in the tests.
//
// Samples are streamed: nothing is built up for a scrape but the snapshot and one
// buffer, and between scrapes nothing is kept. Each series of a virtual server has
// its name, and the label names and values by which node_exporter's ipvs collector
// tells services apart (local_address, local_port, local_mark, proto), so that the
// two can be joined. family tells a mark's two services apart, which node_exporter
// cannot. A group, which stands for several services, has its name and protocol. A
// destination has no virtual server's name: several can share its service. A check is
// named by its kind and its place among its real server's, never by its script,
// whose arguments may be secret.
//
// What the engine measures of itself (how long checks and calls of the kernel take, the
// lag of the loop, a verdict's way to the kernel) are histograms by kind with fixed
// bounds, counted by atomic additions where it happens: nothing grows with the servers,
// and a good check costs no allocation. node_exporter tells of connections and bytes;
// sluice_virtual_server_service_info joins its series to virtual servers, a group's too,
// so that no scrape reads the kernel.
//
// All detail of 10,000 servers is 11.5 MB and takes 25 ms of processor time; compressed
// at the fastest level it is 0.26 MB and takes no longer, since what is written is that
// much less. The default set is small and sent as it is. Who assembles and writes it
// gives way to others after each piece.
//
// The rules and the dashboard in configs/ are held to the names and labels that there
// are by a test; the dashboard is made by it.
//
// A state that needs a setting (withdrawn, kept) is counted where there is that
// setting; held and damped are counted while there is such a server. All others are
// always there, so that an alert sees a 0 and not an absence.
package metrics
