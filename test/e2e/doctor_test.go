package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/doctor"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// examine runs the doctor outside of the director's namespace, as an operator does
// who knows nothing of it.
func (b *bed) examine() map[string]doctor.Finding {
	b.Helper()
	cmd := exec.Command(program(b.T, "sluice"), "doctor", "--json", "--socket", b.socket)
	out, err := cmd.Output()
	var r doctor.Report
	if jerr := json.Unmarshal(out, &r); jerr != nil {
		b.Fatalf("%v, %v: %s", err, jerr, out)
	}
	// The worst of a rule's findings.
	worst := map[string]doctor.Finding{}
	for _, s := range []doctor.Status{doctor.OK, doctor.Note, doctor.Unknown, doctor.Warn, doctor.Fail} {
		for _, f := range r.Findings {
			if f.Status == s {
				worst[f.ID] = f
			}
		}
	}
	return worst
}

// mend types what the doctor says, to the letter.
func (b *bed) mend(f doctor.Finding) {
	b.Helper()
	if len(f.Mend) == 0 {
		b.Fatalf("%s: nothing to type: %+v", f.ID, f)
	}
	for _, c := range f.Mend {
		if out, err := exec.Command("/bin/sh", "-c", c).CombinedOutput(); err != nil {
			b.Fatalf("%s: %q: %v: %s", f.ID, c, err, out)
		}
	}
}

// TestKernelDoctorMends: whatever is broken is found, what the doctor says is typed, and
// the doctor is content.
func TestKernelDoctorMends(t *testing.T) {
	for _, tool := range []string{"sysctl", "nsenter", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("an operator has %s: %v", tool, err)
		}
	}
	b := newBed(t, testkit.NewNAT, 2)
	b.write("global_defs {\n lvs_timeouts tcp 600 tcpfin 60 udp 30\n drain_interval 2\n}\n" + pool("persistence_timeout 60", 1, 2) +
		"virtual_server fwmark 7 {\n lvs_sched mh\n lvs_method DR\n real_server RS1 0 {\n  weight 1\n }\n}\n")
	b.start()
	b.until("1:1 2:1")
	if testing.Verbose() {
		out, _ := exec.Command(program(t, "sluice"), "doctor", "--socket", b.socket).CombinedOutput()
		t.Logf("\n%s", out)
	}
	sound := b.examine()
	for id, f := range sound {
		if f.Status == doctor.Fail {
			t.Errorf("a machine that works has %s: %+v", id, f)
		}
	}
	for _, id := range []string{"daemon", "namespace", "table_written", "ip_vs", "schedulers", "capabilities", "ip_forward", "virtual_address", "real_route", "expire_nodest_conn", "ipvs_timeouts"} {
		if f := sound[id]; f.Status != doctor.OK {
			t.Errorf("%s: %+v", id, f)
		}
	}
	vs := "net.ipv4.vs."
	for _, tt := range []struct {
		id, sysctl, value string
		status            doctor.Status
	}{
		{"ip_forward", "net.ipv4.ip_forward", "0", doctor.Fail},
		{"expire_nodest_conn", vs + "expire_nodest_conn", "0", doctor.Warn},
		{"expire_quiescent_template", vs + "expire_quiescent_template", "0", doctor.Warn},
		{"conn_reuse_mode", vs + "conn_reuse_mode", "0", doctor.Warn},
		{"sloppy_tcp", vs + "sloppy_tcp", "1", doctor.Note},
		{"drop_entry", vs + "drop_entry", "3", doctor.Warn},
		{"drop_packet", vs + "drop_packet", "3", doctor.Warn},
		{"secure_tcp", vs + "secure_tcp", "3", doctor.Warn},
		{"snat_reroute", vs + "snat_reroute", "0", doctor.Note},
		{"rp_filter", "net.ipv4.conf.all.rp_filter", "1", doctor.Warn},
	} {
		b.Director.Sysctl(t, tt.sysctl, tt.value)
		f := b.examine()[tt.id]
		if f.Status != tt.status {
			t.Errorf("%s = %s: %+v", tt.sysctl, tt.value, f)
			continue
		}
		b.mend(f)
		if f := b.examine()[tt.id]; f.Status != doctor.OK {
			t.Errorf("%s, mended: %+v", tt.sysctl, f)
		}
	}

	where := ""
	for line := range strings.Lines(b.Director.Run(t, "ip", "-o", "addr", "show", "to", b.VIP.String())) {
		cells := strings.Fields(line)
		where = cells[1]
		b.Director.IP(t, "addr del "+cells[3]+" dev "+cells[1])
	}
	if where == "" {
		t.Fatal("the director has no virtual address")
	}
	f := b.examine()["virtual_address"]
	if f.Status != doctor.Fail {
		t.Fatalf("without its address: %+v", f)
	}
	b.mend(f)
	if f := b.examine()["virtual_address"]; f.Status != doctor.OK {
		t.Errorf("mended: %+v", f)
	}
}
