package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// boot runs QEMU once. work is an empty directory that host and guest share by
// its path; the guest leaves its exit status in work/status. system is the root of
// c.System.
func boot(ctx context.Context, c Config, k kernel, system, work string) (int, error) {
	initrd, err := os.Create(filepath.Join(work, "initrd"))
	if err != nil {
		return 0, err
	}
	err = writeInitramfs(ctx, initrd, c, k, system, work)
	if err = errors.Join(err, initrd.Close()); err != nil {
		return 0, fmt.Errorf("build initramfs: %w", err)
	}
	script := guestScript(c, k)
	if c.Sealed {
		err = packTree(filepath.Join(work, "tree"), c, k, system, script)
	} else {
		err = os.WriteFile(filepath.Join(work, "guest"), []byte(script), 0o755)
	}
	if err != nil {
		return 0, err
	}
	console := filepath.Join(work, "console")

	limited, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	qemu, _ := lookPath("qemu-system-x86_64")
	cmd := exec.CommandContext(limited, qemu, qemuArgs(c, k, work, os.Getenv("SLUICE_VM_KVM") == "1")...)
	var complaints strings.Builder
	cmd.Stdout, cmd.Stderr = c.Output, &complaints
	// A guest must not outlive its runner, however that ends. The signal comes
	// when the starting thread dies, which the caller's main thread does last.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	start := time.Now()
	runErr := cmd.Run()

	if status, ok := readStatus(filepath.Join(work, "status")); ok {
		fmt.Fprintf(c.Log, "guest %s done in %.1fs, status %d\n", k.version, time.Since(start).Seconds(), status)
		return status, nil
	}
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case limited.Err() != nil:
		err = fmt.Errorf("%w: not done after %v (-t raises it)", ErrTimeout, c.Limit)
	case runErr != nil:
		err = fmt.Errorf("qemu: %w: %s", runErr, strings.TrimSpace(complaints.String()))
	default:
		err = errors.New("the guest stopped without leaving a status")
	}
	return 0, fmt.Errorf("boot %s: %w\n%s", k.version, err, consoleTail(console))
}

// qemuArgs is the whole command line. Without a status the guest's kernel log,
// on the first serial port, is the only witness; the command has the second.
func qemuArgs(c Config, k kernel, work string, kvm bool) []string {
	accel := []string{"-accel", "tcg,thread=multi", "-cpu", "max", "-device", "virtio-rng-pci"}
	switch {
	case c.Sealed:
		accel = []string{"-accel", "tcg,thread=single", "-cpu", "max", "-icount", "shift=0,sleep=off", "-rtc", "clock=vm"}
	case kvm:
		accel = []string{"-accel", "kvm", "-cpu", "host", "-device", "virtio-rng-pci"}
	}
	return slices.Concat(accel, []string{
		"-m", strconv.Itoa(c.MemoryMB),
		"-smp", strconv.Itoa(c.CPUs),
		"-kernel", k.image(),
		"-initrd", filepath.Join(work, "initrd"),
		// no_timer_check: where the host's processors are taken, the boot may see no timer
		// interrupt while it looks for one, and would panic.
		"-append", "console=ttyS0 quiet loglevel=4 panic=-1 no_timer_check mitigations=off",
		"-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot",
		"-serial", "file:" + filepath.Join(work, "console"),
		"-serial", "stdio",
		"-fsdev", "local,id=host,path=/,security_model=none,multidevs=remap",
		"-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
	})
}

// guestScript sets the guest's small environment and runs the command.
func guestScript(c Config, k kernel) string {
	path := os.Getenv("PATH")
	for _, dir := range sbin {
		if !slices.Contains(filepath.SplitList(path), dir) {
			path += ":" + dir
		}
	}
	dir := c.Dir
	env := []string{
		"PATH=" + path,
		"HOME=" + os.Getenv("HOME"),
		"TERM=dumb",
		// Its clock and its reboots are nobody else's.
		"SLUICE_GUEST=1",
	}
	if c.System {
		dir = guestDir
	} else {
		env = append(env, "TMPDIR=/run/tmp") // a tmpfs
	}
	if !c.System && !c.Sealed {
		env = append(env, "MODPROBE_OPTIONS=-d "+k.root)
	}
	env = append(env, c.Env...)
	var s strings.Builder
	fmt.Fprintf(&s, "cd %s || exit 126\nexec env -i", quote(dir))
	for _, word := range slices.Concat(env, c.Command) {
		s.WriteString(" " + quote(word))
	}
	return s.String() + "\n"
}

// quote makes one shell word of s.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func readStatus(path string) (int, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	status, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return status, err == nil
}

func consoleTail(path string) string {
	const keep = 40
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return "the guest's console stayed empty"
	}
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(b), "\r", "")), "\n")
	return "the guest's console ends with:\n  " + strings.Join(lines[max(0, len(lines)-keep):], "\n  ")
}
