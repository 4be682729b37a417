package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const soundConfig = `virtual_server 192.0.2.10 80 {
    lb_algo rr
    lb_kind NAT
    protocol TCP
    real_server 10.0.0.11 80 {
        weight 1
        TCP_CHECK {
            connect_timeout 3
        }
    }
}
`

func configFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheck(t *testing.T) {
	sound := configFile(t, "sound.conf", soundConfig)
	typo := configFile(t, "typo.conf", strings.Replace(soundConfig, "weight 1", "wieght 1", 1))
	vrrp := configFile(t, "vrrp.conf", "vrrp_instance V {\n    state MASTER\n}\n"+soundConfig)
	mine := configFile(t, "cond.conf", "@here bad_word\n"+soundConfig)
	outer := configFile(t, "outer.conf", "include "+sound+"\n")
	for _, tc := range []struct {
		name, file string
		opts       CheckOptions
		want       int
		say        []string // nil: no output at all
	}{
		{"silent, as keepalived -t", sound, CheckOptions{}, 0, nil},
		{"summary", sound, CheckOptions{Summary: true}, 0, []string{sound + ": nothing to report\n", "1 virtual server with 1 real server in 1 file\n"}},
		{"a typo", typo, CheckOptions{Summary: true}, 5, []string{typo + ":6:9: ", `"wieght"`, "| ", "^", "1 error"}},
		{"a typo, strictly", typo, CheckOptions{Strict: true, Summary: true}, 5, []string{"nothing can be run from it"}},
		{"VRRP is a notice", vrrp, CheckOptions{Summary: true}, 0, []string{vrrp + ":1:1: notice: ", "1 notice\n"}},
		{"a condition of another machine", mine, CheckOptions{ConfigID: "there"}, 0, nil},
		{"a condition of this machine", mine, CheckOptions{ConfigID: "here"}, 5, []string{`"bad_word"`}},
		{"files read", outer, CheckOptions{Summary: true}, 0, []string{"in 2 files\n", "\n    " + outer + "\n    " + sound + "\n"}},
		{"missing", filepath.Join(t.TempDir(), "none.conf"), CheckOptions{}, 4, []string{"none.conf"}},
		{"a directory", t.TempDir(), CheckOptions{}, 4, []string{"directory"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			if got := Check(&out, tc.file, tc.opts); got != tc.want {
				t.Errorf("status %d, want %d; output:\n%s", got, tc.want, out.String())
			}
			if tc.say == nil && out.Len() > 0 {
				t.Errorf("output, want none:\n%s", out.String())
			}
			for _, part := range tc.say {
				if !strings.Contains(out.String(), part) {
					t.Errorf("output lacks %q:\n%s", part, out.String())
				}
			}
		})
	}
}

func TestCheckJSON(t *testing.T) {
	var out bytes.Buffer
	typo := configFile(t, "typo.conf", strings.Replace(soundConfig, "weight 1", "wieght 1", 1))
	if got := Check(&out, typo, CheckOptions{JSON: true, Summary: true}); got != 5 {
		t.Errorf("status %d, want 5", got)
	}
	var found []struct {
		File     string
		Line     int
		Severity string
	}
	if err := json.Unmarshal(out.Bytes(), &found); err != nil || len(found) != 1 || found[0].File != typo || found[0].Line != 6 || found[0].Severity != "error" {
		t.Errorf("findings %+v, %v, from:\n%s", found, err, out.String())
	}
}

func TestCheckEffectiveReadsBackTheSame(t *testing.T) {
	var out, effective, again bytes.Buffer
	sound := configFile(t, "sound.conf", soundConfig)
	if got := Check(&out, sound, CheckOptions{Effective: &effective}); got != 0 {
		t.Fatalf("status %d:\n%s", got, out.String())
	}
	if !strings.Contains(effective.String(), "delay_loop") {
		t.Errorf("defaults are not spelled out:\n%s", effective.String())
	}
	second := configFile(t, "effective.conf", effective.String())
	if got := Check(&out, second, CheckOptions{Effective: &again}); got != 0 || again.String() != effective.String() {
		t.Errorf("status %d; read back and printed again:\n%s\nwant:\n%s\nfindings:\n%s", got, again.String(), effective.String(), out.String())
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestCheckThatCannotWriteFails(t *testing.T) {
	sound := configFile(t, "sound.conf", soundConfig)
	if got := Check(brokenWriter{}, sound, CheckOptions{Summary: true}); got != 1 {
		t.Errorf("status %d, want 1", got)
	}
	if got := Check(&bytes.Buffer{}, sound, CheckOptions{Effective: brokenWriter{}}); got != 1 {
		t.Errorf("effective: status %d, want 1", got)
	}
}
