package control

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Access says who may do what on the socket. Root and the daemon's own user may do
// everything.
type Access struct {
	// Write and Read are groups, nil for none. With neither the socket's mode decides:
	// it is the owner's and its group's, and whoever may connect may do everything.
	Write, Read *Group
}

// Group is a group of users.
type Group struct {
	Name string
	ID   uint32
}

// LookupGroup finds a group by name or number.
func LookupGroup(name string) (*Group, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		// A number needs no entry.
		id, nerr := strconv.ParseUint(name, 10, 32)
		if nerr != nil {
			return nil, fmt.Errorf("there is no group %s", name)
		}
		return &Group{Name: name, ID: uint32(id)}, nil
	}
	id, err := strconv.ParseUint(g.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("group %s has the number %q", name, g.Gid)
	}
	return &Group{Name: name, ID: uint32(id)}, nil
}

// open reports whether the socket's mode alone decides.
func (a Access) open() bool { return a.Write == nil && a.Read == nil }

// Restrict says who may do what from now on. With groups anyone may connect, so that a
// stranger is told why it is refused and by which group it would not be.
func (s *Server) Restrict(a Access) error {
	s.access.Store(&a)
	mode := os.FileMode(socketMode)
	if !a.open() {
		mode = groupMode
	}
	if err := os.Chmod(s.socket.path, mode); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	return nil
}

// groupMode is the socket's when groups decide.
const groupMode = 0o666

// may reports why somebody may not do what takes a right; nil if it may.
func (s *Server) may(who *caller, r Right) error {
	a := s.access.Load()
	if a == nil || a.open() || who.trusted() || who.in(a.Write) || r == Read && who.in(a.Read) {
		return nil
	}
	what, whose := "change", "root"
	if a.Write != nil {
		whose += " and group " + a.Write.Name
	}
	if r == Read {
		what = "ask"
		if a.Read != nil {
			whose += " and group " + a.Read.Name
		}
	}
	return fmt.Errorf("%s may %s nothing here: that is for %s; use sudo", who, what, whose)
}

// caller is who is at the other end of a connection, by what the kernel says.
type caller struct {
	uid, gid uint32
	pid      int32
	groups   []uint32
}

func (c *caller) trusted() bool {
	return c != nil && (c.uid == 0 || int(c.uid) == os.Geteuid())
}

func (c *caller) in(g *Group) bool {
	return c != nil && g != nil && (c.gid == g.ID || slices.Contains(c.groups, g.ID))
}

func (c *caller) String() string {
	if c == nil {
		return "an unknown user"
	}
	name := strconv.FormatUint(uint64(c.uid), 10)
	if u, err := user.LookupId(name); err == nil {
		return fmt.Sprintf("user %s", u.Username)
	}
	return "uid " + name
}

// callerOf asks the kernel; nil if it does not say.
func callerOf(c net.Conn) *caller {
	uc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return nil
	}
	var who *caller
	if raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return
		}
		who = &caller{uid: cred.Uid, gid: cred.Gid, pid: cred.Pid, groups: peerGroups(fd)}
	}) != nil {
		return nil
	}
	return who
}

// peerGroups reads SO_PEERGROUPS (Linux 4.13, unix(7)): the groups that the caller had
// when it connected. None are taken for one that the kernel does not tell.
func peerGroups(fd uintptr) []uint32 {
	groups := make([]uint32, 32)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4]
		case errno != unix.ERANGE || int(size/4) <= len(groups):
			return nil
		}
		groups = make([]uint32, size/4)
	}
}

// peerKey is the context's key for the caller.
type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	if who := callerOf(c); who != nil {
		return context.WithValue(ctx, peerKey{}, who)
	}
	return ctx
}

// peerOf returns who asks; nil if that is not known.
func peerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(peerKey{}).(*caller)
	return c
}

// peer returns who asks; -1 and 0 if that is not known.
func peer(ctx context.Context) (uid int64, pid int32) {
	if c := peerOf(ctx); c != nil {
		return int64(c.uid), c.pid
	}
	return -1, 0
}

// guarded serves those who have the right, and tells the others why not.
func (s *Server) guarded(r Right, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if err := s.may(peerOf(req.Context()), r); err != nil {
			w.Header().Set("Connection", "close")
			answer(w, http.StatusForbidden, problem{err.Error()})
			return
		}
		serve(w, req)
	}
}

const (
	// maxCallers are the connections that are served at a time, maxStrangers those of
	// callers who may not even read: they must not keep the others out, nor use up the
	// descriptors that checks need.
	maxCallers   = 256
	maxStrangers = 8
)

// doorman is a listener that bounds how many callers there are at a time.
type doorman struct {
	net.Listener
	server             *Server
	callers, strangers atomic.Int32
}

// Accept implements net.Listener. Who is too much is sent away.
func (d *doorman) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		count, most := &d.callers, int32(maxCallers)
		if d.server.may(callerOf(c), Read) != nil {
			count, most = &d.strangers, maxStrangers
		}
		if count.Add(1) > most {
			count.Add(-1)
			_ = c.Close() // nothing was said yet
			continue
		}
		uc, ok := c.(*net.UnixConn)
		if !ok {
			_ = c.Close() // the socket is a unix socket
			continue
		}
		return &counted{UnixConn: uc, count: count}, nil
	}
}

// counted is a connection that makes place for another when it is closed.
type counted struct {
	*net.UnixConn
	count *atomic.Int32
	once  sync.Once
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.once.Do(func() { c.count.Add(-1) })
	return c.UnixConn.Close()
}
