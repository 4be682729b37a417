package keyword

// docProtection tells what a row of a table cannot.
const docProtection = `
## When many checks fail

` + "`min_alive`" + ` bounds what failing checks can do to a pool: at least so many of its configured real servers, or that
share of them rounded up, stay in service. Of the servers in service whose checks fail those stay that failed last. A
server whose weight is 0, by the file or by a track file, is out because an operator wants it to be: it does not count as
one that serves, and it is never kept. A server that waits for its first good check (` + "`alpha`" + `, or added by a reload) has not
failed: it is not put in for the floor. The bound holds for the first checks after a start and after a reload as well.
Kept servers count as alive: for the quorum, so that the sorry server does not take over from them (a quorum above what the
floor keeps is still lost), for ` + "`inhibit_on_failure`" + ` and for ` + "`notify_down`" + `. While the floor keeps a server there is an error in
the log, ` + "`sluice status`" + ` says AT ITS FLOOR, names the servers as kept and ends with status 1.

` + "`flap_damping 3 60`" + ` holds back a real server that went down three times within 60 seconds: once its checks pass, they
have to go on passing for 60/3 = 20 seconds, twice as long for each further flap, and at most for ten times the 60 seconds.
A further flap is one while it is held back or within 60 seconds after that. A server is not held back while no other one of
its pool is good, or fewer than ` + "`min_alive`" + ` are.

` + "`slow_start`" + ` gives a real server that comes back, from a failure, from maintenance or by a reload, a tenth of its weight
(1 at least), and the whole of it after that time, in ten steps. The quorum counts the whole at once. There is no slow start
at the daemon's own start, for the only good server of a pool, or while the floor keeps failed servers. A scheduler that does
not look at weights (` + "`rr`, `lc`, `dh`" + `) has no slow start, and one that orders servers by weight (` + "`fo`, `ovf`" + `) or maps
clients by it (` + "`sh`, `mh`" + `) moves clients with every step.
`
