//go:build linux

package ipvstest_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// needKernel keeps a test away from a machine's own table. Once a kernel is
// asked for, whatever is missing is a failure.
func needKernel(t *testing.T) {
	if os.Getenv("SLUICE_KERNEL") != "1" {
		t.Skip("needs root and ip_vs, and makes network namespaces: run it by \"make test-kernel\"")
	}
}

func TestKernelConformance(t *testing.T) {
	needKernel(t)
	if out, err := exec.Command("modprobe", "ip_vs").CombinedOutput(); err != nil {
		t.Logf("modprobe ip_vs: %v: %s", err, out) // it may be built in
	}
	if _, err := exec.LookPath("ipvsadm"); err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, n := range ipvstest.Schedulers() {
		out, err := exec.Command("modprobe", "ip_vs_"+n).CombinedOutput()
		if err != nil {
			t.Logf("no scheduler %s here: %s", n, strings.TrimSpace(string(out)))
			continue
		}
		have = append(have, n)
	}
	if len(have) < 12 {
		t.Fatalf("only %d schedulers: %v", len(have), have)
	}
	if out, err := exec.Command("modprobe", "ip_vs_pe_sip").CombinedOutput(); err != nil {
		t.Fatalf("modprobe ip_vs_pe_sip: %v: %s", err, out)
	}
	t.Logf("schedulers: %v", have)
	ipvstest.Conformance(t, func(t *testing.T) ipvstest.Kernel {
		ns := newNamespace(t)
		return kernel{Client: ns.dial(t), ns: ns, schedulers: have}
	})
}

// TestKernelDialPath: a namespace may be named by its path, and the socket stays
// in it.
func TestKernelDialPath(t *testing.T) {
	needKernel(t)
	ns := newNamespace(t)
	c, err := ipvs.Dial(ipvs.WithNetNS(fmt.Sprintf("/proc/self/fd/%d", ns.fd())))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := ipvs.Service{ServiceKey: ipvs.ServiceKey{Family: ipvs.INET, FWMark: 4711}, Scheduler: "rr"}
	if err := c.AddService(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if out := (kernel{ns: ns}).Save(t); !strings.Contains(out, "-A -f 4711 ") {
		t.Errorf("the service is not in the namespace but in another:\n%s", out)
	}
	other := newNamespace(t)
	if out := (kernel{ns: other}).Save(t); out != "" {
		t.Errorf("another namespace is not empty:\n%s", out)
	}
}

// TestKernelUnprivileged: the kernel keeps even readers out.
func TestKernelUnprivileged(t *testing.T) {
	needKernel(t)
	ns := newNamespace(t)
	var err error
	ns.do(t, func() {
		// This thread only, and it ends with the function.
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			err = e
			return
		}
		var c *ipvs.Client
		if c, err = ipvs.Dial(); err != nil {
			return
		}
		defer c.Close()
		_, err = c.Services(t.Context())
	})
	if !os.IsPermission(err) && !strings.Contains(fmt.Sprint(err), "CAP_NET_ADMIN") {
		t.Errorf("got %v, want a refusal that names CAP_NET_ADMIN", err)
	}
}

// kernel is a client in a network namespace of its own.
type kernel struct {
	*ipvs.Client
	ns         *namespace
	schedulers []string
}

func (k kernel) Share(t *testing.T) ipvstest.Kernel { return k.ns.dial(t) }

func (k kernel) Schedulers() []string { return k.schedulers }

// Save asks ipvsadm.
func (k kernel) Save(t *testing.T) string {
	var (
		out []byte
		err error
	)
	k.ns.do(t, func() { out, err = exec.Command("ipvsadm", "-Sn").Output() })
	if err != nil {
		t.Errorf("ipvsadm -Sn: %v", err)
	}
	return string(out)
}

// Daemons asks ipvsadm for the synchronisation daemons.
func (k kernel) Daemons(t *testing.T) string {
	var (
		out []byte
		err error
	)
	k.ns.do(t, func() { out, err = exec.Command("ipvsadm", "-L", "--daemon").Output() })
	if err != nil {
		t.Errorf("ipvsadm -L --daemon: %v", err)
	}
	return string(out)
}

// AddInterface makes one end of a veth pair.
func (k kernel) AddInterface(t *testing.T, name string, mtu int) {
	k.ns.do(t, func() {
		for _, line := range []string{
			fmt.Sprintf("link add %s mtu %d type veth peer name p%s mtu %d", name, mtu, name, mtu),
			"link set p" + name + " up", "link set " + name + " up",
			"addr add 192.0.2.1/24 dev " + name, "addr add 2001:db8::1/64 dev " + name + " nodad",
		} {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				t.Errorf("ip %s: %v: %s", line, err, out)
			}
		}
	})
	t.Cleanup(func() { k.ns.do(t, func() { _ = exec.Command("ip", "link", "del", name).Run() }) })
}

// Connect opens a connection inside the namespace.
func (k kernel) Connect(t *testing.T, s ipvs.ServiceKey, d ipvs.DestinationKey) {
	k.ns.do(t, func() {
		l, err := net.Listen("tcp4", netip.AddrPortFrom(d.Addr, d.Port).String())
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { l.Close() })
		accepted := make(chan net.Conn, 1)
		go func() {
			c, err := l.Accept()
			if err == nil {
				accepted <- c
			}
			close(accepted)
		}()
		c, err := net.Dial("tcp4", netip.AddrPortFrom(s.Addr, s.Port).String())
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { c.Close() })
		server, ok := <-accepted
		if !ok {
			t.Error("the listener ended")
			return
		}
		t.Cleanup(func() { server.Close() })
		// A byte there and back: the connection is established on all sides.
		go io.Copy(server, server)
		if _, err := c.Write([]byte{1}); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
}

// namespace is a network namespace whose loopback interface is up.
type namespace struct{ f *os.File }

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	var (
		f   *os.File
		err error
		wg  sync.WaitGroup
	)
	wg.Go(func() {
		runtime.LockOSThread() // and never unlock: the thread ends with its namespace
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return
		}
		var out []byte
		if out, err = exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			err = fmt.Errorf("ip link set lo up: %w: %s", err, out)
			return
		}
		// lo has a route for IPv4 multicast by itself, and none for IPv6. This is
		// for no more than the suite's group: IPVS takes all that is routed to lo
		// for an address of its own.
		if out, err = exec.Command("ip", "-6", "route", "add", "ff05::/16", "dev", "lo", "table", "local").CombinedOutput(); err != nil {
			err = fmt.Errorf("route IPv6 multicast to lo: %w: %s", err, out)
			return
		}
		f, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &namespace{f}
}

func (n *namespace) dial(t *testing.T) *ipvs.Client {
	t.Helper()
	// To stop a thread can take an emulated kernel on a busy machine seconds.
	c, err := ipvs.Dial(ipvs.WithNetNSFD(n.fd()), ipvs.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (n *namespace) fd() int { return int(n.f.Fd()) }

// do runs f on a thread in the namespace.
func (n *namespace) do(t *testing.T, f func()) {
	t.Helper()
	var (
		err error
		wg  sync.WaitGroup
	)
	wg.Go(func() {
		runtime.LockOSThread()
		if err = unix.Setns(n.fd(), unix.CLONE_NEWNET); err == nil {
			f()
		}
	})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
}
