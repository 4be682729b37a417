package machine

import (
	"bufio"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// rootModules is what the guest needs before it can see the host's files.
var rootModules = []string{"virtio_pci", "9pnet_virtio", "9p"}

// initScript runs as process 1. It lives in the initramfs and stays there: the
// kernel's own module requests run /sbin/modprobe in this root, not in the
// chroot, hence the script of that name.
const initScript = `#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev
while read -r m; do $b insmod "$m" || echo "init: cannot load $m"; done </modules/order
@MOUNT@
$b mount -t proc proc /mnt/proc
$b mount -t sysfs sysfs /mnt/sys
$b mount -t devtmpfs dev /mnt/dev
$b mkdir -p /mnt/dev/pts /mnt/dev/shm
$b mount -t devpts devpts /mnt/dev/pts
$b mount -t tmpfs shm /mnt/dev/shm
$b mount -t tmpfs run /mnt/run
$b mkdir -p /mnt/run/lock /mnt/run/tmp
$b ip link set lo up
$b stty -F /dev/ttyS1 raw -echo
$b chroot /mnt /bin/sh @GUEST@ </dev/null >/dev/ttyS1 2>&1
echo $? >@STATUS@/status
$b sync
$b stty -F /dev/ttyS1 raw # waits until what was written has left
$b poweroff -f
`

// mountHost makes the host's files the root.
const mountHost = `$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose host /mnt || echo "init: cannot mount the host"`

// unpackTree makes a root in memory.
const unpackTree = `$b mkdir /host
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose host /host || echo "init: cannot mount the host"
$b mount -t tmpfs -o mode=755,size=90% root /mnt
$b tar xf /host@WORK@/tree -C /mnt || echo "init: cannot unpack the root"
$b mkdir -p /mnt/proc /mnt/sys /mnt/dev /mnt/run /mnt/tmp
$b chmod 1777 /mnt/tmp`

// modprobeScript serves the kernel's module requests.
const modprobeScript = `#!/bin/busybox sh
exec /bin/busybox chroot /mnt @MODPROBE@ -d @ROOT@ "$@"
`

// writeInitramfs writes the archive that the kernel boots into: busybox, the
// modules that mount the root, and the two scripts.
func writeInitramfs(ctx context.Context, w io.Writer, c Config, k kernel, system, work string) error {
	busybox, _ := lookPath("busybox")
	if err := checkStatic(busybox); err != nil {
		return err
	}
	modprobe, _ := lookPath("modprobe")
	names, script := rootModules, initScript
	if c.System {
		names, script = append(slices.Clone(names), "overlay"), systemScript
	}
	modules, err := moduleFiles(ctx, modprobe, k, names)
	if err != nil {
		return err
	}
	mount, guest, status, root := mountHost, work+"/guest", "/mnt"+work, k.root
	if c.Sealed {
		mount, guest, status, root, modprobe = unpackTree, "/guest", "/host"+work, "/", "/sbin/modprobe"
	}
	script = strings.ReplaceAll(script, "@MOUNT@", mount)
	fill := strings.NewReplacer("@WORK@", work, "@GUEST@", guest, "@STATUS@", status,
		"@MODPROBE@", modprobe, "@ROOT@", root, "@SYSTEM@", system, "@DIR@", c.Dir)

	out := bufio.NewWriter(w)
	a := &cpioWriter{w: out}
	for _, dir := range []string{"bin", "sbin", "modules", "proc", "sys", "dev", "mnt"} {
		a.dir(dir)
	}
	a.copy("bin/busybox", busybox)
	a.file("init", 0o755, []byte(fill.Replace(script)))
	a.file("guest.service", 0o644, []byte(systemUnit))
	a.file("sbin/modprobe", 0o755, []byte(fill.Replace(modprobeScript)))
	var order strings.Builder
	for _, m := range modules {
		name := "modules/" + filepath.Base(m)
		a.copy(name, m)
		fmt.Fprintf(&order, "/%s\n", name)
	}
	a.file("modules/order", 0o644, []byte(order.String()))
	if err := a.close(); err != nil {
		return err
	}
	return out.Flush()
}

// checkStatic refuses a busybox that needs libraries: the initramfs has none,
// and the kernel's message for that ("no working init found") misleads.
func checkStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is dynamically linked: install busybox-static in place of busybox", path)
		}
	}
	return nil
}

// moduleFiles returns the files to insmod, in order and without repeats.
func moduleFiles(ctx context.Context, modprobe string, k kernel, names []string) ([]string, error) {
	var files []string
	seen := map[string]bool{}
	for _, m := range names {
		out, err := exec.CommandContext(ctx, modprobe, "-d", k.root, "-S", k.version, "--show-depends", m).Output()
		if err != nil {
			return nil, fmt.Errorf("resolve module %s of %s: %w", m, k.version, err)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line) // "insmod /path/to.ko [options]" or "builtin name"
			if len(f) >= 2 && f[0] == "insmod" && !seen[f[1]] {
				seen[f[1]] = true
				files = append(files, f[1])
			}
		}
	}
	return files, nil
}

// cpioWriter writes the "newc" format, the one that the kernel unpacks
// (Documentation/driver-api/early-userspace/buffer-format.rst). The first error
// sticks and is returned by close.
type cpioWriter struct {
	w   io.Writer
	ino int
	err error
}

func (c *cpioWriter) dir(name string) { c.entry(name, 0o040755, nil) }

func (c *cpioWriter) file(name string, perm uint32, data []byte) { c.entry(name, 0o100000|perm, data) }

func (c *cpioWriter) copy(name, path string) {
	data, err := os.ReadFile(path)
	if err != nil && c.err == nil {
		c.err = err
	}
	c.file(name, 0o755, data)
}

func (c *cpioWriter) close() error {
	c.entry("TRAILER!!!", 0, nil)
	return c.err
}

func (c *cpioWriter) entry(name string, mode uint32, data []byte) {
	c.ino++
	// magic, ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor,
	// rdevmajor, rdevminor, namesize (with its NUL), check
	head := fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	c.write(append(append(head, name...), 0))
	c.write(data)
}

// write pads to a multiple of four, as header with name and data each are.
func (c *cpioWriter) write(p []byte) {
	if c.err != nil {
		return
	}
	if _, c.err = c.w.Write(p); c.err == nil {
		_, c.err = c.w.Write(make([]byte, -len(p)&3))
	}
}
