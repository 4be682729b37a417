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
// A state that needs a setting (withdrawn, kept) is counted where there is that
// setting; held and damped are counted while there is such a server. All others are
// always there, so that an alert sees a 0 and not an absence.
package metrics
