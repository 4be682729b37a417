package machine

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Tool is a program that has to be there, and the Debian/Ubuntu package that
// brings it.
type Tool struct{ Program, Package string }

// VMTools is what booting takes, TestTools what kernel tests call.
var (
	VMTools = []Tool{
		{"qemu-system-x86_64", "qemu-system-x86"},
		{"busybox", "busybox-static"},
		{"modprobe", "kmod"},
		{"depmod", "kmod"},
		{"xz", "xz-utils"},
		{"zstd", "zstd"},
		{"dpkg-deb", "dpkg"},
	}
	TestTools = []Tool{
		{"ip", "iproute2"},
		{"ipvsadm", "ipvsadm"},
		{"modprobe", "kmod"},
		{"unshare", "util-linux"},
		// Judges of our tables of nftables.
		{"nft", "nftables"},
		// Judge of what a daemon says to the kernel.
		{"strace", "strace"},
		// What docs/quickstart.md types, and what docs/migrating-from-keepalived.md measures.
		{"curl", "curl"},
		{"pkill", "procps"},
		{"busybox", "busybox-static"},
		{"keepalived", "keepalived"},
	}
)

// sbin stands behind the caller's PATH: tools like modprobe are installed there
// and an unprivileged user's PATH often lacks it.
var sbin = []string{"/usr/local/sbin", "/usr/sbin", "/sbin"}

func lookPath(program string) (string, bool) {
	if p, err := exec.LookPath(program); err == nil {
		return p, true
	}
	for _, dir := range sbin {
		if p, err := exec.LookPath(dir + "/" + program); err == nil {
			return p, true
		}
	}
	return "", false
}

// missing returns the packages to install for what have does not find, sorted
// and without repeats.
func missing(tools []Tool, have func(program string) bool) []string {
	var need []string
	for _, t := range tools {
		if !have(t.Program) {
			need = append(need, t.Package)
		}
	}
	slices.Sort(need)
	return slices.Compact(need)
}

// Install makes sure that every tool is there. What is missing is installed
// with apt-get when this process is root; otherwise the error lists it.
func Install(ctx context.Context, log io.Writer, tools ...Tool) error {
	have := func(p string) bool { _, ok := lookPath(p); return ok }
	need := missing(tools, have)
	if len(need) == 0 {
		return nil
	}
	advice := "apt-get install --no-install-recommends " + strings.Join(need, " ")
	if os.Geteuid() != 0 {
		return fmt.Errorf("missing packages, and only root can install them: run as root: %s", advice)
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("missing packages, and there is no apt-get here: install what corresponds to: %s", strings.Join(need, " "))
	}
	fmt.Fprintln(log, "installing", strings.Join(need, " "))
	args := append([]string{"install", "-y", "-qq", "--no-install-recommends"}, need...)
	if err := aptGet(ctx, args...); err != nil {
		// Most likely the package lists are absent or stale.
		if err := aptGet(ctx, "update", "-qq"); err != nil {
			return err
		}
		if err := aptGet(ctx, args...); err != nil {
			return err
		}
	}
	if still := missing(tools, have); len(still) > 0 {
		return fmt.Errorf("%s: installed, and yet not found in PATH: %s", advice, strings.Join(still, " "))
	}
	return nil
}

func aptGet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return run(cmd)
}

// run runs a command quietly and puts what it printed into the error.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
