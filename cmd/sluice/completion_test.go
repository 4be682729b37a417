package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/engine"
)

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		status, stdout, _ := typed("completion", shell)
		if status != exitOK || !strings.Contains(stdout, "sluice") {
			t.Errorf("%s: status %d, %d bytes", shell, status, len(stdout))
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		cmd := exec.Command(path, "-n", "/dev/stdin")
		cmd.Stdin = strings.NewReader(stdout)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s does not read its script: %v\n%s", shell, err, out)
		}
	}
	if status, _, stderr := typed("completion", "tcsh"); status != exitUsage || !strings.Contains(stderr, "bash, zsh or fish") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// TestNamesAreCompleted: with what the daemon has; without a daemon there is nothing,
// and no message in somebody's prompt.
func TestNamesAreCompleted(t *testing.T) {
	s := snapshot(true)
	s.VirtualServers[0].Label = "web"
	s.VirtualServers[0].Services = []engine.Service{{Name: "192.0.2.1:80/tcp"}}
	s.VirtualServers[0].RealServers[0].Label = "web1"
	socket := serve(t, s, engine.Reload{})
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"verb":    {[]string{"dra"}, "drain\ttake a real server out"},
		"virtual": {[]string{"drain", ""}, "192.0.2.1:80\tweb\n"},
		"real":    {[]string{"drain", "192.0.2.1:80", ""}, "10.0.0.1:80\tweb1 down\n"},
		"label":   {[]string{"undrain", "web", ""}, "10.0.0.1:80\t"},
		"status":  {[]string{"status", ""}, "192.0.2.1:80\tweb\n"},
		"flag":    {[]string{"drain", "--rea"}, "--reason"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"__complete", "--socket", socket}, tt.args...)
			if status, stdout, _ := typed(args...); status != exitOK || !strings.Contains(stdout, tt.want) {
				t.Errorf("status %d, without %q:\n%s", status, tt.want, stdout)
			}
		})
	}
	if _, stdout, _ := typed("__complete", "--socket", "/nonexistent/s.sock", "drain", ""); stdout != ":4\n" {
		t.Errorf("without a daemon: %q", stdout)
	}
}
