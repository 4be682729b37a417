package keyword_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/keyword"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// fromFiles loads a configuration of several files.
func fromFiles(name string, files syntax.Memory) (*config.Config, diag.List) {
	return keyword.Load(name, keyword.Options{Options: syntax.Options{Resolver: files}})
}

// TestP01StatusOfATest: a test of a file tells what cannot be read, what cannot
// be used, what is used in part and what is fine from each other, and every
// finding has its place.
func TestP01StatusOfATest(t *testing.T) {
	good := service("NAT", "real_server 10.0.0.1 80 { }")
	scripts := service("NAT", "real_server 10.0.0.1 80 { notify_up /bin/x }")
	for _, tt := range []struct {
		name, text string
		status     int
		usable     bool
	}{
		{"fine", good, 0, true},
		{"no such file", "", 4, false},
		{"an unknown word", "stuckme\n" + good, 5, true},
		{"no opening brace", strings.Replace(good, "80 {\nprotocol", "80\nprotocol", 1), 5, true},
		{"no closing brace", strings.TrimSuffix(good, "}\n"), 5, false},
		{"a missing parameter", good + "virtual_server\n", 2, false},
		{"a missing parameter and errors", "stuckme\nvirtual_server\n" + scripts, 2, false},
		{"scripts without security", scripts, 6, true},
		{"scripts without security and errors", "stuckme\n" + scripts, 6, true},
		{"a violated include check", "include_check\nglobal_defs { include_check }\ninclude nothing\n" + good, 6, true},
		{"a warning that keepalived does not have", service("NAT", "inhibit_on_failure no\nreal_server 10.0.0.1 80 { }"), 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := syntax.Memory{"/etc/lb.conf": tt.text}
			if tt.text == "" {
				files = syntax.Memory{}
			}
			cfg, list := fromFiles("/etc/lb.conf", files)
			if got := list.ExitCode(); got != tt.status || (cfg != nil) != tt.usable {
				t.Errorf("status %d, usable %v: %v", got, cfg != nil, list)
			}
			for _, d := range list {
				if d.Pos.File() != "/etc/lb.conf" || (tt.text != "" && (d.Pos.Line == 0 || d.Pos.Col == 0)) {
					t.Errorf("%v has no place", d)
				}
			}
		})
	}
}

func TestP02OneClosingBraceTooFew(t *testing.T) {
	text := service("NAT", "real_server 10.0.0.1 80 {\nTCP_CHECK {\n}\n}")
	cfg, list := load(t, strings.TrimSuffix(text, "}\n"))
	d := only(t, list)
	if cfg != nil || d.Severity != diag.Fatal || d.Pos.Line != 1 || !strings.Contains(d.Message, "virtual_server 192.0.2.10 80") {
		t.Errorf("%v %+v", cfg, d)
	}
}

func TestP03CommentSignsAtTheEndOfAWord(t *testing.T) {
	url := func(path string) (string, diag.List) {
		cfg, list := load(t, service("NAT", "real_server 10.0.0.1 80 {\nHTTP_GET {\nurl {\npath "+path+"\n}\n}\n}"))
		return one(t, cfg).RealServers[0].Checkers[0].HTTP.URLs[0].Path, list
	}
	for written, tt := range map[string]struct{ path, codes string }{
		"/status!v2":      {"/status", "W002"},
		"/status#v2":      {"/status", "W002"},
		`"/status!v2"`:    {"/status!v2", ""},
		"/status !v2":     {"/status", ""},
		`/status\!v2`:     {"/status!v2", ""},
		`"/status#v2" #x`: {"/status#v2", ""},
	} {
		if got, list := url(written); got != tt.path || codes(list) != tt.codes || (len(list) > 0 && !strings.Contains(list[0].Hint, "quotes")) {
			t.Errorf("path %s: %q %v", written, got, list)
		}
	}
	cfg, list := load(t, "global_defs { enable_script_security }\n"+service("NAT", "real_server 10.0.0.1 80 {\nMISC_CHECK {\nmisc_path \"/bin/check.sh -x wow!\"\n}\n}"))
	if diff := cmp.Diff([]string{"/bin/check.sh", "-x", "wow!"}, one(t, cfg).RealServers[0].Checkers[0].Misc.Script.Argv); diff != "" || len(list) > 0 {
		t.Error(diff, list)
	}
}

