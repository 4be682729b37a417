package host

import "context"

// LoadModule makes sure that a module is in the kernel, with modprobe if it has to: one
// that the kernel does not load by itself when it is needed.
func LoadModule(ctx context.Context, name string) error {
	l := ipvsLoader()
	l.name, l.proc = name, "/sys/module/"+name
	return l.load(ctx)
}
