package control

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// PID returns the process that listens on the socket, as the kernel knows it: no
// answer is waited for.
func (c *Client) PID(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.path)
	if err != nil {
		return 0, c.explain(err, clientTimeout)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	switch {
	case cerr != nil:
		return 0, fmt.Errorf("ask the kernel who listens on %s: %w", c.path, cerr)
	case cred.Pid <= 0:
		return 0, errors.New("sluiced is in another PID namespace")
	}
	return int(cred.Pid), nil
}
