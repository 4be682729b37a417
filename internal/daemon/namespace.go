package daemon

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/host"
)

// reexecuted marks a process that has entered net_namespace already.
const reexecuted = "SLUICED_NET_NAMESPACE"

// enterNamespace moves the whole process into net_namespace. A namespace belongs
// to a thread and Go starts threads as it likes, so the one way that holds for all
// of them is to enter it on one thread and execute this program again from there.
func enterNamespace(cfg *config.Config) error {
	name := cfg.Global.NetNamespace
	if name == "" || os.Getenv(reexecuted) == name {
		return nil
	}
	path, err := host.NamespacePath(name)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program to execute it in namespace %s: %w", name, err)
	}
	// The thread is never unlocked: if the exec fails it must not be used again.
	runtime.LockOSThread()
	if err := setns(path); err != nil {
		return err
	}
	return fmt.Errorf("execute %s in namespace %s: %w", self, name, unix.Exec(self, os.Args, append(os.Environ(), reexecuted+"="+name)))
}

func setns(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}

// inNamespace runs f on a thread of its own in the namespace, or here for "".
func inNamespace(path string, f func()) error {
	if path == "" {
		f()
		return nil
	}
	done := make(chan error)
	go func() {
		// Not unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		err := setns(path)
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}

// ipvsNamespace returns the path of the namespace whose table is written, "" for
// the process's own. An empty net_namespace_ipvs is the machine's default one.
func ipvsNamespace(cfg *config.Config) (string, error) {
	switch g := cfg.Global; {
	case !g.NetNamespaceIPVSSet:
		return "", nil
	case g.NetNamespaceIPVS == "":
		return "/proc/1/ns/net", nil
	default:
		return host.NamespacePath(g.NetNamespaceIPVS)
	}
}
