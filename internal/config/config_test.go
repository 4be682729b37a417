package config_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// valid makes a small configuration that Validate accepts.
func valid() *config.Config {
	rs := &config.RealServer{
		Key: config.RSKey{AddrPort: netip.MustParseAddrPort("10.0.0.1:80")}, Weight: 1, Forward: config.Forwarding{Method: config.DR},
		TrackFiles: []config.TrackFileUse{{Name: "load", Weight: 1}},
		Checkers: []*config.Checker{
			{
				Kind: config.HTTPGet, HTTP: &config.HTTP{URLs: []config.URL{{Path: "/", Status: []config.StatusRange{{First: 200, Last: 299}}}}},
				Conn:     config.Connection{Target: netip.MustParseAddrPort("10.0.0.1:80"), Timeout: time.Second},
				Schedule: config.Schedule{DelayLoop: time.Second, Rise: 2},
			},
			{Kind: config.FileCheck, File: &config.TrackFileUse{Name: "load", Weight: 1}, Schedule: config.Schedule{Rise: 1}},
		},
	}
	vip := netip.MustParseAddrPort("192.0.2.1:80")
	return &config.Config{
		Global:     config.Global{DrainInterval: time.Minute},
		TrackFiles: []*config.TrackFile{{Name: "load", Path: "/run/load", Weight: 1}},
		VirtualServers: []*config.VirtualServer{{
			Key: config.VSKey{Protocol: config.TCP, Addr: vip}, Entries: []config.Entry{{Addr: vip, Family: config.IPv4}},
			Protocol: config.TCP, Scheduler: "rr", Quorum: 1, RealServers: []*config.RealServer{rs},
			Sorry: &config.SorryServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort("10.0.0.9:80")}, Forward: config.Forwarding{Method: config.NAT}},
		}},
	}
}

func TestValidateAcceptsWhatIsWhole(t *testing.T) {
	if err := config.Validate(valid()); err != nil {
		t.Error(err)
	}
	if err := config.Validate(&config.Config{Global: config.Global{DrainInterval: 1}}); err != nil {
		t.Error("without virtual servers:", err)
	}
}

