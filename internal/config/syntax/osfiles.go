package syntax

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// OS resolves real files.
type OS struct{}

// Open opens a file for reading. It does not wait for the writer of a FIFO
// that took a file's place.
func (OS) Open(name string) (io.ReadCloser, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// Stat describes a file.
func (OS) Stat(name string) (FileInfo, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return FileInfo{}, err
	}
	info := FileInfo{Mode: fi.Mode()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		info.ID = fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	}
	return info, nil
}

// ReadDir returns the names in a directory.
func (OS) ReadDir(dir string) ([]string, error) {
	if dir == "" {
		dir = "."
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// Abs returns the absolute form of a name.
func (OS) Abs(name string) (string, error) { return filepath.Abs(name) }
