// Command diff compares sluiced with keepalived on a real kernel:
//
//	go run ./test/diff [-run REGEXP] [-quick] [-configs DIR] [-keepalived system,trixie] [-update] [-keep] [-v]
//
// Every scenario in testdata/diff is played once with each daemon: the same
// configuration, the same backends that fail and return at the same moments, the
// same reloads. What the daemons make of it (the table, what scripts and FIFOs are
// told, exit statuses, and when which weight changes) is recorded and compared. A
// difference must be claimed by its scenario, with a reason; an unclaimed one fails
// the test, and so does a claim of a difference that is not there. The results make
// docs/compatibility.md: -update writes it, and a complete run without -update fails
// when it is not what would be written.
//
// # A scenario
//
// A scenario is a txtar archive NAME.txtar. Its comment is a script, one command a
// line, blank lines and lines that begin with # apart; its files are laid into a
// folder that is made anew for each run, those that end in .sh executable. In files,
// arguments and commands $DIR is that folder and $RUN a short name that no other run
// has; in everything recorded they are put back.
//
// What describes the scenario:
//
//	title TEXT               a line for the report; required
//	quick                    part of the short run
//	covers WORD...           keywords that it is about; each must stand in a file
//	sluice-args ARG...       more arguments for sluiced
//	keepalived-args ARG...   and for keepalived
//	timeline SECONDS         compare the time lines as well (see below)
//	differs RECORD REASON    the record differs, on purpose, and why
//	expect RECORD sluice|both FILE
//	                         the record of sluice, or of both, is that of the file
//
// The steps, in their order:
//
//	addr add|del ADDR        a local address comes or goes. One that is first deleted
//	                         was there from the beginning, like those of backends
//	backend ADDR:PORT BEHAVIOUR
//	                         what answers there from now on
//	fifo PATH                read this FIFO of the daemon's from when it is there
//	start FILE               start on the file; done when the daemon says so
//	settle SECONDS           let time pass
//	write FILE TEXT          replace the file by one with this line
//	remove FILE
//	reload FILE              put the file's content in the place of what runs, and
//	                         send HUP; done when the daemon has taken it
//	kernel COMMAND           run a shell command in the namespace; it must succeed
//	stop                     send TERM and wait
//
// and those that record:
//
//	table LABEL              ipvsadm -Sn, sorted; with thresholds (-x, -y) where a
//	                         file speaks of them
//	events LABEL             the lines that scripts appended to $DIR/events, and that
//	                         came through FIFOs ("fifo PATH: " in front, NUL as \0),
//	                         since the last events
//	output LABEL COMMAND     what a shell command prints in the namespace
//	test FILE [ARG...]       the exit status of a configuration test (-t)
//
// start records "runs", "ends", "crashes" or "never gets ready", stop the exit status.
// Where no daemon runs, reload is passed over and stop records that. A record is named by its kind and label, as
// table:up, events:up, output:x, test:a.conf, start, exit, timeline; a second one of
// the same kind without a label of its own is start#2 and so on. Where it is clear
// the label alone will do.
//
// The order of events is only meaningful within one subject, keepalived runs the
// scripts of different servers at once: events are compared by subject, which is all
// of a line but its last word.
//
// A time line is the history of a destination, absent or with a weight, seen every
// tenth of a second. Both daemons must go through the same phases, and enter each
// within SECONDS of the other, counted from the same step of the script. What lasts
// less than three tenths of a second is not seen. A first phase that is over within
// SECONDS may be missing: sluice checks at once, keepalived a second after the start.
//
// # Behaviours
//
//	tcp                      accept, and close after the peer
//	refuse                   nothing listens
//	drop                     what is sent there vanishes
//	reset                    accept, and reset
//	http STATUS [BODY]       HTTP/1.0, closed after the answer
//	http-keepalive STATUS [BODY]  HTTP/1.1, kept open
//	http-slow SECONDS STATUS [BODY]  answer after a pause
//	http-raw TEXT            send TEXT, with the escapes of Go, and close
//	https STATUS [BODY]      with a certificate of its own
//	http-path PATH STATUS [BODY]  a path that an http backend answers otherwise
//	http-host HOST STATUS [BODY]  the same by Host
//	https-sni NAME STATUS    STATUS for this SNI, 404 for others
//	smtp ["BANNER" ["HELO" ["QUIT"]]]  quoted answers; good ones where left out
//	dns RCODE                an empty answer with that code
//	dns-wrongid, dns-short, dns-silent
//	udp echo | reply HEX | silent
//
// Addresses that nothing names are behind a route to nowhere: what is sent there
// vanishes.
//
// # Decisions
//
//   - One guest for everything. Booting is cheap, but a daemon's settles pass in
//     parallel only within one.
//   - The two daemons of a scenario have a namespace each and run side by side.
//     Nothing is shared, so nothing of one can disturb the other's table, and both
//     meet the same load.
//   - The judge is pure and stands apart (package scenario), so that tests can give it
//     runs that never were. A judge that finds nothing on a pair made to differ is the
//     one failure that no run would show.
//   - A reason is part of the scenario, beside what it excuses, and goes stale aloud.
package main
