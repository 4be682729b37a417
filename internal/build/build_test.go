package build

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	info := func(main string, settings ...string) *debug.BuildInfo {
		bi := &debug.BuildInfo{Main: debug.Module{Version: main}}
		for i := 0; i < len(settings); i += 2 {
			bi.Settings = append(bi.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return bi
	}
	for _, tc := range []struct {
		name, linked string
		info         *debug.BuildInfo
		want         string
	}{
		{"a release", "0.3.0", info("v9.9.9"), "0.3.0"},
		{"no information", "", nil, "devel"},
		{"go test", "", info("(devel)"), "devel"},
		{"go install", "", info("v0.3.1"), "0.3.1"},
		{"a clean checkout", "", info("v0.3.2-0.20261130101112-0123456789ab",
			"vcs.revision", "0123456789abcdef0123", "vcs.modified", "false"), "devel-0123456789ab"},
		{"a changed checkout", "", info("", "vcs.revision", "0123", "vcs.modified", "true"), "devel-0123-dirty"},
	} {
		if got := version(tc.linked, tc.info); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	if String() == "" {
		t.Error("String is empty")
	}
}
