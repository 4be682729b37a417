package trackfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/config"
)

func TestWriteInit(t *testing.T) {
	for _, tc := range []struct {
		name      string
		before    string // "" for no file
		set       bool
		overwrite bool
		want      string
	}{
		{"not asked for", "", false, false, ""},
		{"missing", "", true, false, "-5\n"},
		{"there already", "7", true, false, "7"},
		{"there already, overwrite", "7", true, true, "-5\n"},
		{"missing, overwrite", "", true, true, "-5\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			if tc.before != "" {
				if err := os.WriteFile(path, []byte(tc.before), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			tf := &config.TrackFile{Name: "t", Path: path, Init: -5, InitSet: tc.set, InitOverwrite: tc.overwrite}
			if err := WriteInit(tf); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if tc.want == "" {
				if !os.IsNotExist(err) {
					t.Fatalf("a file was written: %q, %v", got, err)
				}
				return
			}
			if string(got) != tc.want {
				t.Errorf("content %q, want %q", got, tc.want)
			}
			if fi, err := os.Stat(path); err == nil && tc.want == "-5\n" && fi.Mode().Perm() != 0o600 {
				t.Errorf("mode %v, want 0600", fi.Mode())
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func TestWriteInitFollowsALink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	if err := WriteInit(&config.TrackFile{Path: link, Init: 9, InitSet: true, InitOverwrite: true}); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(target); string(b) != "9\n" {
		t.Errorf("target holds %q, want 9", b)
	}
	if fi, err := os.Lstat(link); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", fi, err)
	}
}

func TestWriteInitErrors(t *testing.T) {
	dir := t.TempDir()
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink("none", dangling); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ path, want string }{
		{dir, "is not a regular file"},
		{dangling, "is not a regular file"},
		{filepath.Join(dir, "none", "file"), "no such file or directory"},
	} {
		err := WriteInit(&config.TrackFile{Name: "t", Path: tc.path, InitSet: true, InitOverwrite: true})
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "track_file t") {
			t.Errorf("%s: error %v, want %q", tc.path, err, tc.want)
		}
	}
}
