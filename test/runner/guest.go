package runner

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Prepare loads modules and returns the kernel's release. Of those that are only wanted
// some kernels lack one. It is for before the first run: loading takes an emulated machine
// long enough to disturb what is measured.
func Prepare(ctx context.Context, needed, wanted []string) (kernel string, err error) {
	for _, m := range needed {
		if out, err := exec.CommandContext(ctx, "modprobe", m).CombinedOutput(); err != nil {
			return "", fmt.Errorf("modprobe %s: %w: %s", m, err, out)
		}
	}
	for _, m := range wanted {
		_ = exec.CommandContext(ctx, "modprobe", m).Run()
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(release)), err
}
