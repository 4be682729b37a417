package daemon

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// TestStartupAndShutdownScripts: one before the services, one after them; one that
// fails or hangs is logged and holds nothing up for longer than its timeout.
func TestStartupAndShutdownScripts(t *testing.T) {
	dir := t.TempDir()
	path := func(name, body string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	told := filepath.Join(dir, "told")
	// Without virtual servers and sysctls this machine's table is left alone.
	text := fmt.Sprintf("global_defs {\n manage_sysctls off\n startup_script \"%s a b\"\n shutdown_script %s\n shutdown_script_timeout 1\n}\n",
		path("up.sh", "echo up $1$2 >>"+told), path("down.sh", "echo down >>"+told+"\nexec sleep 100"))
	p := launch(t, text, func(o *Options) { o.Observe = false })
	got := p.out.await(t, 0, "Ready")
	if i, j := strings.Index(got, "Script ended"), strings.Index(got, "Ready"); i < 0 || i > j {
		t.Errorf("not before it was ready:\n%s", got)
	}
	if status := p.stop(); status != exitOK {
		t.Errorf("exit status %d", status)
	}
	p.out.await(t, 0, "(?s)Script did not end in time and was killed.*timeout=1s.*Stopped")
	if b, _ := os.ReadFile(told); string(b) != "up ab\ndown\n" {
		t.Errorf("told %q", b)
	}
}

// TestX02ScriptsThatCannotRunAreFound: when the file is checked, with the script's
// use and what happens, and as whom the others run. It is no error of the file.
func TestX02ScriptsThatCannotRunAreFound(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "test.conf")
	script := filepath.Join(dir, "not-executable")
	text := `global_defs {
 script_user root
 enable_script_security
}
virtual_server 192.0.2.10 80 {
 lvs_sched rr
 lvs_method NAT
 protocol TCP
 quorum_up /nowhere/up.sh
 real_server 10.0.0.1 80 {
  notify_down /bin/true
  MISC_CHECK {
   misc_path ` + script + `
  }
 }
 real_server 10.0.0.2 80 {
  MISC_CHECK {
   misc_path "< /etc/passwd"
  }
 }
}
`
	for name, content := range map[string]string{file: text, script: "#!/bin/sh\n"} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if status := Check(&out, file, CheckOptions{Summary: true}); status != 0 {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{
		"test.conf:9:2: warning: quorum_up cannot run: /nowhere/up.sh does not exist: there is no /nowhere [W191]",
		"misc_path of real_server 10.0.0.1:80 cannot run:", "its last verdict stays",
		"scripts run as user root (uid 0), group root (gid 0)",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "10.0.0.2:80 cannot run") {
		t.Errorf("the test of a file is found wanting:\n%s", out.String())
	}
}

// TestX02WhomScriptsRunAs: with a file that is checked every user is told, and what for.
func TestX02WhomScriptsRunAs(t *testing.T) {
	testkit.NeedRoot(t)
	file := filepath.Join(t.TempDir(), "test.conf")
	text := `global_defs {
 script_user daemon
 enable_script_security
}
virtual_server 192.0.2.10 80 {
 lvs_sched rr
 lvs_method NAT
 protocol TCP
 quorum_up "/usr/bin/true" root
 real_server 10.0.0.1 80 {
  notify_down /usr/bin/true
  MISC_CHECK {
   misc_path "/usr/bin/true s3cret"
   user nobody
  }
 }
}
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if status := Check(&out, file, CheckOptions{Summary: true}); status != 0 {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{"user root (uid 0)", "user daemon (uid 1)", "user nobody (uid 65534)"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("no %q, or not once, in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "s3cret") {
		t.Errorf("an argument is told:\n%s", out.String())
	}
}

// TestMiscCheckEndToEnd: a script decides about its server, and one that cannot be
// run leaves it as it was, with the reason in the status.
func TestMiscCheckEndToEnd(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "check.sh")
	write := func(body string) {
		t.Helper()
		if err := os.WriteFile(script+".new", []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(script+".new", script); err != nil {
			t.Fatal(err)
		}
	}
	write("exit 0")
	p := launch(t, "virtual_server 192.0.2.10 80 {\n delay_loop 1\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n warmup 0\n real_server 10.0.0.1 80 {\n  MISC_CHECK {\n   misc_path "+script+"\n   misc_timeout 10\n  }\n }\n}\n", nil)
	p.out.await(t, 0, "Ready")
	p.shows(engine.StateUp)
	write("echo the database is gone; exit 3")
	s := p.shows(engine.StateDown)
	if r := s.VirtualServers[0].RealServers[0].Reason; !strings.Contains(r, "exit status 3") || !strings.Contains(r, "the database is gone") {
		t.Errorf("reason %q", r)
	}
	if err := os.Remove(script); err != nil {
		t.Fatal(err)
	}
	p.out.await(t, 0, "Check could not run, the last verdict stays")
	p.shows(engine.StateDown)
	write("exit 0")
	p.shows(engine.StateUp)
	if status := p.stop(); status != exitOK {
		t.Errorf("exit status %d", status)
	}
}

// TestSecurityIsOfScriptsThatExist: without enable_script_security the status of a
// test is 6 if a script is there, and that of nothing to report if none is.
func TestSecurityIsOfScriptsThatExist(t *testing.T) {
	for script, want := range map[string]int{"/bin/true": 6, "true": 6, "/nowhere/at-all": 0, "no-such-program": 0} {
		file := filepath.Join(t.TempDir(), "test.conf")
		text := "virtual_server 192.0.2.10 80 {\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n quorum_up " + script + "\n real_server 10.0.0.1 80 {\n }\n}\n"
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if status := Check(&out, file, CheckOptions{}); status != want {
			t.Errorf("%s: status %d, want %d\n%s", script, status, want, out.String())
		}
	}
}

func TestScriptUserThatDoesNotExist(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.conf")
	if err := os.WriteFile(file, []byte("global_defs {\n script_user no-such-user\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if status := Check(&out, file, CheckOptions{}); status != 5 || !strings.Contains(out.String(), "test.conf:2:2: warning: script_user cannot be used: ") {
		t.Errorf("status %d\n%s", status, out.String())
	}
}
