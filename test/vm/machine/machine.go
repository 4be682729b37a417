// Package machine boots a stock distribution kernel under QEMU with the host's
// file system as its root, and runs one command in it.
//
// It exists because most build machines have no ip_vs: what the tests need is
// the kernel that operators run, not one of our own making, so the kernel
// package that the distribution's meta package depends on is fetched and booted
// as it is. The package decides how to get there (packages, kernel, initramfs,
// QEMU's arguments) and knows nothing of what is run.
//
// Decisions that were close:
//
//   - TCG, not KVM: /dev/kvm hangs on some nested hosts, and a boot costs only
//     about ten seconds without it. SLUICE_VM_KVM=1 asks for KVM.
//   - The host's / over 9p, not an image: nothing has to be built or copied,
//     and the guest sees the same tools and the same checkout at the same path.
//     9p is slow with many small files, hence test binaries are compiled
//     outside and TMPDIR is a tmpfs.
//   - Two serial ports: the kernel's console goes to a log that is shown only
//     when the boot fails, the command's output to a port of its own, so no
//     marker has to be searched for in what a command prints.
//   - A sealed guest (Config.Sealed) is for tests of what happens in time. Emulated on
//     a busy machine a second of the guest's clock holds any amount of work, and a test
//     that is right fails; with QEMU's -icount it always holds the same, and a minute of
//     waiting costs nothing. That takes a root in memory: a guest that waits for its
//     host is idle, and its clock would jump. One processor is the price: what two
//     at once may find is left to the tests that run in the other guests.
//   - A system of its own (Config.System) is a folder under an overlay in memory, not
//     an image: it is made in half a minute and forgets each run.
//   - The exit status comes back in a file, not in QEMU's exit code: that has
//     room for 7 bits, and a missing file tells a crash from any status.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Config says what to boot and what to run in it. The zero value of every field
// but Command is usable.
type Config struct {
	// Command and its arguments are looked up in the guest's PATH.
	Command []string
	// Dir is the working directory; "" is the current one.
	Dir string
	// Env holds NAME=VALUE entries that are added to the guest's few own ones.
	Env []string
	// MemoryMB and CPUs size the guest; 0 means 1536 MB and 2.
	MemoryMB, CPUs int
	// Limit bounds the boot and the command together; 0 means 5 minutes.
	Limit time.Duration
	// Suite is another Debian release whose kernel to boot, for example
	// "trixie"; "" is the kernel of the release that runs here.
	Suite string
	// System boots a small Debian system of its own, with systemd as process 1, and
	// runs the command as a unit in it. Its files are not the host's and what is
	// changed of them is forgotten; it sees Dir, read-only. It is for tests of what
	// is installed.
	System bool
	// Sealed boots a guest in which nothing but its input counts: its root is in memory,
	// its clock counts instructions (one a nanosecond), and time in which nothing is to be
	// done is skipped. However busy this machine is, the guest does not feel it. It has
	// one processor; it sees copies of Files, and what it writes is forgotten.
	Sealed bool
	// Files are what a sealed guest sees, absolute paths, folders whole.
	Files []string
	// Output receives what the command prints, both streams as one.
	Output io.Writer
	// Log receives what the runner itself has to say; nil discards it.
	Log io.Writer
}

// ErrTimeout is returned by Run when Limit was over before the guest was done.
var ErrTimeout = errors.New("time limit exceeded")

// Run installs and fetches what is missing, boots, runs the command and returns
// its exit status (128+N after signal N, as a shell reports it). An error means
// that no status came back: something is missing, the boot failed, or the time
// was over.
func Run(ctx context.Context, c Config) (int, error) {
	if len(c.Command) == 0 {
		return 0, errors.New("run in vm: no command")
	}
	if err := c.defaults(); err != nil {
		return 0, err
	}
	if err := Install(ctx, c.Log, VMTools...); err != nil {
		return 0, err
	}
	k, err := fetchKernel(ctx, c.Log, c.Suite)
	if err != nil {
		return 0, fmt.Errorf("fetch kernel: %w", err)
	}
	system := ""
	if packages := c.packages(); packages != nil {
		if system, err = fetchSystem(ctx, c.Log, packages); err != nil {
			return 0, fmt.Errorf("make a system: %w", err)
		}
	}
	work, err := os.MkdirTemp("", "sluice-vm-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	return boot(ctx, c, k, system, work)
}

// packages are those of the guest's own system, nil for this machine's.
func (c *Config) packages() []string {
	switch {
	case c.System:
		return systemPackages
	case c.Sealed:
		return sealedPackages()
	}
	return nil
}

func (c *Config) defaults() error {
	if c.System && c.Sealed {
		return errors.New("run in vm: a guest is sealed or has a system, not both")
	}
	if c.Sealed {
		c.CPUs = 1 // QEMU's instruction counter knows no more
	}
	if c.MemoryMB == 0 {
		c.MemoryMB = 1536
	}
	if c.CPUs == 0 {
		c.CPUs = 2
	}
	if c.Limit == 0 {
		c.Limit = 5 * time.Minute
	}
	if c.Output == nil {
		c.Output = os.Stdout
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	if c.Dir == "" {
		c.Dir = "."
	}
	dir, err := filepath.Abs(c.Dir)
	c.Dir = dir
	return err
}
