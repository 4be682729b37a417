package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/build"
	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/doctor"
	"github.com/sluice-lb/sluice/internal/host"
	"github.com/sluice-lb/sluice/internal/host/filter"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// DoctorOptions says what Doctor looks at.
type DoctorOptions struct {
	// File is the configuration, "" for the running daemon's.
	File string
	// ConfigID is for conditional lines (@ID); "" is the running daemon's, else the
	// host name up to a dot.
	ConfigID string
	// Socket is the control socket's path.
	Socket string
}

// Doctor examines this machine for a configuration and for the daemon that runs, if
// one does. It changes nothing. The error is that of a configuration of no use.
func Doctor(ctx context.Context, opts DoctorOptions) (*doctor.Report, error) {
	in := doctor.Input{Version: build.String(), Socket: opts.Socket, StateDir: DefaultStateDir, File: opts.File, GuardTable: filter.GuardTable}
	pid := askDaemon(ctx, &in)
	flags := commandLineOf(pid)
	if flags.stateDir != nil {
		in.StateDir = *flags.stateDir
	}
	if in.File == "" && in.Daemon != nil {
		in.File = in.Daemon.ConfigFile
		if cwd, err := os.Readlink(procOf(pid, "cwd")); err == nil && !filepath.IsAbs(in.File) {
			in.File = filepath.Join(cwd, in.File)
		}
		if opts.ConfigID == "" {
			opts.ConfigID = flags.id
		}
	}
	if in.File != "" {
		cfg, found := load(Options{File: in.File, ConfigID: opts.ConfigID})
		if err := usable(found, false); err != nil {
			return nil, fmt.Errorf("%w\n  see: sluice check %s", err, in.File)
		}
		in.Config = cfg
	}
	query := doctor.Ask(in.Config)
	query.PID = pid
	query.Paths = append(query.Paths, in.Socket)
	if in.StateDir != "" {
		query.Paths = append(query.Paths, in.StateDir)
	}
	where := lookInto(&in, pid)
	err := inNamespace(where, func() { in.Facts = host.Machine{}.Facts(query) })
	if err != nil {
		// The rest is this namespace's, and would mislead.
		in.NamespaceUnknown = err.Error()
		in.Facts = host.Machine{}.Facts(query)
		in.Facts.Blind("network namespace " + in.Namespace + " cannot be entered")
		return doctor.Examine(in), nil
	}
	askTable(ctx, &in, where)
	return doctor.Examine(in), nil
}

// askDaemon asks the running daemon, and returns its process, 0 for none.
func askDaemon(ctx context.Context, in *doctor.Input) (pid int) {
	c := control.NewClient(in.Socket)
	pid, err := c.PID(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return 0
	case err != nil:
		in.DaemonUnknown = err.Error()
		return 0
	}
	s, err := c.Status(ctx)
	if err != nil {
		in.DaemonUnknown = err.Error()
		return pid
	}
	d := &doctor.Daemon{Version: s.Version, PID: pid, ConfigFile: s.ConfigFile, Observe: s.Observe}
	if !s.Kernel.OK {
		d.KernelError = s.Kernel.Error
		if d.KernelError == "" {
			d.KernelError = "the table has not been reached yet"
		}
	}
	if !s.Reload.OK && !s.Reload.At.IsZero() {
		d.ReloadError = s.Reload.Error
	}
	if p := s.Passive; p != nil && p.On {
		for _, by := range p.Sources {
			if d.Passive != "" {
				d.Passive += ", and "
			}
			if d.Passive += "by " + by.Who; by.Why != "" {
				d.Passive += ": " + by.Why
			}
		}
	}
	if s.Edge != nil {
		for _, f := range s.Edge.Failures {
			d.Failures = append(d.Failures, f.Feature+": "+f.Reason)
		}
	}
	for i := range s.VirtualServers {
		if vs := &s.VirtualServers[i]; !vs.QuorumUp {
			if d.NoQuorum == nil {
				d.NoQuorum = map[string]bool{}
			}
			d.NoQuorum[vs.Name] = true
		}
	}
	in.Daemon = d
	return pid
}

