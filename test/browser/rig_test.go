package browser

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var (
	sluiced  = flag.String("sluiced", "../../bin/sluiced", "the daemon")
	pictures = flag.String("pictures", "", "folder for the pictures; \"\" takes none")
	axe      = flag.String("axe", "", "axe.min.js of axe-core; \"\" leaves that part out")
)

const patience = 20 * time.Second

// eventually waits until what returns "".
func eventually(t *testing.T, what func() string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		why := what()
		if why == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatal(why)
		}
	}
}

// backend is an HTTP server that can be told what to answer, and closed.
type backend struct {
	at     string
	status atomic.Int32
	srv    *http.Server
}

func serve(t *testing.T, at string) *backend {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{at: at}
	b.status.Store(http.StatusOK)
	b.srv = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(b.status.Load()))
	})}
	go func() { _ = b.srv.Serve(l) }()
	t.Cleanup(func() { b.srv.Close() })
	return b
}

// daemon is a sluiced that observes.
type daemon struct {
	*testing.T
	dir, base string
	cmd       *exec.Cmd
}

const token = "a-token-for-the-browser-test"

// start runs the daemon with a configuration, in which LISTEN and TOKEN are replaced.
func start(t *testing.T, conf string) *daemon {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	d := &daemon{T: t, dir: t.TempDir(), base: "http://" + at}
	file := filepath.Join(d.dir, "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	conf = strings.NewReplacer("LISTEN", at, "TOKEN", file).Replace(conf)
	if err := os.WriteFile(filepath.Join(d.dir, "sluice.conf"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	d.run()
	t.Cleanup(d.kill)
	return d
}

func (d *daemon) run() {
	d.Helper()
	path, err := filepath.Abs(*sluiced)
	if err != nil {
		d.Fatal(err)
	}
	d.cmd = exec.Command(path, "--observe", "-f", "sluice.conf", "--socket", filepath.Join(d.dir, "s.sock"))
	d.cmd.Dir = d.dir
	if out := os.Getenv("SLUICED_LOG"); out != "" {
		d.cmd.Stderr = os.Stderr
	}
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		d.Fatalf("%v: make build", err)
	}
	eventually(d.T, func() string {
		r, err := http.Get(d.base + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return r.Status
		}
		return ""
	})
}

func (d *daemon) kill() {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		d.cmd = nil
	}
}

// tab is a page of the browser, with what went wrong in it.
type tab struct {
	*testing.T
	ctx context.Context
	mu  sync.Mutex
	// errors are the console's, foreign the requests to elsewhere.
	errors, foreign []string
}

var browser struct {
	once sync.Once
	ctx  context.Context
	err  error
}

// open makes a tab of the one browser.
func open(t *testing.T, base string) *tab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium: make test-browser installs it")
	}
	browser.once.Do(func() {
		opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("hide-scrollbars", true))
		alloc, _ := chromedp.NewExecAllocator(context.Background(), opts...)
		browser.ctx, _ = chromedp.NewContext(alloc)
		browser.err = chromedp.Do(browser.ctx)
	})
	if browser.err != nil {
		t.Fatalf("chromium: %v", browser.err)
	}
	ctx, cancel := chromedp.NewContext(browser.ctx)
	ctx, timeout := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(func() { timeout(); cancel() })
	b := &tab{T: t, ctx: ctx}
	b.must(chromedp.Do(ctx))
	b.must(chromedp.Listen(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch ev := ev.(type) {
		case *runtime.EventConsoleAPICalled:
			if ev.Type == "error" || ev.Type == "warning" {
				b.errors = append(b.errors, fmt.Sprint(ev.Type, " ", ev.Args))
			}
		case *runtime.EventExceptionThrown:
			b.errors = append(b.errors, fmt.Sprintf("%+v", ev.ExceptionDetails))
		case *log.EventEntryAdded:
			if ev.Entry.Level == "error" || ev.Entry.Level == "warning" {
				b.errors = append(b.errors, fmt.Sprintf("%+v", ev.Entry))
			}
		case *network.EventRequestWillBeSent:
			if u := ev.Request.URL; !strings.HasPrefix(u, base+"/") {
				b.foreign = append(b.foreign, u)
			}
		}
	}))
	command(b, log.Enable, cdp.Empty{})
	command(b, network.Enable, network.EnableParams{})
	b.do(chromedp.EmulateViewport(1360, 1120))
	return b
}

func (b *tab) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	b.must(chromedp.Do(b.ctx, actions...))
}

// command is one of the protocol itself.
func command[P, R any](b *tab, c cdp.Command[P, R], params P) {
	b.Helper()
	_, err := chromedp.Call(b.ctx, c, params)
	b.must(err)
}

// script evaluates something for its effect.
func (b *tab) script(text string) { b.Helper(); b.do(chromedp.Evaluate[chromedp.Void](text)) }

// js evaluates an expression.
func js[T any](b *tab, expression string) (value T) {
	b.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	b.must(err)
	return value
}

// until waits for an expression to be true.
func (b *tab) until(expression string) {
	b.Helper()
	eventually(b.T, func() string {
		if ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression)); err != nil || !ok {
			return fmt.Sprintf("not true: %s %v", expression, err)
		}
		return ""
	})
}

// clean reports what went wrong in the tab so far.
func (b *tab) clean() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.errors {
		b.Errorf("console: %s", e)
	}
	for _, u := range b.foreign {
		b.Errorf("a request to elsewhere: %s", u)
	}
}

// picture keeps what the tab shows.
func (b *tab) picture(name string) {
	b.Helper()
	if *pictures == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	b.must(err)
	png, err = smaller(png)
	b.must(err)
	if len(png) > 200_000 {
		b.Errorf("%s has %d bytes, 200,000 are the most", name, len(png))
	}
	if err := os.WriteFile(filepath.Join(*pictures, name), png, 0o644); err != nil {
		b.Fatal(err)
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if browser.ctx != nil {
		_ = chromedp.Cancel(browser.ctx)
	}
	os.Exit(code)
}