// TestP10ScriptPathsAreUnescapedOnce and come back from the printed form.
func TestP10ScriptPathsAreUnescapedOnce(t *testing.T) {
	for written, want := range map[string][]string{
		`"/tmp/my\\x20file"`:         {`/tmp/my\x20file`},
		`"/tmp/my\x20file"`:          {"/tmp/my file"},
		`"'/tmp/my file'"`:           {"/tmp/my file"},
		`"/tmp/a\\\\b 'c d' e\tf"`:   {`/tmp/a\\b`, "c d", "e\tf"},
		`"/bin/x '[a-z] {2,3}' \$"`:  {"/bin/x", "[a-z] {2,3}", "$"},
		`"/bin/x \x41\102\cC\E '' "`: {"/bin/x", "AB\x03\x1b", ""},
	} {
		cfg, list := load(t, "global_defs { enable_script_security }\n"+service("NAT", "real_server 10.0.0.1 80 {\nMISC_CHECK {\nmisc_path "+written+"\n}\n}"))
		if len(list) > 0 {
			t.Errorf("%s: %v", written, list)
			continue
		}
		if diff := cmp.Diff(want, one(t, cfg).RealServers[0].Checkers[0].Misc.Script.Argv); diff != "" {
			t.Errorf("%s: %s", written, diff)
		}
		again(t, cfg)
	}
	// Quoted text with brackets and blanks in virtualhost.
	cfg, list := load(t, service("NAT", "virtualhost \"[2001:db8::1] x\"\nreal_server 10.0.0.1 80 { }"))
	if one(t, cfg).VirtualHost != "[2001:db8::1] x" || len(list) > 0 {
		t.Error(list)
	}
	again(t, cfg)
}

func TestP12Includes(t *testing.T) {
	services := func(i string) string {
		return "virtual_server 192.0.2." + i + " 80 {\nprotocol TCP\nlvs_sched rr\nlvs_method NAT\nreal_server 10.0.0.1 80 { }\n}\n"
	}
	files := syntax.Memory{
		"/etc/lb/main.conf":           "include conf.d/*.conf\ninclude empty/*.conf\n",
		"/etc/lb/conf.d/b.conf":       services("2") + "include parts/c.conf\n",
		"/etc/lb/conf.d/a.conf":       services("1"),
		"/etc/lb/conf.d/parts/c.conf": services("3"),
		"/etc/lb/empty/readme":        "",
	}
	cfg, list := fromFiles("/etc/lb/main.conf", files)
	if d := only(t, list); d.Severity != diag.Notice || list.ExitCode() != 0 {
		t.Errorf("a pattern without a match: %v", d)
	}
	var got []string
	for _, vs := range cfg.VirtualServers {
		got = append(got, vs.Key.Addr.String())
	}
	if diff := cmp.Diff([]string{"192.0.2.1:80", "192.0.2.2:80", "192.0.2.3:80"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/etc/lb/main.conf", "/etc/lb/conf.d/a.conf", "/etc/lb/conf.d/b.conf", "/etc/lb/conf.d/parts/c.conf"}, cfg.Files); diff != "" {
		t.Errorf("files read: %s", diff)
	}
	for text, want := range map[string]string{"include nothing.conf\n": "E013", "include main.conf\n": "E014", "include other/*.conf\n": "N001"} {
		_, list := fromFiles("/etc/lb/main.conf", syntax.Memory{"/etc/lb/main.conf": text + services("1")})
		if codes(list) != want {
			t.Errorf("%s: %v", text, list)
		}
	}
}
