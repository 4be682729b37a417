package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.conf")
	text := "virtual_server 192.0.2.1 80 {\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n real_server 10.0.0.1 80 {\n }\n}\n@other nonsense\n"
	if err := os.WriteFile(good, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"a good file is silent":       {[]string{"-t", "-f", good}, 0, ""},
		"clustered as with getopt":    {[]string{"-nltf", good}, 0, ""},
		"conditional line":            {[]string{"-t", "-f", good, "-i", "other"}, 5, `unknown keyword "nonsense"`},
		"strict":                      {[]string{"-t", "--strict", "-f", good, "--config-id=other"}, 5, "nonsense"},
		"json":                        {[]string{"-t", "--json", "-f", good, "-i", "other"}, 5, `"E101"`},
		"missing file":                {[]string{"-t", "-f", dir + "/none"}, 4, "no such file"},
		"version":                     {[]string{"-v"}, 0, "sluiced "},
		"help":                        {[]string{"--help"}, 0, "Exit statuses"},
		"unknown flag":                {[]string{"--vrrp"}, 1, "try: sluiced --help"},
		"a file without -f":           {[]string{good}, 1, "sluiced -f " + good},
		"unknown log level":           {[]string{"--log-level", "loud", "-f", good}, 1, "want debug, info, warn or error"},
		"unknown log format":          {[]string{"--log-format", "xml", "-f", good}, 1, "xml"},
		"a start that cannot succeed": {[]string{"-f", dir + "/none", "--socket", ""}, 4, "not starting"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			status := run(tt.args, &stdout, &stderr)
			out := stdout.String() + stderr.String()
			if status != tt.status || !strings.Contains(out, tt.want) || tt.want == "" && out != "" {
				t.Errorf("status %d, want %d and %q:\n%s", status, tt.status, tt.want, out)
			}
		})
	}
}
