package metrics

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/keyword"
	"github.com/sluice-lb/sluice/internal/config/syntax"
	"github.com/sluice-lb/sluice/internal/engine"
)

// load reads a configuration; nil for one that cannot be used.
func load(file string) *config.Config {
	cfg, _ := keyword.Load(file, keyword.Options{Options: syntax.Options{Resolver: syntax.OS{}}})
	if cfg == nil || config.Validate(cfg) != nil {
		return nil
	}
	return cfg
}

// TestO02EveryConfigurationPassesPromlint: those of the parser's tests hold every kind
// of service, check and setting, and what is wrong with them; and those that others
// published, where they are at hand.
func TestO02EveryConfigurationPassesPromlint(t *testing.T) {
	served := 0
	for _, pattern := range []string{"testdata/conf/ok", "testdata/conf/bad", "configs", "../shared/configs"} {
		files, err := filepath.Glob("../../" + pattern + "/*.conf")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			cfg := load(file)
			if cfg == nil {
				continue
			}
			served += len(cfg.VirtualServers)
			t.Run(pattern+"/"+filepath.Base(file), func(t *testing.T) {
				after(t, 5*time.Minute, cfg, func(e *engine.Engine) {
					lint(t, text(t, e.Overview(), config.MetricsService))
					lint(t, text(t, e.Snapshot(), config.MetricsServer))
				})
			})
		}
	}
	if served < 50 {
		t.Errorf("only %d virtual servers were served", served)
	}
}

// TestO02OneServerManyServices: a server in two services, the two services of one mark,
// one address with two protocols, and a group of several services that two virtual
// servers use, one of its entries being there twice.
func TestO02OneServerManyServices(t *testing.T) {
	const server = " real_server 10.0.0.1 80 {\n  TCP_CHECK {\n  }\n }\n}\n"
	file := filepath.Join(t.TempDir(), "sluice.conf")
	if err := os.WriteFile(file, []byte(`
virtual_server 192.0.2.1 80 {
 lvs_sched rr
 lvs_method NAT
 protocol TCP
`+server+`
virtual_server 192.0.2.1 80 {
 lvs_sched rr
 lvs_method NAT
 protocol UDP
`+server+`
virtual_server fwmark 31 {
 lvs_sched rr
 lvs_method DR
`+server+`
virtual_server fwmark 31 {
 lvs_sched rr
 lvs_method DR
 ip_family inet6
 real_server 2001:db8::1 80 {
  TCP_CHECK {
  }
 }
}
virtual_server_group web {
 192.0.2.2 80
 192.0.2.3 80
 192.0.2.3 80
 fwmark 7
}
virtual_server group web {
 lvs_sched rr
 lvs_method NAT
 protocol TCP
`+server+`
virtual_server group web {
 lvs_sched rr
 lvs_method NAT
 protocol UDP
`+server), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := load(file)
	if cfg == nil || len(cfg.VirtualServers) != 6 {
		t.Fatalf("the configuration is not usable: %+v", cfg)
	}
	cfg.VirtualServers[0].Label, cfg.VirtualServers[0].RealServers[0].Label = "the \"shop\"", "rack 4"
	after(t, 5*time.Minute, cfg, func(e *engine.Engine) {
		s := e.Snapshot()
		s.VirtualServers[0].Label, s.VirtualServers[0].RealServers[0].Label = cfg.VirtualServers[0].Label, cfg.VirtualServers[0].RealServers[0].Label
		exposition := text(t, s, config.MetricsServer)
		lint(t, exposition)
		all := series(t, exposition)
		const remote = `remote_address="10.0.0.1",remote_port="80"`
		for _, want := range []string{
			`sluice_virtual_server_quorum_up{virtual_server="[192.0.2.1]:tcp:80",local_address="192.0.2.1",local_port="80",proto="TCP",family="inet",label="the \"shop\""}`,
			`sluice_virtual_server_quorum_up{virtual_server="[192.0.2.1]:udp:80",local_address="192.0.2.1",local_port="80",proto="UDP",family="inet"}`,
			`sluice_virtual_server_quorum_up{virtual_server="FWM 31",local_port="0",local_mark="0000001F",proto="FWM",family="inet"}`,
			`sluice_virtual_server_quorum_up{virtual_server="FWM 31",local_port="0",local_mark="0000001F",proto="FWM",family="inet6"}`,
			`sluice_virtual_server_quorum_up{virtual_server="[web]:0",proto="TCP"}`,
			`sluice_virtual_server_quorum_up{virtual_server="[web]:0",proto="UDP"}`,
			`sluice_virtual_server_service_info{virtual_server="[web]:0",virtual_server_proto="TCP",local_address="192.0.2.3",local_port="80",proto="TCP",family="inet"}`,
			`sluice_virtual_server_service_info{virtual_server="[web]:0",virtual_server_proto="UDP",local_port="0",local_mark="00000007",proto="FWM",family="inet"}`,
			`sluice_real_server_up{virtual_server="[192.0.2.1]:tcp:80",local_address="192.0.2.1",local_port="80",proto="TCP",family="inet",` + remote + `,label="rack 4"}`,
			`sluice_destination_weight{local_address="192.0.2.1",local_port="80",proto="UDP",family="inet",` + remote + `}`,
			`sluice_destination_weight{local_address="192.0.2.3",local_port="80",proto="UDP",family="inet",` + remote + `}`,
		} {
			if _, there := all[want]; !there {
				name, _, _ := strings.Cut(want, "{")
				t.Errorf("there is no %s among", want)
				for s := range all {
					if strings.HasPrefix(s, name+"{") {
						t.Log(s)
					}
				}
			}
		}
	})
}
