package daemon

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
)

func TestOverrule(t *testing.T) {
	cfg := func() *config.Config {
		return &config.Config{Global: config.Global{
			OnStop: config.OnStopRemove, LVSFlushOnStop: "all", NetNamespace: "blue", Process: config.Process{Umask: 0o27, UmaskSet: true},
		}}
	}
	c := cfg()
	CommandLine{}.overrule(c)
	if g := c.Global; g.OnStop != config.OnStopRemove || g.LVSFlushOnStop != "all" || g.NetNamespace != "blue" || g.Process.Umask != 0o27 {
		t.Errorf("nothing on the command line makes %+v", g)
	}
	CommandLine{DontRelease: true, NetNamespace: "green", Umask: new(uint32(0))}.overrule(c)
	if g := c.Global; g.OnStop != config.OnStopKeep || g.LVSFlushOnStop != "" || g.NetNamespace != "green" || g.Process.Umask != 0 || !g.Process.UmaskSet {
		t.Errorf("overruled: %+v", g)
	}
	CommandLine{DontRelease: true}.overrule(nil) // a refused configuration
}

func TestAddressChanges(t *testing.T) {
	set := func(text string) map[netip.Addr]bool {
		m := map[netip.Addr]bool{}
		for a := range strings.FieldsSeq(text) {
			m[netip.MustParseAddr(a)] = true
		}
		return m
	}
	got := addressChanges(set("192.0.2.1 192.0.2.3 ::1"), set("2001:db8::1 192.0.2.3 192.0.2.2"))
	want := []string{"Address 192.0.2.1 gone", "Address ::1 gone", "Address 192.0.2.2 added", "Address 2001:db8::1 added"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestRunCommandLine: a daemon with all of it.
func TestRunCommandLine(t *testing.T) {
	old := unix.Umask(0o22)
	defer unix.Umask(old)
	pid := filepath.Join(t.TempDir(), "sluiced.pid")
	var dumped lockedBuffer
	port, _ := backend(t)
	p := launch(t, "global_defs {\n umask 0077\n}\n"+confText(port), func(o *Options) {
		o.PIDFiles, o.Dump, o.IgnoreInterrupt, o.LogAddresses = []string{pid}, &dumped, true, true
		o.Umask = new(uint32(0o37))
	})
	p.out.await(t, 0, "Ready")
	if got := read(t, pid); got != strconv.Itoa(os.Getpid())+"\n" {
		t.Errorf("the pid file holds %q", got)
	}
	dumped.await(t, 0, `(?s)umask +0037.*virtual_server 192.0.2.10 80`)
	if now := unix.Umask(0o37); now != 0o37 {
		t.Errorf("umask %04o", now)
	}
	// An interrupt does nothing, and does not keep a reload from being heard.
	at := p.mark()
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	text := p.out.await(t, at, "Reloaded")
	if strings.Contains(text, "Stopping") {
		t.Errorf("an interrupt stops it:\n%s", text)
	}

	// A second one with the same pid file does not start.
	q := launch(t, confText(port), func(o *Options) { o.PIDFiles = []string{pid} })
	if status := <-q.done; status != exitFailed {
		t.Errorf("a second daemon: status %d", status)
	}
	q.out.await(t, 0, "Not starting.*is held by process "+strconv.Itoa(os.Getpid()))

	if status := p.stop(); status != 0 {
		t.Errorf("status %d", status)
	}
	if _, err := os.Stat(pid); err == nil {
		t.Error("the pid file is left")
	}
	if strings.Contains(p.out.await(t, 0, "Stopped"), "has failed") {
		t.Error("a part has failed")
	}
}
