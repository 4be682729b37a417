package script

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestKeepVariables(t *testing.T) {
	got := keepVariables([]string{
		"PATH=/bin", "IFS=x", "LD_PRELOAD=/evil.so", "LD_LIBRARY_PATH=/evil", "NOTIFY_SOCKET=/s", "WATCHDOG_USEC=1",
		"WATCHDOG_PID=1", "SLUICED_NET_NAMESPACE=x", "SLUICE_RS=stale", "LANG=C", "LD_PRELOAD_X=kept", "IFSX=kept",
	})
	if want := []string{"PATH=/bin", "LANG=C", "LD_PRELOAD_X=kept", "IFSX=kept"}; !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
}

func TestMarkOpenFiles(t *testing.T) {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	markOpenFiles()
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
	if flags, err := unix.FcntlInt(1, unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
		t.Errorf("standard output: flags %#x, %v", flags, err)
	}
}

// TestIgnoredSignalsAreReset: what the daemon was started with ignored does its
// work in a script again.
func TestIgnoredSignalsAreReset(t *testing.T) {
	if s := os.Getenv("SCRIPT_TEST_IGNORED"); s != "" {
		res := Run(t.Context(), Command{Script: command(s)})
		t.Logf("script: %s %v", res.Output, res.Err)
		return
	}
	s := testkit.NewRoom(t).Script("s", "grep SigIgn /proc/self/status")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command("/bin/sh", "-c", "trap '' HUP INT TSTP TTOU USR2; grep SigIgn /proc/self/status; exec "+self+" -test.v -test.run='^TestIgnoredSignalsAreReset$'")
	daemon.Env = append(os.Environ(), "SCRIPT_TEST_IGNORED="+s)
	out, err := daemon.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	before, after, _ := strings.Cut(string(out), "=== RUN")
	// Real-time signals, from bit 31 on, are what whoever runs the tests left them.
	const standard, ignored = 1<<31 - 1, 0x280803
	if got := mask(t, before) & standard; got&ignored != ignored {
		t.Errorf("the signals were not ignored to begin with: %#x", got)
	}
	if got := mask(t, after) & standard; got != 0 || !strings.Contains(after, "<nil>") {
		t.Errorf("a script ignores signals: %#x\n%s", got, after)
	}
}

// mask reads the first SigIgn line.
func mask(t *testing.T, text string) uint64 {
	t.Helper()
	_, hex, found := strings.Cut(text, "SigIgn:\t")
	m, err := strconv.ParseUint(hex[:min(16, len(hex))], 16, 64)
	if !found || err != nil {
		t.Fatalf("no signal mask in %q", text)
	}
	return m
}

func TestIgnored(t *testing.T) {
	for text, want := range map[string][]os.Signal{
		"":                                      nil,
		"Name:\tx\nSigIgn:\t0000000000000000\n": nil,
		"Name:\tx\nSigIgn:\t0000000000000003\nSigCgt:\tf\n": {syscall.SIGHUP, syscall.SIGINT},
		"Name:\tx\nSigIgn:\tffffffff80000000\n":             nil, // real-time signals
		"Name:\tx\nSigIgn:\tnonsense\n":                     nil,
		"Name:\tx\nSigIgn:\t40000000":                       {syscall.SIGSYS},
	} {
		if got := ignored([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
