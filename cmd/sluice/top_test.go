package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/engine"
)

func TestMain(m *testing.M) {
	if os.Getenv("SLUICE_TEST_RUN") != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) // the child of TestTopOnATerminal
	}
	os.Exit(m.Run())
}

func TestTopOnce(t *testing.T) {
	status, stdout, _ := typed("top", "--socket", serve(t, snapshot(false), engine.Reload{}))
	if status != exitOK || !strings.Contains(stdout, "0 of 1 pools have quorum, 1 down") || !strings.Contains(stdout, "10.0.0.1:80") || strings.Contains(stdout, "\x1b") {
		t.Errorf("status %d\n%s", status, stdout)
	}
	if status, _, stderr := typed("top", "--socket", "/nonexistent/s.sock"); status != exitUnreachable || stderr == "" {
		t.Errorf("status %d, %s", status, stderr)
	}
	if status, _, _ := typed("top", "-d", "1ms"); status != exitUsage {
		t.Errorf("status %d", status)
	}
}

// TestTopOnATerminal: 80 columns, keys, a size that changes, and a terminal that is as
// it was before.
func TestTopOnATerminal(t *testing.T) {
	master, slave := terminalPair(t)
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	resize(t, master, 80, 24)
	cmd := exec.Command(os.Args[0], "top", "-d", "100ms", "--socket", serve(t, snapshot(false), engine.Reload{}))
	cmd.Env = append(os.Environ(), "SLUICE_TEST_RUN=1", "TERM=xterm", "NO_COLOR=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	var seen bytes.Buffer
	await := func(text string) {
		t.Helper()
		b := make([]byte, 4096)
		for !bytes.Contains(seen.Bytes(), []byte(text)) {
			if err := master.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			n, err := master.Read(b)
			if err != nil {
				t.Fatalf("%v while waiting for %q in\n%q", err, text, seen.String())
			}
			seen.Write(b[:n])
		}
		seen.Reset()
	}
	key := func(text string) {
		t.Helper()
		if _, err := master.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	await("by trouble")
	key("s")
	await("by pool")
	key("/zzz")
	await("filter: zzz_")
	key("\x1b")
	await("by pool: 1 of 1")
	key("?")
	await("any key goes back")
	key("x")
	await("by pool: 1 of 1")
	resize(t, master, 160, 24)
	if err := cmd.Process.Signal(syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	await("TCP_CHECK: refused")
	key("\r")
	await("any key goes back")
	key("x")
	await("by pool")
	key("q")
	await(leaveScreen)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %+v, %+v, %v", before, after, err)
	}
}

// terminalPair opens a pseudo-terminal (pty(7)).
func terminalPair(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	raw, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if cerr := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

func resize(t *testing.T, master *os.File, width, height uint16) {
	t.Helper()
	raw, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width})
	}); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
}
