package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// RaiseFileLimit raises the soft limit of open files to the hard one and
// returns what the soft limit now is: each running check needs a descriptor.
// The Go runtime does the same at start in most programs; the scripts that the
// daemon starts get the original limit back from it.
func RaiseFileLimit() (soft uint64, err error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	if l.Cur >= l.Max {
		return l.Cur, nil
	}
	want := unix.Rlimit{Cur: l.Max, Max: l.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &want); err != nil {
		return l.Cur, fmt.Errorf("raise the limit of open files from %d to %d: %w", l.Cur, l.Max, err)
	}
	return want.Cur, nil
}
