package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// kernel is an unpacked kernel package: root/boot/vmlinuz-version and
// root/lib/modules/version with plain .ko files and depmod's indexes.
type kernel struct{ root, version string }

func (k kernel) image() string { return filepath.Join(k.root, "boot", "vmlinuz-"+k.version) }

// metaPackages are the distributions' "newest stock kernel": Debian's, then
// Ubuntu's.
var metaPackages = []string{"linux-image-amd64", "linux-image-generic"}

// CacheDir is where fetched kernels are kept: sluice-vm in the user's cache
// directory ($XDG_CACHE_HOME, else ~/.cache).
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "sluice-vm"), nil
}

// suiteDir is the part of the cache that belongs to a suite.
func suiteDir(suite string) (string, error) {
	dir, err := CacheDir()
	if err != nil {
		return "", err
	}
	if suite == "" {
		suite = "stock"
	}
	dir = filepath.Join(dir, suite)
	return dir, os.MkdirAll(dir, 0o755)
}

// foreign is "" for the release that runs here: its packages come from the machine's
// own sources, and are fetched once under whichever name.
func foreign(suite string) string {
	if here, err := codename(); err == nil && here == suite {
		return ""
	}
	return suite
}

// fetchKernel returns the kernel of a suite from the cache, after fetching it
// on first use. A lock lets several runs start at once on an empty cache.
func fetchKernel(ctx context.Context, log io.Writer, suite string) (kernel, error) {
	suite = foreign(suite)
	cache, err := suiteDir(suite)
	if err != nil {
		return kernel{}, err
	}
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return kernel{}, err
	}
	defer unlock()

	root := filepath.Join(cache, "kernel")
	if version, err := os.ReadFile(filepath.Join(root, "version")); err == nil {
		return kernel{root, strings.TrimSpace(string(version))}, nil
	}
	fmt.Fprintln(log, "fetching the stock kernel, once, into", cache)
	apt, err := newApt(ctx, suite, cache)
	if err != nil {
		return kernel{}, err
	}
	packages, err := apt.kernelPackages(ctx)
	if err != nil {
		return kernel{}, err
	}
	// Unpacked beside and renamed, so that a killed run leaves no half kernel.
	tmp, err := os.MkdirTemp(cache, "unpack-")
	if err != nil {
		return kernel{}, err
	}
	defer os.RemoveAll(tmp)
	for _, p := range packages {
		if err := apt.unpack(ctx, p, tmp); err != nil {
			return kernel{}, err
		}
	}
	version, err := prepareModules(ctx, tmp)
	if err != nil {
		return kernel{}, err
	}
	if err := os.WriteFile(filepath.Join(tmp, "version"), []byte(version+"\n"), 0o644); err != nil {
		return kernel{}, err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return kernel{}, err
	}
	if err := os.RemoveAll(root); err != nil {
		return kernel{}, err
	}
	return kernel{root, version}, os.Rename(tmp, root)
}

func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// apt is apt-get and apt-cache with the options that select a suite.
type apt struct{ options []string }

// newApt returns the machine's own apt for "", else a private one whose lists
// and archives live in the cache, so that the machine's sources stay as they
// are.
func newApt(ctx context.Context, suite, cache string) (apt, error) {
	if suite == "" {
		return apt{}, nil
	}
	mirror, err := mirrorURL(ctx)
	if err != nil {
		return apt{}, err
	}
	dir := filepath.Join(cache, "apt")
	for _, d := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return apt{}, err
		}
	}
	list := filepath.Join(dir, "sources.list")
	line := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror, suite)
	if err := os.WriteFile(list, []byte(line), 0o644); err != nil {
		return apt{}, err
	}
	return apt{[]string{
		"-o", "Dir::Etc::SourceList=" + list,
		"-o", "Dir::Etc::SourceParts=/dev/null",
		"-o", "Dir::State::Lists=" + filepath.Join(dir, "lists"),
		"-o", "Dir::Cache=" + dir,
	}}, nil
}

// mirrorURL asks apt where the machine's own packages come from; the security
// archive has no other suite's kernels and is passed over.
func mirrorURL(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)").Output()
	if err != nil {
		return "", fmt.Errorf("ask apt for its mirror: %w", err)
	}
	for url := range strings.FieldsSeq(string(out)) {
		if !strings.Contains(url, "security") {
			return url, nil
		}
	}
	return "", errors.New("ask apt for its mirror: no sources; run apt-get update")
}

