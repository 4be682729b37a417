package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/doctor"
	"github.com/sluice-lb/sluice/internal/engine"
)

// TestDoctor: which configuration is judged, and what the exit status says.
func TestDoctor(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "k.conf")
	// A loopback address behind NAT fails on every machine.
	if err := os.WriteFile(file, []byte("virtual_server 127.0.0.1 80 {\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n real_server 127.0.0.1 81 {\n }\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	running := snapshot(true)
	running.ConfigFile = file
	socket, gone := serve(t, running, engine.Reload{}), serve(t, snapshot(true), engine.Reload{})
	for name, tt := range map[string]struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		"a file":                   {[]string{file, "--socket", dir + "/none"}, 2, "FAIL     nat_loopback: ", ""},
		"of the daemon":            {[]string{"--socket", socket}, 2, "this machine for " + file, ""},
		"of the daemon, unread":    {[]string{"--socket", gone}, 3, "", "sluice check /etc/k.conf"},
		"a file beside the daemon": {[]string{file, "--socket", gone}, 2, "nat_loopback", ""},
		"quiet":                    {[]string{file, "--quiet", "--socket", dir + "/none"}, 2, "FAIL", ""},
		"missing":                  {[]string{dir + "/none.conf"}, 3, "", "none.conf"},
		"two files":                {[]string{file, file}, exitUsage, "", "unexpected argument"},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := typed(append([]string{"doctor"}, tt.args...)...)
			if status != tt.status || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("status %d, want %d\nstdout %s\nstderr %s", status, tt.status, stdout, stderr)
			}
			if name == "quiet" && strings.Contains(stdout, "\nok ") {
				t.Errorf("not quiet:\n%s", stdout)
			}
		})
	}
	status, stdout, _ := typed("doctor", "--json", file, "--socket", dir+"/none")
	var r doctor.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != 2 || r.File != file || r.Count(doctor.Fail) == 0 {
		t.Errorf("status %d, %v in %s", status, err, stdout)
	}
}
