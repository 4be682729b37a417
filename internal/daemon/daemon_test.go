package daemon

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
)

// process is a whole daemon in observe mode, in this process: everything but the
// kernel's table is real.
type process struct {
	*testing.T
	file, socket string
	out          lockedBuffer
	done         chan int
	cancel       context.CancelFunc
}

type lockedBuffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{}
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
	}
	l.changed = make(chan struct{})
	return l.b.Write(p)
}

// await returns the text so far once it matches, in more than the first skip bytes.
func (l *lockedBuffer) await(t *testing.T, skip int, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	timeout := time.After(20 * time.Second)
	for {
		l.mu.Lock()
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		text, changed := l.b.String(), l.changed
		l.mu.Unlock()
		if re.MatchString(text[min(skip, len(text)):]) {
			return text
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("no %q in the log:\n%s", pattern, text)
		}
	}
}

// backend listens on loopback and returns its port.
func backend(t *testing.T) (port int, ln net.Listener) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return ln.Addr().(*net.TCPAddr).Port, ln
}

func confText(ports ...int) string {
	s := "virtual_server 192.0.2.10 80 {\n delay_loop 1\n warmup 0\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n"
	for _, p := range ports {
		s += fmt.Sprintf(" real_server 127.0.0.1 %d {\n  TCP_CHECK {\n   connect_timeout 1\n   retry 0\n  }\n }\n", p)
	}
	return s + "}\n"
}

func launch(t *testing.T, text string, change func(*Options)) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{T: t, file: filepath.Join(dir, "test.conf"), socket: filepath.Join(dir, "s.sock"), done: make(chan int, 1)}
	p.write(text)
	log, err := NewLogger(&p.out, "text", slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{File: p.file, Socket: p.socket, Observe: true, Log: log}
	if change != nil {
		change(&opts)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.cancel = cancel
	go func() { p.done <- Run(ctx, opts) }()
	return p
}

func (p *process) write(text string) {
	p.Helper()
	if err := os.WriteFile(p.file, []byte(text), 0o644); err != nil {
		p.Fatal(err)
	}
}

func (p *process) stop() int {
	p.cancel()
	return <-p.done
}

func (p *process) status() *engine.Snapshot {
	p.Helper()
	s, err := control.NewClient(p.socket).Status(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// shows waits until status gives the first real server the state: it is published
// at the end of the turn whose log lines may be read before that.
func (p *process) shows(state engine.State) *engine.Snapshot {
	p.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		s := p.status()
		if rs := s.VirtualServers[0].RealServers[0]; rs.State == state {
			return s
		} else if time.Now().After(end) {
			p.Fatalf("real server %+v, want state %s", rs, state)
		}
	}
}

func (p *process) mark() int {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return p.out.b.Len()
}

func TestRunCheckReloadStop(t *testing.T) {
	one, ln := backend(t)
	two, _ := backend(t)
	p := launch(t, confText(one, two), nil)
	p.out.await(t, 0, "Ready")
	p.out.await(t, 0, fmt.Sprintf(`Check passed.*:%d`, two))

	at := p.mark()
	ln.Close()
	p.out.await(t, at, fmt.Sprintf(`Removing service \[127.0.0.1\]:tcp:%d from VS`, one))
	if s := p.shows(engine.StateDown); !s.VirtualServers[0].QuorumUp {
		t.Errorf("status %+v", s.VirtualServers[0])
	}

	// A reload over the socket and one by signal are the same thing.
	p.write(confText(two))
	r, err := control.NewClient(p.socket).Reload(t.Context())
	if err != nil || !r.OK {
		t.Fatalf("reload: %+v, %v", r, err)
	}
	if s := p.status(); s.Generation != 2 || len(s.VirtualServers[0].RealServers) != 1 {
		t.Errorf("after the reload: generation %d, %+v", s.Generation, s.VirtualServers[0].RealServers)
	}
	at = p.mark()
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.out.await(t, at, "Reloaded")
	at = p.mark()
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	p.out.await(t, at, "Real server")
	if status := p.stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if _, err := os.Stat(p.socket); err == nil {
		t.Error("the socket is still there")
	}
}

// TestP21ReloadOfABrokenFile: whatever is wrong with it, the old configuration
// goes on, and log and status say where.
func TestP21ReloadOfABrokenFile(t *testing.T) {
	port, _ := backend(t)
	good := confText(port)
	p := launch(t, good, nil)
	p.out.await(t, 0, "Ready")
	for name, text := range map[string]string{
		"missing brace":      strings.TrimSuffix(good, "}\n"),
		"missing parameter":  strings.Replace(good, "connect_timeout 1", "connect_port", 1),
		"unknown word":       strings.Replace(good, "delay_loop", "delay_lop", 1),
		"regex":              strings.Replace(good, "TCP_CHECK {", "HTTP_GET {\n url {\n path /\n regex \"(a(?R)?b)\"\n }", 1),
		"namespace changed":  "net_namespace elsewhere\n" + good,
		"binary":             "\x00\x01\x02\xff" + good,
		"empty block opened": good + "virtual_server 192.0.2.11 80 {\n",
	} {
		p.write(text)
		r, err := control.NewClient(p.socket).Reload(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s := p.status()
		if r.OK || s.Generation != 1 || s.Reload.OK || s.Reload.Error != r.Error {
			t.Errorf("%s: reload %+v, generation %d, status %+v", name, r, s.Generation, s.Reload)
		}
		if name != "namespace changed" && !strings.Contains(r.Error, "test.conf:") {
			t.Errorf("%s: the refusal does not say where: %s", name, r.Error)
		}
	}
	if err := os.Remove(p.file); err != nil {
		t.Fatal(err)
	}
	if r, _ := control.NewClient(p.socket).Reload(t.Context()); r.OK {
		t.Error("a missing file was taken for an empty configuration")
	}
	p.write(good)
	if r, _ := control.NewClient(p.socket).Reload(t.Context()); !r.OK {
		t.Errorf("a good file after all that: %+v", r)
	}
	p.stop()
}

// TestReloadKeepsOldErrors: an error that the running file has too is no reason to
// refuse the next one, on whatever line it stands.
func TestReloadKeepsOldErrors(t *testing.T) {
	port, _ := backend(t)
	p := launch(t, confText(port)+"virtual_sever 192.0.2.11 80 {\n}\n", nil)
	p.out.await(t, 0, "Ready")
	p.write("\n\n" + confText(port) + "virtual_sever 192.0.2.11 80 {\n}\n")
	if r, err := control.NewClient(p.socket).Reload(t.Context()); err != nil || !r.OK {
		t.Errorf("%+v, %v", r, err)
	}
	p.stop()
}

func TestStartRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		text   string
		change func(*Options)
		status int
	}{
		"unclosed block":    {"virtual_server 192.0.2.10 80 {\n", nil, 5},
		"missing parameter": {strings.Replace(confText(80), "connect_timeout 1", "connect_port", 1), nil, 2},
		"missing file":      {"", func(o *Options) { o.File += ".none" }, 4},
		"strict":            {"nonsense\n" + confText(80), func(o *Options) { o.Strict = true }, 5},
		"no such namespace": {"net_namespace no-such-namespace\n" + confText(80), nil, 1},
		"no socket":         {confText(80), func(o *Options) { o.Socket = o.File + "/s.sock" }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := launch(t, tt.text, tt.change)
			select {
			case status := <-p.done:
				if status != tt.status {
					t.Errorf("exit status %d, want %d:\n%s", status, tt.status, p.out.b.String())
				}
			case <-time.After(20 * time.Second):
				t.Fatal("it runs")
			}
			p.cancel()
		})
	}
}

