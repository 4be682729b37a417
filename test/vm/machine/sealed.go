package machine

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// sealedPackages is what a sealed guest has besides Debian's smallest set.
func sealedPackages() []string {
	names := []string{"kmod", "netbase"} // and the names of protocols, for nft
	for _, t := range TestTools {
		names = append(names, t.Package)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// leftOut are folders of a system that no test reads.
var leftOut = []string{
	"dev", "proc", "sys", "run", "boot", "var/cache", "var/lib/apt", "var/log",
	"usr/share/doc", "usr/share/locale", "usr/share/man", "usr/share/info", "usr/share/bash-completion", "usr/share/perl", "usr/share/perl5", "usr/lib/x86_64-linux-gnu/gconv",
}

// sealedModules are the folders of a kernel's modules that a guest without hardware can
// use, "/." where those below do not count.
var sealedModules = []string{"kernel/net", "kernel/lib", "kernel/crypto", "kernel/arch", "kernel/drivers/net/."}

// packTree writes the root of a sealed guest: the system, the kernel's modules, what the
// command is to see of this machine under the same paths, and the command's script.
func packTree(to string, c Config, k kernel, system, script string) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(f, 1<<20)
	p := packer{tar: tar.NewWriter(buffered)}
	p.folder(system, "", func(path string) bool { return slices.Contains(leftOut, path) })
	modules := filepath.Join("lib/modules", k.version)
	from := filepath.Join(k.root, modules)
	p.folder(from, filepath.Join("usr", modules), func(path string) bool { return !wantsModule(path) })
	for _, path := range c.Files {
		p.folder(path, strings.TrimPrefix(path, "/"), nil)
	}
	p.file("guest", 0o755, []byte(script))
	return errors.Join(p.err, p.tar.Close(), buffered.Flush(), f.Close())
}

// wantsModule says whether a path below a kernel's modules is packed: indexes, and what
// sealedModules name, with the folders that lead there.
func wantsModule(path string) bool {
	if !strings.Contains(path, "/") && strings.HasPrefix(path, "modules.") {
		return true
	}
	for _, want := range sealedModules {
		dir, flat := strings.CutSuffix(want, "/.")
		switch {
		case path == dir, strings.HasPrefix(dir, path+"/"):
			return true
		case flat && filepath.Dir(path) == dir && strings.HasSuffix(path, ".ko"):
			return true
		case !flat && strings.HasPrefix(path, dir+"/"):
			return true
		}
	}
	return false
}

// packer writes a tar file; the first error sticks.
type packer struct {
	tar *tar.Writer
	err error
}

func (p *packer) file(name string, mode int64, data []byte) {
	p.header(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))})
	if p.err == nil {
		_, p.err = p.tar.Write(data)
	}
}

func (p *packer) header(h *tar.Header) {
	// GNU's format without the times for which it has room where others have a name's
	// start: what busybox reads, whatever the length of a name.
	h.Format, h.AccessTime, h.ChangeTime = tar.FormatGNU, time.Time{}, time.Time{}
	if p.err == nil {
		p.err = p.tar.WriteHeader(h)
	}
}

// folder packs what is at from under a name, without what skip names by its path below.
// What vanishes meanwhile, as another run's work folder may, is left out.
func (p *packer) folder(from, name string, skip func(path string) bool) {
	if p.err != nil {
		return
	}
	// The folders that lead to it.
	for i, c := range name {
		if c == '/' {
			p.header(&tar.Header{Typeflag: tar.TypeDir, Name: name[:i], Mode: 0o755})
		}
	}
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path != from && errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if below != "." && skip != nil && skip(below) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err := p.entry(path, filepath.Join(name, below)); err != nil && (path == from || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
		return nil
	})
	if p.err == nil {
		p.err = err
	}
}

func (p *packer) entry(path, name string) error {
	info, err := os.Lstat(path)
	if err != nil || name == "." {
		return err
	}
	target := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	case !info.Mode().IsRegular() && !info.IsDir():
		return nil
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name = name
	// Names of owners are this machine's.
	h.Uname, h.Gname = "", ""
	if !info.Mode().IsRegular() {
		p.header(h)
		return p.err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	p.header(h)
	if p.err != nil {
		return p.err
	}
	if _, err := io.CopyN(p.tar, f, h.Size); err != nil {
		return fmt.Errorf("pack %s: %w", path, err)
	}
	return nil
}
