package trackfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many symbolic links the kernel follows in one path.
const maxLinks = 40

// walk goes the way that the kernel goes from the root to an absolute path. For
// each name that is looked up it calls visit, before the look-up, with the
// resolved directory and the name. It stops at the first name that is missing
// or is no directory, so that what was visited is exactly what the file's
// content depends on: watching each directory for each name misses nothing.
func walk(path string, visit func(dir, name string)) {
	dir, rest := "/", split(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			dir = filepath.Dir(dir)
			continue
		}
		visit(dir, name)
		full := filepath.Join(dir, name)
		fi, err := os.Lstat(full)
		switch {
		case err != nil:
			return
		case fi.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(full)
			if links++; err != nil || links > maxLinks {
				return
			}
			if filepath.IsAbs(target) {
				dir = "/"
			}
			rest = append(split(target), rest...)
		case fi.IsDir():
			dir = full
		default:
			return
		}
	}
}

// split returns the names of a path, without empty ones and dots.
func split(path string) []string {
	var names []string
	for n := range strings.SplitSeq(path, "/") {
		if n != "" && n != "." {
			names = append(names, n)
		}
	}
	return names
}
