// Package build knows which version of sluice this is, and nothing else.
//
// A release sets Version with the linker:
//
//	go build -ldflags "-X github.com/sluice-lb/sluice/internal/build.Version=0.3.0"
//
// Any other build is named by what the Go tool chain recorded of it.
package build

import (
	"runtime/debug"
	"strings"
)

// Version is set by the linker for a release; "" otherwise.
var Version string

// String returns Version, or else the module's version with "go install ...@v",
// or else "devel" with the commit's first 12 digits and "-dirty" for changes
// that are not committed.
func String() string {
	info, _ := debug.ReadBuildInfo()
	return version(Version, info)
}

func version(linked string, info *debug.BuildInfo) string {
	if linked != "" {
		return linked
	}
	if info == nil {
		return "devel"
	}
	var revision string
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	// A checkout has a pseudo version made of the same facts, but longer.
	if v := info.Main.Version; revision == "" && v != "" && v != "(devel)" {
		return strings.TrimPrefix(v, "v")
	}
	s := "devel"
	if revision != "" {
		s += "-" + revision[:min(12, len(revision))]
	}
	if dirty {
		s += "-dirty"
	}
	return s
}
