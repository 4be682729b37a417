package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-lb/sluice/internal/engine"
)

// asked is what the child of TestRights does: it asks for the status and for a reload.
func asked(socket string) {
	c := NewClient(socket)
	_, err := c.Status(context.Background())
	fmt.Printf("status: %v, permission %t\n", err, errors.Is(err, fs.ErrPermission))
	_, err = c.Reload(context.Background())
	fmt.Printf("reload: %v, permission %t\n", err, errors.Is(err, fs.ErrPermission))
}

const (
	mayAsk    = "permission denied: user nobody may ask nothing here: that is for root"
	mayChange = "permission denied: user nobody may change nothing here: that is for root"
)

func TestRights(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("other users can be played by root alone")
	}
	write, read := &Group{"lbadmins", 61001}, &Group{"lbview", 61002}
	const good = "<nil>, permission false"
	for name, tt := range map[string]struct {
		access         Access
		uid, gid       uint32
		groups         []uint32
		status, reload string
	}{
		"a stranger":             {Access{write, read}, 65534, 65534, nil, mayAsk + " and group lbadmins and group lbview; use sudo, permission true", mayAsk},
		"a reader":               {Access{write, read}, 65534, 65534, []uint32{1, 61002, 61003}, good, mayChange + " and group lbadmins; use sudo, permission true"},
		"a reader by main group": {Access{write, read}, 65534, 61002, nil, good, mayChange},
		"an operator":            {Access{write, read}, 65534, 65534, []uint32{61001}, good, good},
		"root":                   {Access{write, read}, 0, 0, nil, good, good},
		"readers alone":          {Access{nil, read}, 65534, 65534, []uint32{61002}, good, mayChange + "; use sudo"},
		"no groups, a stranger":  {Access{}, 65534, 65534, nil, "is for user root and group root; use sudo, permission true", "permission true"},
		"no groups, by mode":     {Access{}, 65534, 65534, []uint32{0}, good, good},
		"many groups":            {Access{write, read}, 65534, 65534, append(many(1000), 61001), good, good},
	} {
		t.Run(name, func(t *testing.T) {
			path := sockPath(t)
			if err := os.Chmod(strings.TrimSuffix(path, "/s.sock"), 0o755); err != nil {
				t.Fatal(err)
			}
			s := mustListen(t, path)
			s.Status = func(context.Context) *engine.Snapshot { return sample }
			s.Reload = func(context.Context) engine.Reload { return engine.Reload{OK: true} }
			if err := s.Restrict(tt.access); err != nil {
				t.Fatal(err)
			}
			serve(t, s)
			// The test's own file may be out of another user's reach.
			cmd := exec.Command("/proc/self/fd/3")
			exe, err := os.Open("/proc/self/exe")
			if err != nil {
				t.Fatal(err)
			}
			defer exe.Close()
			cmd.ExtraFiles = []*os.File{exe}
			cmd.Dir = "/"
			cmd.Env = append(os.Environ(), "SLUICE_TEST_ASK="+path)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tt.uid, Gid: tt.gid, Groups: tt.groups}}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			lines := strings.Split(string(out), "\n")
			if !strings.Contains(lines[0], tt.status) || !strings.Contains(lines[1], tt.reload) {
				t.Errorf("%s\nwant status: %s\nwant reload: %s", out, tt.status, tt.reload)
			}
		})
	}
}

func many(n uint32) (groups []uint32) {
	for i := range n {
		groups = append(groups, 70000+i)
	}
	return groups
}

// TestEveryPathTakesARight: one that was forgotten would be everybody's.
func TestEveryPathTakesARight(t *testing.T) {
	s := mustListen(t, sockPath(t))
	defer s.Close()
	s.Status = func(context.Context) *engine.Snapshot { return sample }
	s.Reload = func(context.Context) engine.Reload { return engine.Reload{} }
	s.Operate = func(context.Context, engine.Command) ([]engine.Override, error) { return nil, nil }
	s.Overrides = func(context.Context) ([]engine.Override, error) { return nil, nil }
	s.Handover = func(context.Context) (Handover, error) { return Handover{}, nil }
	s.Metrics = http.NotFoundHandler()
	served := func(w http.ResponseWriter, _ *http.Request) { Answer(w, "served") }
	s.Offer(Route{Pattern: "GET /v1/look", Right: Read, Serve: served})
	s.Offer(Route{Pattern: "POST /v1/touch", Right: Write, Serve: served})
	if err := s.Restrict(Access{Read: &Group{"lbview", 61002}}); err != nil {
		t.Fatal(err)
	}
	h := s.handler()
	for path, takes := range map[string]Right{
		"GET /v1/status": Read, "GET /v1/overrides": Read, "GET /metrics": Read, "GET /v1/look": Read,
		"POST /v1/reload": Write, "POST /v1/operate": Write, "POST /v1/handover": Write, "POST /v1/touch": Write,
	} {
		for _, who := range []struct {
			caller *caller
			right  Right
		}{{nil, -1}, {&caller{uid: 5, gid: 5}, -1}, {&caller{uid: 5, gid: 61002}, Read}, {&caller{}, Write}} {
			method, target, _ := strings.Cut(path, " ")
			req, err := http.NewRequestWithContext(context.WithValue(t.Context(), peerKey{}, who.caller), method, target, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			w := &recorder{header: http.Header{}}
			h.ServeHTTP(w, req)
			if refused := w.code == http.StatusForbidden; refused != (who.right < takes) {
				t.Errorf("%s for %v: %d", path, who.caller, w.code)
			}
		}
	}
}

type recorder struct {
	header http.Header
	code   int
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(c int)   { r.code = c }
func (r *recorder) Write(b []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	return len(b), nil
}

// TestCallersAreBounded: those who hold connections open and ask nothing keep nobody
// out.
func TestCallersAreBounded(t *testing.T) {
	path := sockPath(t)
	s := mustListen(t, path)
	s.Status = func(context.Context) *engine.Snapshot { return sample }
	d := &doorman{Listener: s.socket, server: s}
	d.callers.Store(maxCallers - 1)
	accepted := make(chan net.Conn, 2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := d.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	first := <-accepted
	if n, err := dial().Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("one too many: read %d, %v", n, err)
	}
	for range 2 {
		if err := first.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	dial()
	(<-accepted).Close()
	if n := d.callers.Load(); n != maxCallers-1 {
		t.Errorf("%d are counted, want %d", n, maxCallers-1)
	}
	s.Close()
	<-done
}