func TestValidateNamesEachBrokenRule(t *testing.T) {
	for want, spoil := range map[string]func(c *config.Config, vs *config.VirtualServer, rs *config.RealServer){
		"drain_interval": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) { c.Global.DrainInterval = 0 },
		"drain_timeout -1s": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) {
			c.Global.DrainTimeout = -time.Second
		},
		"departure_hold -1s": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) {
			c.Global.DepartureHold = -time.Second
		},
		"track file load twice": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) {
			c.TrackFiles = append(c.TrackFiles, c.TrackFiles[0])
		},
		"no track file": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) { c.TrackFiles = nil },
		"[192.0.2.1]:tcp:80: twice": func(c *config.Config, vs *config.VirtualServer, _ *config.RealServer) {
			c.VirtualServers = append(c.VirtualServers, vs)
		},
		"no scheduler": func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) { vs.Scheduler = "" },
		"no service":   func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) { vs.Entries = nil },
		"services without": func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) {
			vs.Entries = append(vs.Entries, vs.Entries[0])
		},
		"without family":     func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) { vs.Entries[0].Family = 0 },
		"not one of address": func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) { vs.Entries[0].FWMark = 3 },
		"without protocol":   func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) { vs.Protocol = config.None },
		"without persistence": func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) {
			vs.Entries[0].Addr = netip.MustParseAddrPort("192.0.2.1:0")
		},
		"granularity without": func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) { vs.Granularity = 1 },
		"quorum 0":            func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) { vs.Quorum = 0 },
		"hysteresis 1":        func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) { vs.Hysteresis = 1 },
		"above the weights":   func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) { vs.Quorum = 2 },
		"no real server":      func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) { vs.RealServers = nil },
		"10.0.0.1:80 twice": func(_ *config.Config, vs *config.VirtualServer, rs *config.RealServer) {
			vs.RealServers = append(vs.RealServers, rs)
		},
		"weight -1":            func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) { rs.Weight = -1 },
		"without method":       func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) { rs.Forward.Method = 0 },
		"sorry server without": func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) { vs.Sorry.Key = config.RSKey{} },
		"a tunnel without TUN": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) { rs.Forward.Tunnel = config.GRE },
		"tunnel port 5":        func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) { rs.Forward.Port = 5 },
		"of the other family": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) {
			rs.Key.AddrPort = netip.MustParseAddrPort("[::1]:80")
		},
		"port differs with DR": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) {
			rs.Key.AddrPort = netip.MustParseAddrPort("10.0.0.1:81")
		},
		"rise 0": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) { rs.Checkers[0].Rise = 0 },
		"target": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) {
			rs.Checkers[0].Conn.Target = netip.AddrPort{}
		},
		"timeout 0s": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) {
			rs.Checkers[0].Conn.Timeout = 0
		},
		"delay_loop 0s":    func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) { rs.Checkers[0].DelayLoop = 0 },
		"a negative delay": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) { rs.Checkers[0].Warmup = -1 },
		"without url":      func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) { rs.Checkers[0].HTTP.URLs = nil },
		"a check of kind BFD_CHECK": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) {
			rs.Checkers[0].Kind = config.BFDCheck
		},
		"SMTP_CHECK without name": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) {
			rs.Checkers[0].Kind, rs.Checkers[0].SMTP = config.SMTPCheck, &config.SMTP{}
		},
		"DNS_CHECK without type": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) {
			rs.Checkers[0].Kind = config.DNSCheck
		},
		"UDP_CHECK &{": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) {
			rs.Checkers[0].Kind, rs.Checkers[0].UDP = config.UDPCheck, &config.Datagram{Require: true, Reply: []byte{1}}
		},
		"MISC_CHECK without script": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) {
			rs.Checkers[0].Kind, rs.Checkers[0].Misc = config.MiscCheck, &config.Misc{Timeout: 1}
		},
		"MISC_CHECK without timeout": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) {
			rs.Checkers[0].Kind, rs.Checkers[0].Misc = config.MiscCheck, &config.Misc{Script: &config.Script{Argv: []string{"/x"}}}
		},
		"startup_script without timeout": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) {
			c.Global.StartupScript = &config.Script{}
		},
		"shutdown_script without timeout": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) {
			c.Global.ShutdownScript = &config.Script{}
		},
		"smtp_server x without port": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) { c.Global.Mail.Server = "x" },
		`FIFO at "/x"`: func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) {
			c.Global.FIFOs = []config.FIFO{{Path: "/x"}, {Path: "/x"}}
		},
		"lvs_sync_daemon without interface": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) {
			c.Global.Sync = &config.SyncDaemon{}
		},
		"lvs_sync_daemon group 10.0.0.1": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) {
			c.Global.Sync = &config.SyncDaemon{Interface: "e", Group: netip.MustParseAddr("10.0.0.1")}
		},
		"real-time priority 100": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) { c.Global.Process.RealTime = 100 },
		"priority 20":            func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) { c.Global.Process.Nice = 20 },
		"vip_delay -1s": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) {
			c.Global.VIPDelay = -time.Second
		},
		"check_via_mark 0x10001": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) { c.Global.ViaMark = 0x10001 },
		`nftables_ipvs ""`: func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) {
			c.Global.NFTables = &config.NFTables{FirstMark: 1}
		},
		"passive: track file": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) {
			c.Global.Passive.File = &config.TrackFileUse{Name: "nowhere"}
		},
		"lvs_sync_state: track file": func(c *config.Config, _ *config.VirtualServer, _ *config.RealServer) {
			c.Global.Sync = &config.SyncDaemon{Interface: "e", File: &config.TrackFileUse{Name: "nowhere"}}
		},
		`vip_device "a b"`: func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) { vs.VIP.Device = "a b" },
		"without a group":  func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) { vs.Mark = 5 },
		"vip_address without a mark": func(_ *config.Config, vs *config.VirtualServer, _ *config.RealServer) {
			vs.VIPAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.5")}
		},
		"check_via through": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) {
			rs.Checkers[0].Conn.Via = &config.Via{Server: netip.MustParseAddr("10.0.0.2"), Forward: rs.Forward}
		},
		"check_via with NAT": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) {
			rs.Forward.Method = config.NAT
			rs.Checkers[0].Conn.Via = &config.Via{Server: rs.Key.Addr(), Forward: rs.Forward}
		},
		"FILE_CHECK without": func(_ *config.Config, _ *config.VirtualServer, rs *config.RealServer) { rs.Checkers[1].File = nil },
	} {
		c := valid()
		spoil(c, c.VirtualServers[0], c.VirtualServers[0].RealServers[0])
		if err := config.Validate(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestVirtualServersHaveKeepalivedsNames(t *testing.T) {
	for want, k := range map[string]config.VSKey{
		"[192.0.2.1]:tcp:80":   {Protocol: config.TCP, Addr: netip.MustParseAddrPort("192.0.2.1:80")},
		"[2001:db8::1]:sctp:0": {Protocol: config.SCTP, Addr: netip.MustParseAddrPort("[2001:db8::1]:0")},
		"FWM 5":                {FWMark: 5, Family: config.IPv4},
		"FWM 5 inet6":          {FWMark: 5, Family: config.IPv6},
		"[web]:1":              {Group: "web", Protocol: config.UDP, Ordinal: 1},
	} {
		if got := k.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestPrintReturnsTheWritersError(t *testing.T) {
	if err := config.Print(full{}, valid()); err == nil {
		t.Error("a failed write went unnoticed")
	}
}
