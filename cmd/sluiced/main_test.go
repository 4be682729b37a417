package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// files writes a file without findings, one with a wrong line for machine other,
// and one with an include of nothing.
func files(t *testing.T) (dir, good, missing string) {
	t.Helper()
	dir = t.TempDir()
	good, missing = filepath.Join(dir, "good.conf"), filepath.Join(dir, "missing.conf")
	text := "virtual_server 192.0.2.1 80 {\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n real_server 10.0.0.1 80 {\n }\n}\n@other nonsense\n"
	for path, text := range map[string]string{good: text, missing: "include " + dir + "/none.conf\n" + text} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, good, missing
}

func TestFlags(t *testing.T) {
	dir, good, missing := files(t)
	for name, tt := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"a good file is silent":       {[]string{"-t", "-f", good}, 0, ""},
		"clustered":                   {[]string{"-nltf", good}, 0, ""},
		"a whole unit's line":         {[]string{"-t", "-nlDCR", "-S", "local0", "-x", "-p", dir + "/a.pid", "--release-vips", "-f", good}, 0, ""},
		"conditional line":            {[]string{"-t", "-f", good, "-i", "other"}, 5, `unknown keyword "nonsense"`},
		"strict":                      {[]string{"-t", "--strict", "-f", good, "--config-id=other"}, 5, "nonsense"},
		"json":                        {[]string{"-t", "--json", "-f", good, "-i", "other"}, 5, `"E101"`},
		"missing file":                {[]string{"-t", "-f", dir + "/none"}, 4, "no such file"},
		"a missing include":           {[]string{"-t", "-f", missing, "--all-config"}, 6, "none.conf"},
		"version":                     {[]string{"-v"}, 0, "sluiced "},
		"help":                        {[]string{"--help"}, 0, "Exit statuses"},
		"help of values":              {[]string{"-h"}, 0, "  -t, --config-test[=LOG]  "},
		"help of switches":            {[]string{"-h"}, 0, "  -I, --dont-release-ipvs         leave"},
		"signal":                      {[]string{"--signum=RELOAD"}, 0, "1\n"},
		"signal of VRRP":              {[]string{"--signum=STATS"}, 1, "sluice status"},
		"unknown option":              {[]string{"--nonsense"}, 1, "sluiced: unknown option --nonsense\ntry: sluiced --help\n"},
		"VRRP":                        {[]string{"-P", "-f", good}, 1, "sluiced: --vrrp: sluiced runs no VRRP: keep keepalived --vrrp for it"},
		"genhash":                     {[]string{"-T"}, 1, "sluiced: --genhash: which page?"},
		"genhash's help":              {[]string{"--genhash", "-h"}, 0, "-V, --use-virtualhost=HOST"},
		"genhash behind":              {[]string{"-n", "-T"}, 1, "--genhash must be the first option"},
		"genhash of nobody":           {[]string{"-T", "-s", "127.0.0.1", "-p", "1", "-u", "/"}, 1, "at stage connect"},
		"a file without -f":           {[]string{good}, 1, "sluiced -f " + good},
		"unknown log level":           {[]string{"--log-level", "loud", "-f", good}, 1, "want debug, info, warn or error"},
		"unknown log format":          {[]string{"--log-format", "xml", "-f", good}, 1, "xml"},
		"a start that cannot succeed": {[]string{"-f", dir + "/none", "--socket", ""}, 4, "not starting"},
		"notes come with the start":   {[]string{"-x", "--observe", "-f", good, "--socket", "/dev/null/s"}, 1, "SNMP is not served"},
		"a pid file that cannot be":   {[]string{"-p", "/dev/null/pid", "--observe", "-f", good, "--socket", ""}, 1, "name another with -p or -c"},
		"a log without a file":        {[]string{"-g", "--observe", "-f", good, "--socket", "/dev/null/s"}, 1, "no file is named"},
		"a log that cannot be":        {[]string{"--log-file=" + dir + "/no/log", "-f", good}, 1, "sluiced: --log-file: open"},
		"a test log that cannot be":   {[]string{"--config-test=" + dir + "/no/log", "-f", good}, 1, "sluiced: --config-test: open"},
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

// TestLogs: findings and log go to the end of a file, and nowhere else; a link in
// its place is not followed.
func TestLogs(t *testing.T) {
	dir, good, _ := files(t)
	found, log, link := dir+"/found.log", dir+"/sluiced.log", dir+"/link.log"
	for _, path := range []string{found, log} {
		if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   []string
		status int
		file   string
		want   string
	}{
		{[]string{"-t" + found, "-i", "other", "-f", good}, 5, found, "nonsense"},
		{[]string{"-g" + log, "-f", dir + "/none", "--socket", ""}, 4, log, "not starting"},
	} {
		var stdout, stderr bytes.Buffer
		status := run(tt.args, &stdout, &stderr)
		b, err := os.ReadFile(tt.file)
		if err != nil {
			t.Fatal(err)
		}
		text, before := strings.CutPrefix(string(b), "before\n")
		if status != tt.status || !before || !strings.Contains(text, tt.want) || stdout.Len()+stderr.Len() > 0 {
			t.Errorf("%q: status %d, want %d; the file has\n%s\nand besides it there is\n%s%s", tt.args, status, tt.status, b, &stdout, &stderr)
		}
	}
	var out bytes.Buffer
	if status := run([]string{"-t" + link, "-f", good}, &out, &out); status != 1 || !strings.Contains(out.String(), link) {
		t.Errorf("a link: status %d\n%s", status, &out)
	}
}
