package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLibraries(t *testing.T) {
	t.Parallel()
	const depends = `daemon
  Depends: libc6
  Depends: libssl3t64
 |Depends: default-mta
  Depends: <virtual>
libc6
  Depends: libgcc-s1
libgcc-s1
  Depends: gcc-14-base
  Depends: libc6
<virtual>
libssl3t64
libc6
gcc-14-base
libstdc++6
`
	want := []string{"libc6", "libgcc-s1", "libssl3t64", "libstdc++6"}
	if diff := cmp.Diff(want, libraries(depends)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLoader(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if got, err := Loader(root); err == nil {
		t.Errorf("an empty tree has the loader %v", got)
	}
	for _, dir := range []string{"usr/lib64", "usr/lib/x86_64-linux-gnu"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	loader := filepath.Join(root, "usr/lib64/ld-linux-x86-64.so.2")
	if err := os.WriteFile(loader, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := Loader(root)
	want := []string{loader, "--library-path", filepath.Join(root, "usr/lib/x86_64-linux-gnu")}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

// TestForeign: this release's packages have one place in the cache, with and without
// its name; another release's have their own.
func TestForeign(t *testing.T) {
	t.Parallel()
	here, err := codename()
	if err != nil {
		t.Skip(err)
	}
	for suite, want := range map[string]string{"": "", here: "", "another": "another"} {
		if got := foreign(suite); got != want {
			t.Errorf("foreign(%q) is %q, want %q", suite, got, want)
		}
	}
}
