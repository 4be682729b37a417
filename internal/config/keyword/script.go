package keyword

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// script splits a script with its user and group. A word that keepalived does
// not look at is warned of: people write parameters there.
func (f *frame) script(v *value) bool {
	w := &v.n.Words[1]
	words, err := syntax.SplitScript(v.n.Raw)
	if err == nil && len(words) > 1 {
		v.argv, err = syntax.SplitArgv(words[1])
	}
	if err != nil || len(v.argv) == 0 || v.argv[0] == "" {
		why := "it is empty"
		if err != nil {
			why = err.Error()
		}
		f.report(codeScript, v.n, w, fmt.Sprintf("%s: the script cannot be read: %s", v.kw.name, why), "it is ignored, as keepalived does")
		return false
	}
	var test bool
	if v.argv, test = fileTest(v.argv); test && f.block != blockMisc && v.kw.name != "startup_script" && v.kw.name != "shutdown_script" {
		f.report(codeScript, v.n, w, fmt.Sprintf("%s: %s is the test of a file and no program", v.kw.name, v.argv[0]), "the script is dropped, as keepalived does; only misc_path and the scripts at start and stop may be one")
		return false
	}
	takes := 3
	if f.block == blockMisc {
		takes = 1
	} else {
		if len(words) > 2 {
			v.user = words[2]
		}
		if len(words) > 3 {
			v.group = words[3]
		}
	}
	if len(words) > takes+1 || (len(words) > 2 && strings.HasPrefix(words[2], "-")) {
		f.report(codeSurplus, v.n, w, fmt.Sprintf("%s: the script's parameters stand outside its quotes", v.kw.name),
			fmt.Sprintf("write %s \"%s\"", v.kw.name, strings.Join(words[1:], " ")))
	}
	f.shellSigns(v)
	return true
}

// shellSigns warns of a command line that only a shell would understand:
// scripts are executed without one.
func (f *frame) shellSigns(v *value) {
	if slices.Contains([]string{"sh", "bash", "dash", "ksh", "zsh"}, path.Base(v.argv[0])) {
		return
	}
	for _, a := range v.argv[1:] {
		sign := syntax.ShellSigns(a)
		switch {
		case sign == "":
			continue
		case sign == "&" || sign == "|" || sign == "<":
			// Inside a word, as in a URL's query, they do no harm.
			if strings.Trim(a, "&|<") != "" && !strings.HasPrefix(a, sign) {
				continue
			}
		case sign == ">":
			if strings.TrimLeft(a, "12&")[0] != '>' {
				continue
			}
		}
		f.report(codeShell, v.n, v.w, fmt.Sprintf("%s: %q is given to %s as a parameter", v.kw.name, a, v.argv[0]),
			fmt.Sprintf("no shell runs the line, so that %s has no meaning; put the commands into a script, or write sh -c '...' inside the quotes", sign))
		return
	}
}

// newScript makes the model's script and remembers that there is one; the test of
// a file is none that security would be about.
func (f *frame) newScript(v *value) *config.Script {
	if _, test := fileTest(v.argv); !test {
		f.b.scripts = append(f.b.scripts, scriptAt{f, v.n})
	}
	s := &config.Script{Pos: v.n.Pos, Argv: v.argv, User: v.user, Group: v.group}
	if s.User == "" && s.Group == "" {
		s.User, s.Group = f.b.raw.scriptUsers[0], f.b.raw.scriptUsers[1]
	}
	return s
}
