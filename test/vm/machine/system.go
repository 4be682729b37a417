package machine

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// systemPackages is what a system has besides Debian's smallest set: process 1, and
// what a test of an installed package looks with.
var systemPackages = []string{"systemd", "systemd-sysv", "kmod", "iproute2", "ipvsadm"}

// systemTools are needed to make a system.
var systemTools = []Tool{{"mmdebstrap", "mmdebstrap"}}

// guestDir and guestWork are where a system sees the working directory, read-only,
// and what it shares with the runner.
const (
	guestDir  = "/guest/dir"
	guestWork = "/guest/work"
)

// systemUnit runs the command in a system. Whatever becomes of it, the guest ends.
const systemUnit = `[Unit]
Description=The guest's command
[Service]
Type=exec
StandardOutput=file:/dev/ttyS1
StandardError=file:/dev/ttyS1
ExecStart=/bin/sh -c '/bin/stty -F /dev/ttyS1 raw -echo; /bin/sh ` + guestWork + `/guest; echo $? >` + guestWork + `/status; sync; /bin/stty -F /dev/ttyS1 raw'
ExecStopPost=/bin/systemctl poweroff -ff
`

// systemScript runs as process 1 until the system's own does. Its root is an overlay
// that is forgotten: what is fetched once stays as it is. Nothing is deleted on the
// way out, unlike by switch_root: the host's files are mounted here.
const systemScript = `#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev
while read -r m; do $b insmod "$m" || echo "init: cannot load $m"; done </modules/order
$b mkdir /host /upper
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose host /host || echo "init: cannot mount the host"
$b mount -t tmpfs -o mode=755 upper /upper
$b mkdir /upper/up /upper/work
$b mount -t overlay -o lowerdir=/host@SYSTEM@,upperdir=/upper/up,workdir=/upper/work overlay /mnt || echo "init: cannot mount the system"
$b mkdir -p /mnt/usr/lib/modules /mnt` + guestDir + ` /mnt` + guestWork + `
$b mount -o bind /host@ROOT@/lib/modules /mnt/usr/lib/modules
$b mount -o bind /host@DIR@ /mnt` + guestDir + `
$b mount -o remount,bind,ro /mnt` + guestDir + `
$b mount -o bind /host@WORK@ /mnt` + guestWork + `
$b cp /guest.service /mnt/etc/systemd/system/
$b mkdir -p /mnt/etc/systemd/system/multi-user.target.wants
$b ln -s ../guest.service /mnt/etc/systemd/system/multi-user.target.wants/
echo guest >/mnt/etc/hostname
# Emulated, each unit of the boot costs; none of these is of use here.
for u in tmp.mount systemd-tmpfiles-clean.timer apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
	fstrim.timer getty.target systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-random-seed.service \
	systemd-pcrphase.service systemd-pcrphase-sysinit.service systemd-user-sessions.service systemd-logind.service \
	systemd-networkd.service systemd-timesyncd.service systemd-pstore.service systemd-machine-id-commit.service \
	systemd-firstboot.service systemd-hwdb-update.service ldconfig.service systemd-journal-catalog-update.service \
	systemd-update-done.service systemd-sysusers.service systemd-binfmt.service systemd-boot-system-token.service; do
	$b ln -sf /dev/null /mnt/etc/systemd/system/$u
done
$b umount /sys /proc
$b mount -o move /dev /mnt/dev
cd /mnt
$b mount -o move . /
exec $b chroot . /lib/systemd/systemd
`

// fetchSystem returns the folder of a Debian system of this machine's own release with
// these packages, made on first use.
func fetchSystem(ctx context.Context, log io.Writer, packages []string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "stock")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	// Another list is another system.
	root := filepath.Join(cache, fmt.Sprintf("system-%08x", crc32.ChecksumIEEE([]byte(strings.Join(packages, " ")))))
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	if err := Install(ctx, log, systemTools...); err != nil {
		return "", err
	}
	release, err := codename()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(log, "making a system of %s, once, in %s\n", release, cache)
	tmp, err := os.MkdirTemp(cache, "unpack-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := run(exec.CommandContext(ctx, "mmdebstrap", "--variant=minbase", "--format=directory",
		"--include="+strings.Join(packages, ","), release, tmp)); err != nil {
		return "", err
	}
	return root, os.Rename(tmp, root)
}

// codename is this machine's release, as /etc/os-release names it.
func codename() (string, error) {
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok && name != "" {
			return strings.Trim(name, `"`), nil
		}
	}
	return "", fmt.Errorf("/etc/os-release has no VERSION_CODENAME")
}
