package dial

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
)

// An Address is what the kernel itself calls the target.
func TestAddressIsTheKernels(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		_, c := listen(t, addr)
		if c.Target.Addr().Is4() { // written the long way it is the same
			c.Target = netip.AddrPortFrom(netip.AddrFrom16(c.Target.Addr().As16()), c.Target.Port())
		}
		var a Address
		if a.Is(nil) || a.Is(a.Bytes()) {
			t.Error("no address is one")
		}
		if err := a.Set(&c); err != nil {
			t.Fatal(err)
		}
		if a.Port() != c.Target.Port() {
			t.Errorf("port %d, want %d", a.Port(), c.Target.Port())
		}
		conn, err := TCP(t.Context(), &c)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := conn.f.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var peer [unix.SizeofSockaddrInet6]byte
		size := uint32(len(peer))
		if err := raw.Control(func(fd uintptr) {
			if _, _, errno := syscall.Syscall(unix.SYS_GETPEERNAME, fd, uintptr(unsafe.Pointer(&peer)), uintptr(unsafe.Pointer(&size))); errno != 0 {
				t.Error(errno)
			}
		}); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if !bytes.Equal(a.Bytes(), peer[:size]) || !a.Is(peer[:size]) {
			t.Errorf("%x, the kernel says %x", a.Bytes(), peer[:size])
		}
		for i := range size {
			other := bytes.Clone(peer[:size])
			other[i] ^= 1
			// The flow label and what fills up are not part of who it is.
			same := size == unix.SizeofSockaddrInet4 && i >= 8 || size == unix.SizeofSockaddrInet6 && (4 <= i && i < 8 || i >= 24)
			if a.Is(other) != same {
				t.Errorf("octet %d: the same: %t, want %t", i, a.Is(other), same)
			}
		}
	}
}

func TestAddressKnowsItsZone(t *testing.T) {
	c := config.Connection{Target: netip.MustParseAddrPort("[fe80::1%lo]:80")}
	var a Address
	if err := a.Set(&c); err != nil {
		t.Fatal(err)
	}
	if i := binary.NativeEndian.Uint32(a.Bytes()[24:]); i != 1 {
		t.Errorf("zone %d, want that of lo", i)
	}
	c.Target = netip.MustParseAddrPort("[fe80::1%nosuch0]:80")
	var e *Error
	if err := a.Set(&c); !errors.As(err, &e) || e.Op != "socket" || e.Err != syscall.ENODEV {
		t.Errorf("%v", err)
	}
	c.Target = netip.AddrPort{}
	if err := a.Set(&c); !errors.Is(err, unix.EAFNOSUPPORT) {
		t.Errorf("%v", err)
	}
}

func TestSettingAnAddressAllocatesLittle(t *testing.T) {
	c := config.Connection{Target: netip.MustParseAddrPort("10.0.0.1:80")}
	var a Address
	if n := testing.AllocsPerRun(100, func() { a.Set(&c) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
