package keyword

// docVIP tells what a row of a table cannot.
const docVIP = `
## The addresses, and what else of the machine goes with the services

The kernel balances what arrives for an address only if that address is local. Without the words of this section somebody
else sees to it, and nothing of the machine but its IPVS table is touched. With them the daemon needs CAP_NET_ADMIN.
What cannot be done (a device that is no dummy, an address that is on another device, no nftables) is an error in the log that names the keyword; ` + "`sluice status`" + ` and a metric show it for as long as it lasts. The rest works, and it is tried again.

### vip_device, vip_follow and vip_delay

` + "`vip_device vip0`" + ` puts each address of the virtual servers on vip0, as /32 or /128: that of a ` + "`virtual_server`" + `, those of a
group with its ranges, and ` + "`vip_address`" + ` of a firewall mark. If there is no such device a dummy is made, and deleted when it
is no longer needed; one that was there stays. ` + "`lo`" + ` is possible too, and no other kind of device. Said in global_defs it is for every virtual server;
a virtual server names another one, or ` + "`none`" + `. An address that several virtual servers use is there while one of them
needs it, and they have to agree on the device. An address that somebody else put there is used and never removed; one
that somebody takes away is put back.

Routing daemons (bird2, FRR) that announce the routes of this device, or its addresses, follow it: what is there is
announced.

` + "`vip_follow always`" + `, the default, keeps an address there as long as its virtual server is configured. ` + "`vip_follow quorum`" + ` takes
it away while that has no quorum, so that another director or another site gets the traffic. A sorry server serves
meanwhile only those that still come here.

When an address goes, be it for the quorum, a reload, ` + "`passive`" + ` or the daemon's stop, it goes first. Routers need a moment to hear
of it: for ` + "`vip_delay`" + ` (1 s) the services go on as they are, then they drain. Failed real servers leave at once all the same.
While something is in the table the kernel goes on to take in packets for the address, so that connections
that are open end in peace. When an address comes, its service is in the table before.

` + "`ha_suspend`" + ` waits for an address that another program brings. It is an error together with ` + "`vip_device`" + `.

### vip_guard

A virtual address is an address of this host: without a guard whatever listens on every address, sshd for one, answers
there as well. ` + "`vip_guard on`" + ` refuses new connections to its ports that are no service: TCP by a reset, the rest by an ICMP error.
Echo requests and what ICMP needs pass. The rules are in a table of nftables of our own, which changes together with the
services; other tables are not touched. It does not need ` + "`vip_device`" + `. For a firewall mark the guard knows the addresses by
` + "`vip_address`" + `, and lets in the packets that have the mark.

To the guard the answer to a UDP_CHECK or DNS_CHECK whose ` + "`bindto`" + ` is a guarded address is one more packet to a port that is
no service. A warning says so.

### nftables_ipvs

As in keepalived, the addresses of a group are not a service each then. A table of nftables gives their packets a firewall
mark, and one service for each mark and family has the real servers: with 10,000 addresses a real server that fails is
one operation of the kernel and not 10,000. Only entries of groups are carried so; a virtual server that names its address,
and entries that are marks, are what they always were. Virtual servers with the same group and protocol share the mark.
One address and port in two groups is an error, since a packet has one mark: the first group keeps it.

Marks begin at ` + "`nftables_ipvs_start_fwmark`" + ` and are given in file order. Those that the file uses itself, as a service or as ` + "`fwmark`" + `
of a check, and the range of check_via are left out. A reload leaves every group its mark, so that no packet changes its service; a group that is
new does not get one that goes in the same reload.

### check_via

An ordinary check of a real server goes to its own address. It does not see what DR and TUN need besides: the virtual
address on the server, the tunnel, and a service that listens there. ` + "`check_via vip`" + ` in a real server, or in a virtual server for all
of its real servers, has TCP_CHECK, HTTP_GET, SSL_GET, SMTP_CHECK, DNS_CHECK, UDP_CHECK and PING_CHECK ask the virtual address, by way of
this server alone, encapsulated as the kernel's table does it. MISC_CHECK and FILE_CHECK are as before.

- The address is the lowest of the virtual server's that is of the real server's family; for a mark it is
  from ` + "`vip_address`" + `. The port is the check's ` + "`connect_port`" + `, else the service's, else the real server's.
- A check with its own ` + "`connect_ip`" + ` goes there. ` + "`fwmark`" + ` and ` + "`bind_if`" + ` do not go with check_via, and neither does a ` + "`bindto`" + `
  that is the virtual address.
- With NAT the real server has no virtual address: that is an error. ` + "`check_via off`" + ` is for one among others.
- Equal ways are one, over all virtual servers: there are as many marks, rules and routing tables as real servers (and
  forwarding methods) are checked so, 65535 at most. They are numbered from ` + "`check_via_mark`" + ` + 1; no rule, mark or table of other programs
  may lie within.
- The kernel's rule for local addresses moves from priority 0 to 100 while there are such checks, since the virtual address is local
  here. The answers come from an address that is ours; to take them in, ` + "`net.ipv4.conf.DEVICE.accept_local`" + ` is set on the device
  they come in by (only with ` + "`manage_sysctls`" + `), and ` + "`rp_filter`" + ` must not be strict there.
  How it works, what it needs and how to look at it: [checks through the data path](check-via.md).

### passive

` + "`passive on`" + ` is for a director that is to take no traffic but be ready: checks run, addresses are withdrawn, after
` + "`vip_delay`" + ` the services drain and leave the table, and status says passive. ` + "`passive track_file NAME`" + ` leaves it to a file: its number is not 0, or
it is 0 and this director serves. The weight of the track_file does not matter. ` + "`sluice passive on`" + ` and ` + "`off`" + ` do the same by command,
and are remembered over a restart.

` + "`lvs_sync_state track_file NAME`" + ` decides in the same way which half of ` + "`lvs_sync_daemon`" + ` runs: master unless the number is 0,
then backup. A script of VRRP or of a cluster manager that writes the number moves both.
`
