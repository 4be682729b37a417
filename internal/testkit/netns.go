package testkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// NS is a network namespace. It exists until its test ends.
type NS struct {
	// Name is for messages and interface names only; the kernel does not know it.
	Name string
	f    *os.File
}

// home is the namespace that the process started in; every borrowed thread goes
// back there.
var home = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/thread-self/ns/net") })

// NewNS creates a network namespace with lo up and no other interface.
func NewNS(t T, name string) *NS {
	t.Helper()
	ns := &NS{Name: name}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		ns.f = f
		return err
	})
	if err != nil {
		t.Fatalf("create network namespace %s: %v", name, err)
	}
	t.Cleanup(func() { ns.f.Close() })
	// Duplicate address detection (RFC 4862, 5.4) makes addresses usable, and their routes
	// appear, about a second after a test thinks they are there.
	for _, device := range []string{"all", "default"} {
		err := ns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/"+device+"/accept_dad", []byte("0"), 0) })
		if err != nil && !errors.Is(err, os.ErrNotExist) { // no IPv6 here
			t.Fatalf("network namespace %s: %v", name, err)
		}
	}
	ns.Run(t, "ip", "link", "set", "lo", "up")
	return ns
}

// Home is the namespace that the process started in. What a test makes of it stays,
// hence it is for a guest that ends with the test.
func Home(t T) *NS {
	t.Helper()
	f, err := home()
	if err != nil {
		t.Fatalf("open the home network namespace: %v", err)
	}
	return &NS{Name: "home", f: f}
}

// onThread runs fn on a thread of its own, which may change its namespace in
// it. The thread goes back home afterwards, or is thrown away if it cannot.
func onThread(fn func() error) error {
	origin, err := home()
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	panicked := make(chan any, 1)
	go func() {
		runtime.LockOSThread()
		defer func() {
			p := recover()
			if unix.Setns(int(origin.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			if p != nil {
				panicked <- p
			}
		}()
		result <- fn()
	}()
	select {
	case err := <-result:
		return err
	case p := <-panicked:
		panic(p)
	}
}

// Do runs fn on a thread that is in the namespace. Sockets that fn creates and
// processes that it starts belong to the namespace for good; goroutines that it
// starts do not. fn must not end its goroutine (no t.Fatal in it).
func (ns *NS) Do(fn func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.f.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", ns.Name, err)
		}
		return fn()
	})
}

// Path names the namespace for `ip link set ... netns PATH`.
func (ns *NS) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.f.Fd()) }

// Output runs a command in the namespace and returns what it wrote to standard
// output; what it wrote to standard error is in the error.
func (ns *NS) Output(name string, args ...string) (string, error) {
	return ns.output("", name, args...)
}

func (ns *NS) output(stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := ns.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%s: %s: %w: %s", ns.Name, strings.Join(cmd.Args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), err
}

// Run is Output that ends the test on an error.
func (ns *NS) Run(t T, name string, args ...string) string {
	t.Helper()
	out, err := ns.Output(name, args...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return out
}

// IP runs ip commands, as "link set dev eth0 up", in one process: starting one
// for each is what an emulated machine spends its time on.
func (ns *NS) IP(t T, commands ...string) {
	t.Helper()
	batch := strings.Join(commands, "\n") + "\n"
	if _, err := ns.output(batch, "ip", "-batch", "-"); err != nil {
		t.Fatalf("%v\nof:\n%s", err, batch)
	}
}

// Sysctl writes a variable below net, as "net.ipv4.ip_forward", in the
// namespace.
func (ns *NS) Sysctl(t T, name, value string) {
	t.Helper()
	err := ns.Do(func() error { return os.WriteFile(sysctlPath(name), []byte(value), 0) })
	if err != nil {
		t.Fatalf("%s: set %s=%s: %v", ns.Name, name, value, err)
	}
}

// ReadSysctl returns a variable's value in the namespace.
func (ns *NS) ReadSysctl(t T, name string) string {
	t.Helper()
	var b []byte
	err := ns.Do(func() (err error) { b, err = os.ReadFile(sysctlPath(name)); return err })
	if err != nil {
		t.Fatalf("%s: read %s: %v", ns.Name, name, err)
	}
	return strings.TrimSpace(string(b))
}

// sysctlPath keeps dots that belong to an interface name out of it: no
// interface of ours has one.
func sysctlPath(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

// ReadProcNet reads a file below /proc/net of the namespace.
func (ns *NS) ReadProcNet(name string) (string, error) {
	var b []byte
	// /proc/net is the one of the process's first thread, hence the long way.
	err := ns.Do(func() (err error) { b, err = os.ReadFile("/proc/thread-self/net/" + name); return err })
	return string(b), err
}

// Listen is net.Listen in the namespace. addr must be numeric.
func (ns *NS) Listen(network, addr string) (net.Listener, error) {
	var l net.Listener
	err := ns.Do(func() (err error) {
		lc := net.ListenConfig{}
		l, err = lc.Listen(context.Background(), network, addr)
		return err
	})
	return l, err
}

// ListenPacket is net.ListenPacket in the namespace. addr must be numeric.
func (ns *NS) ListenPacket(network, addr string) (net.PacketConn, error) {
	var c net.PacketConn
	err := ns.Do(func() (err error) {
		lc := net.ListenConfig{}
		c, err = lc.ListenPacket(context.Background(), network, addr)
		return err
	})
	return c, err
}

// Dial is a Dialer's DialContext in the namespace. addr must be numeric: a name
// would be resolved, and its addresses raced, on other threads.
func (ns *NS) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var c net.Conn
	err := ns.Do(func() (err error) {
		// FallbackDelay < 0 keeps the one address on this thread.
		d := net.Dialer{FallbackDelay: -1}
		c, err = d.DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// command prepares a child that dies with this process.
func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}