var (
	imagePackage  = regexp.MustCompile(`^linux-image-(unsigned-)?[0-9]`)
	modulePackage = regexp.MustCompile(`^linux-modules(-extra)?-[0-9]`)
)

// kernelPackages resolves the meta package into the packages to unpack. Debian
// has modules and image in one; Ubuntu has the modules apart.
func (a apt) kernelPackages(ctx context.Context) ([]string, error) {
	image := a.image(ctx)
	if image == "" {
		if err := aptGet(ctx, append(a.options, "update", "-qq")...); err != nil {
			return nil, err
		}
		if image = a.image(ctx); image == "" {
			return nil, fmt.Errorf("none of %s is known to apt", strings.Join(metaPackages, ", "))
		}
	}
	packages := []string{image}
	for _, p := range a.depends(ctx, image, modulePackage) {
		packages = append(packages, p)
		extra := strings.Replace(p, "linux-modules-", "linux-modules-extra-", 1)
		if extra != p && a.exists(ctx, extra) {
			packages = append(packages, extra)
		}
	}
	return packages, nil
}

func (a apt) image(ctx context.Context) string {
	for _, meta := range metaPackages {
		if d := a.depends(ctx, meta, imagePackage); len(d) > 0 {
			return d[0]
		}
	}
	return ""
}

// depends lists what a package depends on; nothing for an unknown package.
func (a apt) depends(ctx context.Context, name string, want *regexp.Regexp) []string {
	out, err := exec.CommandContext(ctx, "apt-cache", append(a.options, "depends", name)...).Output()
	if err != nil {
		return nil
	}
	return parseDepends(string(out), want)
}

func parseDepends(out string, want *regexp.Regexp) []string {
	var names []string
	for line := range strings.Lines(out) {
		_, name, ok := strings.Cut(line, "Depends: ")
		if name = strings.TrimSpace(name); ok && want.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

func (a apt) exists(ctx context.Context, name string) bool {
	out, err := exec.CommandContext(ctx, "apt-cache", append(a.options, "show", name)...).Output()
	return err == nil && len(out) > 0
}

// unpack downloads one package and extracts it into root.
func (a apt) unpack(ctx context.Context, name, root string) error {
	dir, err := os.MkdirTemp(root, "deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	download := func() error {
		cmd := exec.CommandContext(ctx, "apt-get", append(a.options, "download", "-qq", name)...)
		cmd.Dir = dir
		return run(cmd)
	}
	if err := download(); err != nil {
		// The lists may name a version that the archive has replaced.
		if err := aptGet(ctx, append(a.options, "update", "-qq")...); err != nil {
			return err
		}
		if err := download(); err != nil {
			return err
		}
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("download %s: got %d packages, want 1", name, len(debs))
	}
	return run(exec.CommandContext(ctx, "dpkg-deb", "-x", debs[0], root))
}

// prepareModules brings an unpacked tree into the shape that kernel promises:
// one version, modules that a bare insmod can load, indexes for modprobe.
func prepareModules(ctx context.Context, root string) (version string, err error) {
	lib := filepath.Join(root, "lib")
	if _, err := os.Lstat(lib); errors.Is(err, fs.ErrNotExist) {
		if err := os.Symlink("usr/lib", lib); err != nil { // merged /usr
			return "", err
		}
	}
	versions, err := filepath.Glob(filepath.Join(lib, "modules", "*"))
	if err != nil || len(versions) != 1 {
		return "", fmt.Errorf("%s/modules: %d kernel versions, want 1", lib, len(versions))
	}
	version = filepath.Base(versions[0])
	packed := map[string][]string{}
	err = filepath.WalkDir(versions[0], func(path string, _ fs.DirEntry, err error) error {
		if ext := filepath.Ext(path); ext == ".xz" || ext == ".zst" {
			packed[ext] = append(packed[ext], path)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	unpackers := map[string][]string{".xz": {"xz", "-d", "-T0"}, ".zst": {"zstd", "-d", "-q", "--rm"}}
	for ext, files := range packed {
		for len(files) > 0 {
			n := min(len(files), 500)
			argv := append(unpackers[ext], files[:n]...)
			if err := run(exec.CommandContext(ctx, argv[0], argv[1:]...)); err != nil {
				return "", err
			}
			files = files[n:]
		}
	}
	depmod, _ := lookPath("depmod")
	return version, run(exec.CommandContext(ctx, depmod, "-b", root, version))
}
