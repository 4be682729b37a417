package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
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
	l := onATerminal(t, serve(t, snapshot(false), engine.Reload{}), 80, 24)
	await, key := func(text string) { t.Helper(); l.await(text) }, l.key
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
	resize(t, l.master, 160, 24)
	if err := l.cmd.Process.Signal(syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	await("TCP_CHECK: refused")
	key("\r")
	await("any key goes back")
	key("x")
	await("by pool")
	l.quit()
}

// live is top on a terminal of its own.
type live struct {
	*testing.T
	slave  *os.File
	before *unix.Termios
	cmd    *exec.Cmd
	master *os.File
	seen   bytes.Buffer
}

func onATerminal(t *testing.T, socket string, width, height uint16) *live {
	t.Helper()
	master, slave := terminalPair(t)
	resize(t, master, width, height)
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	l := &live{T: t, slave: slave, before: before, master: master, cmd: exec.Command(os.Args[0], "top", "-d", "100ms", "--socket", socket)}
	l.cmd.Env = append(os.Environ(), "SLUICE_TEST_RUN=1", "TERM=xterm", "NO_COLOR=")
	l.cmd.Stdin, l.cmd.Stdout, l.cmd.Stderr = slave, slave, slave
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.cmd.Process.Kill() })
	return l
}

// await reads until a text came, and returns what did.
func (l *live) await(text string) string {
	l.Helper()
	b := make([]byte, 4096)
	for !bytes.Contains(l.seen.Bytes(), []byte(text)) {
		if err := l.master.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			l.Fatal(err)
		}
		n, err := l.master.Read(b)
		if err != nil {
			l.Fatalf("%v while waiting for %q in\n%q", err, text, l.seen.String())
		}
		l.seen.Write(b[:n])
	}
	got := l.seen.String()
	l.seen.Reset()
	return got
}

func (l *live) key(text string) {
	l.Helper()
	if _, err := l.master.WriteString(text); err != nil {
		l.Fatal(err)
	}
}

// quit ends it; the terminal is then as it was before.
func (l *live) quit() {
	l.Helper()
	l.key("q")
	l.await(leaveScreen)
	if err := l.cmd.Wait(); err != nil {
		l.Error(err)
	}
	after, err := unix.IoctlGetTermios(int(l.slave.Fd()), unix.TCGETS)
	if err != nil || *after != *l.before {
		l.Errorf("the terminal is not as it was: %+v, %+v, %v", l.before, after, err)
	}
}

// TestTopExplains: Enter says why the selected server is as it is, in as many lines as
// the terminal has.
func TestTopExplains(t *testing.T) {
	_, socket := observer(t, `virtual_server 192.0.2.1 80 {
 #sluice label web
 warmup 0
 delay_loop 1
 lvs_sched rr
 lvs_method NAT
 protocol TCP
 real_server 127.0.0.1 1 { TCP_CHECK { retry 0
 connect_timeout 1 } }
}
`)
	awaitStatus(t, socket, func(s *engine.Snapshot) bool {
		return s.VirtualServers[0].RealServers[0].State == engine.StateDown
	})
	l := onATerminal(t, socket, 160, 50)
	l.await("down")
	l.key("\r")
	if got := l.await("any key goes back"); !strings.Contains(got, "It is out for") || !strings.Contains(got, "ECONNREFUSED") {
		t.Errorf("%q", got)
	}
	resize(t, l.master, 60, 8)
	if err := l.cmd.Process.Signal(syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	l.seen.Reset()
	if got := l.await("more lines: sluice explain"); strings.Count(got[strings.LastIndex(got, "\x1b[H"):], "\r\n") > 7 {
		t.Errorf("more than the terminal has: %q", got)
	}
	l.key("x")
	l.await("by trouble")
	l.quit()
}

func TestFitting(t *testing.T) {
	lines := []string{"a", strings.Repeat("ü", 50), "c", "d"}
	for height, want := range map[int]string{
		10: "a|üüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüü…|c|d|any key goes back",
		5:  "a|üüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüü…|c|d|any key goes back",
		3:  "a|üüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüü…|any key goes back; 2 more lines: sluice…",
		0:  "any key goes back; 4 more lines: sluice…",
	} {
		if got := strings.Join(fitting(lines, 40, height), "|"); got != want {
			t.Errorf("%d lines: %s\nwant %s", height, got, want)
		}
	}
	if len(lines) != 4 || lines[2] != "c" {
		t.Errorf("the text was changed: %q", lines)
	}
}

// TestTopUnderChurn: servers come, go and change with every look while keys are pressed,
// and the daemon goes in between.
func TestTopUnderChurn(t *testing.T) {
	var looks atomic.Int64
	socket := serveEach(t, func() *engine.Snapshot {
		n := int(looks.Add(1))
		s := snapshot(n%3 > 0)
		vs := &s.VirtualServers[0]
		template := vs.RealServers[0]
		vs.RealServers = nil
		for i := range n * 7 % 40 {
			rs := template
			rs.Address = fmt.Sprintf("10.0.%d.%d:80", n%5, i)
			if (i+n)%2 == 0 {
				rs.State, rs.Reason = engine.StateUp, "all checks pass"
			}
			vs.RealServers = append(vs.RealServers, rs)
		}
		if n%4 == 0 {
			s.VirtualServers = nil
		}
		return s
	})
	l := onATerminal(t, socket, 80, 24)
	for i, k := range []string{"G", "j", "\r", "x", "s", "\x1b[B", "\x1b[6~", "/0.3", "\r", "k", "\r", "x", "/", "\x1b", "r", " ", "\x1b[5~", "g"} {
		l.await("\x1b[H")
		l.key(k)
		if i%5 == 0 {
			resize(t, l.master, uint16(40+i*10), uint16(5+i))
			if err := l.cmd.Process.Signal(syscall.SIGWINCH); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen := looks.Load()
	for looks.Load() < seen+10 {
		l.await("\x1b[H")
	}
	l.quit()
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
