package keyword

// docClose tells what checker_close and checker_threads cost and save.
const docClose = `
## How a check ends its connection

` + "`checker_close`" + ` is said in a checker, its real server, its virtual server or global_defs; the nearest counts. ` + "`normal`" + `,
the default, closes the connection as keepalived does (FIN), but TCP_CHECK and HTTP_GET spare the last packet of the
handshake: the FIN, or the request, acknowledges the server's as well (RFC 9293, 3.10.7.4). That is about a quarter of
what a TCP_CHECK costs, here and on the server. ` + "`full`" + ` sends that packet by itself, packet for packet as keepalived, for a
firewall in between that expects it. ` + "`reset`" + ` ends it by a RST: a TCP_CHECK takes about two system calls in place of five, and
no port is left in TIME_WAIT. It is not the default because a server may log each reset as an error, count it, or have
its accept fail.

A connection that was closed normally keeps its source port for a minute. The kernel has 28,232 of them
(` + "`net.ipv4.ip_local_port_range`" + `) for each target address and port, which is enough for 470 checks a second of ONE target.
At 10,000 a second to one target they are used up in three seconds, and checks cannot run until some are free again; then
write ` + "`checker_close reset`" + `, a longer ` + "`delay_loop`" + `, or ` + "`net.ipv4.tcp_tw_reuse=1`" + `. Targets do not share ports: ten
thousand servers checked once a second are no such case. A check with ` + "`bind_port`" + ` always ends by a reset.

` + "`checker_threads`" + ` is how many threads lead TCP_CHECK and plain HTTP_GET. One is enough for ten thousand checks a second
on a usual machine; it is read at the start, and a reload that changes it says so in the log.
`