func procOf(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// daemonFlags are the options of a running daemon that count here.
type daemonFlags struct {
	stateDir *string
	id       string
}

func commandLineOf(pid int) (f daemonFlags) {
	if pid == 0 {
		return f
	}
	b, err := os.ReadFile(procOf(pid, "cmdline"))
	if err != nil {
		return f
	}
	return flagsOf(strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"))
}

func flagsOf(args []string) (f daemonFlags) {
	for i, a := range args {
		name, value, joined := strings.Cut(a, "=")
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		switch name {
		case "--state-dir":
			f.stateDir = &value
		case "-i", "--config-id":
			f.id = value
		}
	}
	return f
}

// lookInto decides in which network namespace packets are balanced, and says so in
// the input; "" is this one.
func lookInto(in *doctor.Input, pid int) (path string) {
	if cfg := in.Config; cfg != nil {
		name := cfg.Global.NetNamespace
		path, err := ipvsNamespace(cfg)
		if cfg.Global.NetNamespaceIPVSSet {
			name = cfg.Global.NetNamespaceIPVS
		} else if name != "" {
			path, err = host.NamespacePath(name)
		}
		switch {
		case err != nil:
			in.Namespace, in.Enter = name, "ip netns exec "+name
			return filepath.Join("/run/netns", name) // whose absence is then the reason
		case name != "":
			in.Namespace, in.Enter = name, "ip netns exec "+name
			return path
		case path != "":
			in.Namespace, in.Enter = "of process 1", "nsenter --net="+path
			return same(in, path)
		}
	}
	if pid == 0 {
		return ""
	}
	path = procOf(pid, "ns/net")
	in.Namespace, in.Enter = fmt.Sprintf("of process %d", pid), "nsenter --net="+path
	return same(in, path)
}

// same returns "" for the namespace that we are in, or may not compare with ours.
func same(in *doctor.Input, path string) string {
	theirs, err := os.Readlink(path)
	ours, oerr := os.Readlink("/proc/self/ns/net")
	if err == nil && oerr == nil && theirs != ours {
		return path
	}
	in.Namespace, in.Enter = "", ""
	if err = errors.Join(err, oerr); err != nil {
		in.NamespaceUnknown = fmt.Sprintf("%v; run as root; what follows is of this network namespace", err)
	}
	return ""
}

// askTable reads the kernel's connection timeouts, and what of connection
// synchronisation runs, without loading its module.
func askTable(ctx context.Context, in *doctor.Input, path string) {
	timeouts, halves, err := tableSettings(ctx, in.Facts.Table.Present, path)
	if err != nil {
		why := err.Error()
		if errors.Is(err, fs.ErrPermission) {
			why += "; run as root"
		}
		in.TimeoutsUnknown, in.SyncUnknown = why, why
		return
	}
	is := doctor.Timeouts(timeouts)
	in.Timeouts = &is
	for _, h := range halves {
		in.Sync = append(in.Sync, doctor.SyncHalf{State: h.State.String(), Interface: h.Interface, ID: h.SyncID})
	}
}

func tableSettings(ctx context.Context, present bool, path string) (t ipvs.Timeouts, halves []ipvs.SyncDaemon, err error) {
	if !present {
		return t, nil, errors.New("ip_vs is not in the kernel")
	}
	var opts []ipvs.Option
	if path != "" {
		opts = append(opts, ipvs.WithNetNS(path))
	}
	c, err := ipvs.Dial(opts...)
	if err != nil {
		return t, nil, err
	}
	defer c.Close()
	if t, err = c.Timeouts(ctx); err != nil {
		return t, nil, err
	}
	halves, err = c.SyncDaemons(ctx)
	return t, halves, err
}
