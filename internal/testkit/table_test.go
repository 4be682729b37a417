package testkit

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func addrs() cmp.Option { return cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }) }

// The texts in these tests were printed by ipvsadm 1.31 and a 6.1 kernel.

func TestParseSave(t *testing.T) {
	t.Parallel()
	const text = `-A -t 192.0.2.10:80 -s wlc -p 300 -M 255.255.255.0
-a -t 192.0.2.10:80 -r 10.0.0.13:80 -i -w 1 --tun-type gue --tun-port 6080 --tun-nocsum
-a -t 192.0.2.10:80 -r 10.0.0.11:8080 -m -w 3
-a -t 192.0.2.10:80 -r 10.0.0.12:80 -g -w 0
-A --sctp-service 192.0.2.10:132 -s mh
-A -f 5 -s sh -b sh-port
-a -f 5 -r 10.0.0.11:0 -g -w 1
-A -f 6 -6 -s rr
-a -f 6 -6 -r [fd00::11]:0 -g -w 1
`
	want := Table{
		{Key: "fwm 5", Scheduler: "sh", Options: []string{"-b sh-port"}, Dests: []Dest{
			{Addr: netip.MustParseAddrPort("10.0.0.11:0"), Method: "route", Weight: 1}}},
		{Key: "fwm6 6", Scheduler: "rr", Dests: []Dest{
			{Addr: netip.MustParseAddrPort("[fd00::11]:0"), Method: "route", Weight: 1}}},
		{Key: "sctp 192.0.2.10:132", Scheduler: "mh"},
		{Key: "tcp 192.0.2.10:80", Scheduler: "wlc", Options: []string{"-p 300", "-M 255.255.255.0"}, Dests: []Dest{
			{Addr: netip.MustParseAddrPort("10.0.0.11:8080"), Method: "masq", Weight: 3},
			{Addr: netip.MustParseAddrPort("10.0.0.12:80"), Method: "route", Weight: 0},
			{Addr: netip.MustParseAddrPort("10.0.0.13:80"), Method: "tunnel", Weight: 1,
				Options: []string{"--tun-type gue", "--tun-port 6080", "--tun-nocsum"}}}},
	}
	got, err := ParseSave(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, addrs()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if d := got.Find("tcp 192.0.2.10:80").Find("10.0.0.11:8080"); d == nil || d.Weight != 3 {
		t.Errorf("Find = %+v, want weight 3", d)
	}
	if d := got.Find("tcp 192.0.2.99:80").Find("10.0.0.11:8080"); d != nil {
		t.Errorf("Find in a service that is not there = %+v", d)
	}
}

func TestParseSaveRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"-a -t 192.0.2.10:80 -r 10.0.0.1:80 -m -w 1": "unknown service",
		"-D -t 192.0.2.10:80":                        "unknown command -D",
		"-A -z 1 -s rr":                              "unknown kind of service",
		"-A":                                         "no service named",
		"-A -t v:1 -s rr\n-a -t v:1 -r nonsense -w 1": "nonsense",
		"-A -t v:1 -s rr\n-a -t v:1 -r 10.0.0.1:1 -m": "parsing",
	} {
		if _, err := ParseSave(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSave(%q) = %v, want an error with %q", text, err, want)
		}
	}
}

func TestParseProc(t *testing.T) {
	t.Parallel()
	const text = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
SCTP  C000020A:0084 mh  
TCP  C000020A:0050 wlc  persistent 75000 FFFFFF00
  -> 0A00000D:0050      Tunnel  1      0          0         
  -> 0A00000B:1F90      Masq    3      12         7         
FWM  00000006 rr 
  -> [fd00:0000:0000:0000:0000:0000:0000:0011]:0000      Route   1      0          0         
UDP  [2001:0db8:0000:0000:0000:0000:0000:0010]:0035 rr ops 
`
	want := Table{
		{Key: "fwm 6", Scheduler: "rr", Dests: []Dest{
			{Addr: netip.MustParseAddrPort("[fd00::11]:0"), Method: "route", Weight: 1}}},
		{Key: "sctp 192.0.2.10:132", Scheduler: "mh"},
		{Key: "tcp 192.0.2.10:80", Scheduler: "wlc", Dests: []Dest{
			{Addr: netip.MustParseAddrPort("10.0.0.11:8080"), Method: "masq", Weight: 3, Active: 12, Inactive: 7},
			{Addr: netip.MustParseAddrPort("10.0.0.13:80"), Method: "tunnel", Weight: 1}}},
		{Key: "udp [2001:db8::10]:53", Scheduler: "rr"},
	}
	got, err := ParseProc(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, addrs(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestParseConns(t *testing.T) {
	t.Parallel()
	const text = `Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP C0000264 8D3E C000020A 0050 0A00000B 1F90 ESTABLISHED     899
UDP 2001:0db8:0000:0000:0000:0000:0000:0100 8D3E 2001:0db8:0000:0000:0000:0000:0000:0010 0035 fd00:0000:0000:0000:0000:0000:0000:0011 0035 UDP             299
`
	want := []Conn{
		{Protocol: "tcp", Client: netip.MustParseAddrPort("192.0.2.100:36158"), Virtual: netip.MustParseAddrPort("192.0.2.10:80"),
			Dest: netip.MustParseAddrPort("10.0.0.11:8080"), State: "ESTABLISHED"},
		{Protocol: "udp", Client: netip.MustParseAddrPort("[2001:db8::100]:36158"), Virtual: netip.MustParseAddrPort("[2001:db8::10]:53"),
			Dest: netip.MustParseAddrPort("[fd00::11]:53"), State: "UDP"},
	}
	got, err := ParseConns(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, addrs()); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
	if _, err := ParseConns("heading\nTCP C0000264 8D3E\n"); err == nil {
		t.Error("a short line was taken")
	}
}

func TestParseStats(t *testing.T) {
	t.Parallel()
	const text = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes
  -> RemoteAddress:Port
TCP  192.0.2.10:80                      12       30       20     4000     3000
  -> 10.0.0.11:8080                      7       18       12     2500     2000
FWM  6 IPv6                              1        2        3        4        5
  -> [fd00::11]:0                        1        2        3        4        5
`
	want := map[string]Stats{
		"tcp 192.0.2.10:80":                   {12, 30, 20, 4000, 3000},
		"tcp 192.0.2.10:80 -> 10.0.0.11:8080": {7, 18, 12, 2500, 2000},
		"fwm6 6":                              {1, 2, 3, 4, 5},
		"fwm6 6 -> [fd00::11]:0":              {1, 2, 3, 4, 5},
	}
	got, err := ParseStats(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}