// TestSecondDaemonIsRefused: two writers of one table would fight.
func TestSecondDaemonIsRefused(t *testing.T) {
	port, _ := backend(t)
	p := launch(t, confText(port), nil)
	p.out.await(t, 0, "Ready")
	q := launch(t, confText(port), func(o *Options) { o.Socket = p.socket })
	if status := <-q.done; status != exitFailed {
		t.Errorf("exit status %d", status)
	}
	if s := p.status(); s.Generation != 1 {
		t.Error("the first one no longer answers")
	}
	p.stop()
}

// TestTrackFileEndToEnd: a file changes a weight, its removal restores it.
func TestTrackFileEndToEnd(t *testing.T) {
	port, _ := backend(t)
	dir := t.TempDir()
	text := "track_file m {\n file " + dir + "/m\n weight 1\n}\n" +
		strings.Replace(confText(port), "TCP_CHECK {", "track_file m\n TCP_CHECK {", 1)
	p := launch(t, text, nil)
	p.out.await(t, 0, "Ready")
	at := p.mark()
	if err := os.WriteFile(dir+"/m", []byte("-7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.out.await(t, at, "Changing weight.* to 0")
	p.shows(engine.StateMaintenance)
	at = p.mark()
	if err := os.Remove(dir + "/m"); err != nil {
		t.Fatal(err)
	}
	p.out.await(t, at, "Changing weight.* to 1")
	p.stop()
}

// TestR11ReloadsInABurst: 20 SIGHUPs at once over 30,000 real servers are two
// reloads, the one that runs and one more for what came meanwhile, and a check that
// fails among them is heard.
func TestR11ReloadsInABurst(t *testing.T) {
	port, ln := backend(t)
	var b strings.Builder
	b.WriteString(confText(port))
	for v := range 300 {
		fmt.Fprintf(&b, "virtual_server 192.0.2.%d %d {\n delay_loop 3600\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n", 20+v%200, 1000+v)
		for r := range 100 {
			fmt.Fprintf(&b, " real_server 10.0.%d.%d 80 {\n }\n", v%250, r+1)
		}
		b.WriteString("}\n")
	}
	p := launch(t, b.String(), nil)
	p.out.await(t, 0, "Ready.*real_servers=30001")
	p.shows(engine.StateUp)
	from := p.mark()
	ln.Close()
	for i := range 20 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			p.out.await(t, from, "Reloading")
		}
	}
	p.out.await(t, from, "(?s)Reloaded.*Reloaded")
	p.out.await(t, from, "Removing service .*:"+fmt.Sprint(port))
	if status := p.stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	text := p.out.await(t, from, "Stopped")[from:]
	if n := strings.Count(text, "msg=Reloading") + strings.Count(text, " INFO Reloading"); n != 2 {
		t.Errorf("%d reloads\n%s", n, text)
	}
}
