package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readUnit returns the systemd unit's settings; a repeated one keeps its values
// in order.
func readUnit(t *testing.T) (text string, settings map[string][]string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "configs/sluiced.service"))
	if err != nil {
		t.Fatal(err)
	}
	settings = map[string][]string{}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			settings[name] = append(settings[name], value)
		}
	}
	return string(b), settings
}

// What the daemon relies on, and what would break it, must not be changed in
// passing.
func TestUnitKeepsWhatTheDaemonNeeds(t *testing.T) {
	t.Parallel()
	_, got := readUnit(t)
	for name, want := range map[string][]string{
		"Type":                  {"notify"},
		"ExecReload":            {"/bin/sh -c 'kill -HUP $MAINPID'"},
		"Restart":               {"on-failure"},
		"CapabilityBoundingSet": {"CAP_NET_ADMIN CAP_NET_RAW CAP_SETUID CAP_SETGID CAP_KILL"},
		"AmbientCapabilities":   {"CAP_NET_ADMIN CAP_NET_RAW CAP_SETUID CAP_SETGID CAP_KILL"},
		"ProtectSystem":         {"strict"},
		"RuntimeDirectory":      {"sluice"},
		"StateDirectory":        {"sluice"}, // --state-dir
		"StateDirectoryMode":    {"0700"},
		// A handover, however the daemon is started otherwise.
		"RestartForceExitStatus": {"75"},
		"SuccessExitStatus":      {"75"},
		"ProtectKernelTunables":  nil, // the daemon writes below /proc/sys/net
		"PrivateTmp":             nil, // a track file may be there
		"PrivateNetwork":         nil,
		"User":                   nil, // the control socket is root's
	} {
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestUnitIsValid(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: apt-get install systemd")
	}
	text, _ := readUnit(t)
	// It wants to see the program, which is not installed here.
	text = strings.ReplaceAll(text, "/usr/local/sbin/sluiced", "/bin/true")
	text = strings.ReplaceAll(text, "/sbin/modprobe", "/bin/true")
	path := filepath.Join(t.TempDir(), "sluiced.service")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", path).CombinedOutput(); err != nil || strings.Contains(string(out), "sluiced.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
