package daemon

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetProgram unmaps the pages of the program itself: most of what a start and a
// reload run through (the parser, a hundred keywords) is not looked at again for weeks,
// and what is comes back from the page cache by itself, page by page. What is not
// written to can be dropped without loss (madvise(2), MADV_DONTNEED).
func forgetProgram() error {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to uintptr
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); err != nil || strings.Contains(mode, "w") || !strings.HasSuffix(lines.Text(), self) {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return os.NewSyscallError("madvise", errno)
		}
	}
	return nil
}
