package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// modprobeTimeout bounds one run of modprobe: loading waits for the module's
// own initialisation, which takes milliseconds.
const modprobeTimeout = 10 * time.Second

// LoadIPVS makes sure that the ip_vs module is in the kernel, with modprobe if it
// has to. Scheduler modules need no such care: the kernel loads ip_vs_NAME by
// itself when a service first names it.
func LoadIPVS(ctx context.Context) error { return ipvsLoader().load(ctx) }

func ipvsLoader() loader {
	return loader{
		name:     "ip_vs",
		proc:     "/proc/net/ip_vs",
		modprobe: []string{"/sbin/modprobe", "/usr/sbin/modprobe", "/bin/modprobe", "/usr/bin/modprobe"},
		marks:    containerMarks,
		timeout:  modprobeTimeout,
	}
}

// containerMarks are files that container runtimes leave inside.
var containerMarks = []string{"/run/.containerenv", "/.dockerenv", "/run/systemd/container"}

type loader struct {
	name string
	// proc is there exactly when the module is.
	proc string
	// modprobe are full paths: a daemon's PATH need not have them, and nothing
	// else of that name is to be run as root.
	modprobe []string
	// marks are files that container runtimes leave inside.
	marks   []string
	timeout time.Duration
}

func (l loader) load(ctx context.Context) error {
	if exists(l.proc) {
		return nil
	}
	tool := ""
	for _, p := range l.modprobe {
		if exists(p) {
			tool = p
			break
		}
	}
	if tool == "" {
		return l.failed(errors.New("modprobe is not installed"))
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	// -b: an administrator's blacklist holds for us too.
	cmd := exec.CommandContext(ctx, tool, "-b", l.name)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	switch text := strings.Join(strings.Fields(out.String()), " "); {
	case ctx.Err() != nil:
		return l.failed(fmt.Errorf("%s did not end in %v: %w", tool, l.timeout, ctx.Err()))
	case err != nil && text != "":
		return l.failed(fmt.Errorf("%s: %w: %.300s", tool, err, text))
	case err != nil:
		return l.failed(fmt.Errorf("%s: %w", tool, err))
	case !exists(l.proc):
		return l.failed(fmt.Errorf("%s reported success, but %s is not there (blacklisted?)", tool, l.proc))
	}
	return nil
}

// failed adds what to do to what went wrong.
func (l loader) failed(err error) error {
	hint := "install the kernel's module package, or run: modprobe " + l.name
	if slices.ContainsFunc(l.marks, exists) {
		hint = "this is a container: run modprobe " + l.name + " on the host"
	}
	return fmt.Errorf("load the %s module: %w; %s", l.name, err, hint)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
