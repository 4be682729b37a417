package script

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
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
