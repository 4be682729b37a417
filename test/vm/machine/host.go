package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// Place says where a command runs.
type Place string

// The places. Auto is Host where this kernel has ip_vs and this process is
// root, else VM.
const (
	Auto Place = "auto"
	Host Place = "host"
	VM   Place = "vm"
)

// Choose turns Auto into Host or VM and says why. It tries to load ip_vs.
func Choose(ctx context.Context, p Place) (Place, string, error) {
	switch p {
	case Host:
		return Host, "on this kernel, as asked", nil
	case VM:
		return VM, "in the VM, as asked", nil
	case Auto, "":
	default:
		return "", "", fmt.Errorf("unknown place %q: want auto, host or vm", p)
	}
	if os.Geteuid() != 0 {
		return VM, "in the VM: not root here", nil
	}
	if modprobe, ok := lookPath("modprobe"); ok {
		// Whether that did anything is seen below: ip_vs may also be built in.
		_ = exec.CommandContext(ctx, modprobe, "-q", "ip_vs").Run()
	}
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		return VM, "in the VM: this kernel has no ip_vs", nil
	}
	return Host, "on this kernel, in a fresh network namespace", nil
}

// RunHost runs the command on this kernel, in a network namespace of its own
// whose lo is up. Limit, Dir, Env and Output mean what they mean for Run.
func RunHost(ctx context.Context, c Config) (int, error) {
	if err := c.defaults(); err != nil {
		return 0, err
	}
	limited, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	argv := slices.Concat([]string{"--net", "/bin/sh", "-c", `ip link set lo up; exec "$@"`, "sh"}, c.Command)
	cmd := exec.CommandContext(limited, "unshare", argv...)
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdout, cmd.Stderr = c.Output, c.Output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case limited.Err() != nil:
		return 0, fmt.Errorf("%w: not done after %v", ErrTimeout, c.Limit)
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return 0, err
}
