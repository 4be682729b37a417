package syntax

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// disk is files in memory of which some are special.
type disk struct {
	Memory
	modes  map[string]fs.FileMode
	denied map[string]bool // cannot be opened, or listed
	opened *[]string
}

func (d disk) Stat(name string) (FileInfo, error) {
	fi, err := d.Memory.Stat(name)
	if m, ok := d.modes[rooted(name)]; ok && err == nil {
		fi.Mode = m
	}
	return fi, err
}

func (d disk) Open(name string) (io.ReadCloser, error) {
	if d.denied[rooted(name)] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	if d.opened != nil {
		*d.opened = append(*d.opened, name)
	}
	return d.Memory.Open(name)
}

func (d disk) ReadDir(name string) ([]string, error) {
	if d.denied[rooted(name)] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return d.Memory.ReadDir(name)
}

func parseDisk(t *testing.T, d disk, name string) (*Tree, diag.List) {
	t.Helper()
	o := testOptions()
	o.Resolver = d
	tree, list := Parse(name, o)
	files := map[string]string{}
	for _, f := range tree.Files {
		files[f] = d.Memory[d.find(f)]
	}
	for _, x := range list {
		if _, ok := files[x.Pos.File()]; !ok && x.Pos.Line == 0 {
			files[x.Pos.File()] = ""
		}
	}
	checkSpans(t, tree, list, files)
	return tree, list
}

func TestIncludes(t *testing.T) {
	files := Memory{
		"/etc/k/one.conf":        "one",
		"/etc/k/two.conf":        "two\n",
		"/etc/k/with blank.conf": "blank",
		"/etc/k/.hidden.conf":    "hidden",
		"/etc/k/d/b.conf":        "b",
		"/etc/k/d/a.conf":        "a",
		"/etc/k/d/c.txt":         "c",
		"/etc/k/d/script.conf":   "script",
		"/etc/k/up.conf":         "up {\ninclude d/down.conf\n}",
		"/etc/k/d/down.conf":     "down ${_PWD}\ninclude e/*.conf\n$D=5",
		"/etc/k/d/e/deep.conf":   "deep ${_PWD}",
		"/etc/k/open.conf":       "vs {",
		"/etc/k/close.conf":      "x\n}",
		"/etc/k/head.conf":       "virtual_server v",
		"/etc/k/tail.conf":       "{ t }",
		"/etc/k/[odd].conf":      "odd",
	}
	d := disk{Memory: files, modes: map[string]fs.FileMode{"/etc/k/d/script.conf": 0o755}}
	for name, tt := range map[string]struct {
		main, want string
		diag       []string
		files      []string // beside the main one
	}{
		"a name":                 {main: "x\ninclude one.conf\ny", want: "[x] [one] [y]", files: []string{"one.conf"}},
		"absolute":               {main: "include /etc/k/one.conf", want: "[one]", files: []string{"one.conf"}},
		"blanks":                 {main: "include \t with blank.conf  # c", want: "[blank]", files: []string{"with blank.conf"}},
		"a directory":            {main: "include d/[ab].conf", want: "[a] [b]", files: []string{"d/a.conf", "d/b.conf"}},
		"negated":                {main: "include d/[\\!a].conf", want: "[b]", files: []string{"d/b.conf"}},
		"one character":          {main: "include d/?.conf", want: "[a] [b]", files: []string{"d/a.conf", "d/b.conf"}},
		"wild directories":       {main: "include */[ab].c*", want: "[a] [b]", files: []string{"d/a.conf", "d/b.conf"}},
		"hidden":                 {main: "include ?hidden.conf\ninclude .h*", want: "[hidden]", diag: []string{"N001 1:9"}, files: []string{".hidden.conf"}},
		"executable":             {main: "include d/s*.conf", want: "", diag: []string{"W003 1:9"}},
		"executable, alone":      {main: "include d/script.conf", want: "", diag: []string{"E013 1:9"}},
		"a directory itself":     {main: "include d", want: "", diag: []string{"E013 1:9"}},
		"no such file":           {main: "include none.conf\nx", want: "[x]", diag: []string{"E013 1:9"}},
		"quoted":                 {main: `include "one.conf"`, want: "", diag: []string{"E013 1:9"}},
		"no such directory":      {main: "include none/*.conf", want: "", diag: []string{"N001 1:9"}},
		"braces":                 {main: "include {two,one}.conf", want: "[one] [two]", files: []string{"one.conf", "two.conf"}},
		"nested braces":          {main: "include {d/{b,a},one}.conf", want: "[a] [b] [one]", files: []string{"d/a.conf", "d/b.conf", "one.conf"}},
		"each once":              {main: "include {one,o*,one}.conf", want: "[one] [vs]{}", diag: []string{"F001 1:1"}, files: []string{"one.conf", "open.conf"}},
		"braces with gaps":       {main: "include {one,none}.conf", want: "[one]", diag: []string{"W003 1:9"}, files: []string{"one.conf"}},
		"braces without matches": {main: "include {none,never}.conf", want: "", diag: []string{"E013 1:9"}},
		"escaped":                {main: `include \[odd\].conf`, want: "[odd]", files: []string{"[odd].conf"}},
		"relative to the file": {main: "include up.conf\nx $D", want: "[up]{[down /etc/k/d] [deep /etc/k/d/e]} [x 5]",
			files: []string{"up.conf", "d/down.conf", "d/e/deep.conf"}},
		"in a block":              {main: "vs { include one.conf\n}", want: "[vs]{[one]}", files: []string{"one.conf"}},
		"blocks across files":     {main: "include open.conf\ninclude close.conf", want: "[vs]{[x]}", files: []string{"open.conf", "close.conf"}},
		"keyword and brace apart": {main: "include head.conf\ninclude tail.conf", want: "[virtual_server v]{[t]}", files: []string{"head.conf", "tail.conf"}},
		"twice":                   {main: "include one.conf\ninclude one.conf", want: "[one] [one]", files: []string{"one.conf"}},
		"substituted": {main: "$F=one\n$I=include\ninclude ${F}.conf\n$I ${F}.conf\n@node1 include one.conf\n@x include two.conf\n~LST(N,one,two) include ${N}.conf",
			want: "[one] [one] [one] [one] [two]", files: []string{"one.conf", "two.conf"}},
		"in a definition":   {main: "$M= \\\n a \\\n include one.conf\n$M", want: "[a] [one]", files: []string{"one.conf"}},
		"extension":         {main: "#sluice include one.conf", want: "[one]", files: []string{"one.conf"}},
		"extension's block": {main: "#sluice t { include one.conf", want: "+[t]{}", diag: []string{"E015 1:13", "E017 1:9"}},
		"bare":              {main: "include\nincludea{\nx\n}\ny", want: "[y]", diag: []string{"E015 1:1", "E015 2:1"}},
		"no directive":      {main: "includex one.conf\nincludes", want: "[includex one.conf] [includes]"},
		"quoted keyword":    {main: "\"include\" one.conf", want: `["include" one.conf]`},
	} {
		t.Run(name, func(t *testing.T) {
			d.Memory["/etc/k/main.conf"] = tt.main
			tree, list := parseDisk(t, d, "/etc/k/main.conf")
			if diff := cmp.Diff(tt.want, short(tree.Nodes)); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(append([]string{}, tt.diag...), codes(list)); diff != "" {
				t.Errorf("findings (-want +got):\n%s\n%v", diff, list)
			}
			read := []string{"/etc/k/main.conf"}
			for _, f := range tt.files {
				read = append(read, "/etc/k/"+f)
			}
			if diff := cmp.Diff(read, tree.Files); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

// The whole matrix: which problem violates which variant's checks.
func TestIncludeChecks(t *testing.T) {
	d := disk{Memory: Memory{"/a.conf": "a", "/d/x": "x", "/exec.conf": "e", "/secret.conf": "s", "/locked/x.conf": "x"},
		modes:  map[string]fs.FileMode{"/exec.conf": 0o744},
		denied: map[string]bool{"/secret.conf": true, "/locked": true}}
	const none, read, match, wildcard, brace = "", "rmwba", "mwa", "wa", "ba"
	for pattern, tt := range map[string]struct{ violates, otherwise string }{
		"a.conf":        {none, ""},
		"*.conf":        {read, "W003W003"}, // two of three cannot be read
		"exec.conf":     {read, "E013"},
		"secret.conf":   {read, "E013"},
		"d":             {read, "E013"},
		"locked/*.conf": {read, "E013"},
		"none":          {match, "E013"},
		"none/x.conf":   {match, "E013"},
		"none/*.conf":   {match, "N001"},
		"*.none":        {wildcard, "N001"},
		"d/*.none":      {wildcard, "N001"},
		"{a,b}.conf":    {brace, "W003"},
		"{b,c}.conf":    {brace, "E013"},
		"{a}.conf":      {none, ""},
	} {
		for _, variant := range []string{"", "r", "m", "w", "b", "a"} {
			t.Run("include"+variant+" "+strings.ReplaceAll(pattern, "/", "|"), func(t *testing.T) {
				want := tt.otherwise
				violated := variant != "" && strings.Contains(tt.violates, variant)
				if violated {
					want = strings.Repeat("E012", max(1, strings.Count(want, "W003W003")*2))
				}
				d.Memory["/main"] = "include" + variant + " " + pattern
				_, list := parseDisk(t, d, "/main")
				got := ""
				for _, x := range list {
					got += x.Code
				}
				if got != want {
					t.Errorf("got %s, want %s: %v", got, want, list)
				}
				if violated && list.ExitCode() != 6 {
					t.Errorf("exit status %d, want 6", list.ExitCode())
				}

				// The same check in force by other means.
				o := testOptions()
				o.Resolver = d
				for _, v := range []byte(variant) {
					o.IncludeCheck = variants[v]
				}
				d.Memory["/main"] = "include " + pattern
				_, other := Parse("/main", o)
				if diff := cmp.Diff(codesOnly(list), codesOnly(other)); diff != "" {
					t.Errorf("by option (-variant +option):\n%s", diff)
				}
			})
		}
	}
}

func codesOnly(list diag.List) []string {
	var out []string
	for _, d := range list {
		out = append(out, d.Code)
	}
	return out
}

func TestIncludeCheckKeyword(t *testing.T) {
	const missing = "\ninclude none\n"
	for words, want := range map[string][]string{
		"":                            {"E012 2:9"},
		"match":                       {"E012 2:9"},
		"read":                        {"E013 2:9"},
		"+match":                      {"E012 2:9"},
		"match -match":                {"E013 2:9"},
		"+read +match":                {"E012 2:9"},
		"read match":                  {"E020 1:34", "E013 2:9"},
		"read +match":                 {"E012 2:9"},
		"readable +match":             {"E020 1:29", "E012 2:9"},
		"wildcard_match +brace_match": {"E013 2:9"},
	} {
		text := "global_defs { include_check " + words + "}" + missing
		o := testOptions()
		_, list := ParseString("f", text, o)
		if diff := cmp.Diff(want, codes(list)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", words, diff)
		}
	}
	// It holds to the end of the file that says it.
	d := disk{Memory: Memory{
		"/main": "include sub\ninclude none\n", "/sub": "global_defs {\ninclude_check\n}\ninclude none\n"}}
	_, list := parseDisk(t, d, "/main")
	if diff := cmp.Diff([]string{"E012 4:9", "E013 2:9"}, codes(list)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Elsewhere it is just a word.
	_, list = ParseString("f", "vs { include_check }"+missing, testOptions())
	if diff := cmp.Diff([]string{"E013 2:9"}, codes(list)); diff != "" {
		t.Errorf("elsewhere (-want +got):\n%s", diff)
	}
}

func TestIncludeCycle(t *testing.T) {
	d := disk{Memory: Memory{"/etc/a.conf": "a\ninclude b.conf\nz", "/etc/b.conf": "b\ninclude c.conf", "/etc/c.conf": "c\ninclude /etc/../etc/a.conf\n"}}
	tree, list := parseDisk(t, d, "/etc/a.conf")
	if got := short(tree.Nodes); got != "[a] [b] [c] [z]" {
		t.Errorf("tree %s", got)
	}
	if len(list) != 1 || list[0].Code != "E014" || list[0].Message != "include cycle: /etc/a.conf -> /etc/b.conf -> /etc/c.conf -> /etc/../etc/a.conf" {
		t.Fatalf("got %v", list)
	}
	if diff := cmp.Diff([]string{"included from /etc/b.conf:2:9", "included from /etc/a.conf:2:9"}, list[0].Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	d = disk{Memory: Memory{"/a": "include a\ninclude *\nx"}}
	tree, list = parseDisk(t, d, "/a")
	if got := short(tree.Nodes); got != "[x]" || len(list) != 2 {
		t.Errorf("itself: %s, %v", got, list)
	}
}

func TestIncludeDepthAndNumber(t *testing.T) {
	d := disk{Memory: Memory{}}
	for i := range 150 {
		d.Memory[fmt.Sprintf("/f%d", i)] = fmt.Sprintf("x\ninclude f%d\n", i+1)
	}
	_, list := parseDisk(t, d, "/f0")
	if len(list) != 1 || list[0].Code != "F005" {
		t.Errorf("depth: %v", list)
	}
	var opened []string
	d = disk{Memory: Memory{}, opened: &opened}
	for i := range 40 {
		d.Memory[fmt.Sprintf("/f%d", i)] = fmt.Sprintf("include f%d\ninclude f%d\n", i+1, i+1)
	}
	d.Memory["/f40"] = ""
	_, list = parseDisk(t, d, "/f0")
	if len(list) != 1 || list[0].Code != "F003" || len(opened) > maxFiles+1 {
		t.Errorf("number: %d opened, %v", len(opened), list)
	}
}

func TestChains(t *testing.T) {
	d := disk{Memory: Memory{"/etc/a.conf": "\n  include d/b.conf", "/etc/d/b.conf": "include c.conf\nx }", "/etc/d/c.conf": "c"}}
	tree, list := parseDisk(t, d, "/etc/a.conf")
	if diff := cmp.Diff([]string{"included from /etc/d/b.conf:1:9", "included from /etc/a.conf:2:11"}, tree.Nodes[0].Chain); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	if len(list) != 1 || !cmp.Equal(list[0].Notes, []string{"included from /etc/a.conf:2:11"}) {
		t.Errorf("finding: %+v", list)
	}
}

func TestMainFile(t *testing.T) {
	d := disk{Memory: Memory{"/etc/k.conf": "k", "/etc/d/b.conf": "b", "/etc/d/a.conf": "a", "/etc/exec.conf": "", "/etc/secret.conf": ""},
		modes:  map[string]fs.FileMode{"/etc/exec.conf": 0o700, "/etc/dev": fs.ModeDevice},
		denied: map[string]bool{"/etc/secret.conf": true}}
	d.Memory["/etc/dev"] = ""
	for name, tt := range map[string]struct {
		tree, code, says string
		exit             int
	}{
		"/etc/k.conf":      {tree: "[k]"},
		"etc/k.conf":       {tree: "[k]"},
		"/etc/d/*.conf":    {"[a] [b]", "W006", "matches 2 files", 5},
		"/etc/d":           {"", "F002", "it is a directory", 4},
		"/etc/none.conf":   {"", "F002", "no such file", 4},
		"/etc/*.none":      {"", "F002", "nothing matches", 4},
		"/etc/exec.conf":   {"", "F002", "it is executable", 4},
		"/etc/secret.conf": {"", "F002", "permission denied", 4},
		"/etc/dev":         {"", "F002", "not a regular file", 4},
		"":                 {"", "F002", "", 4},
	} {
		tree, list := parseDisk(t, d, name)
		if got := short(tree.Nodes); got != tt.tree {
			t.Errorf("%q: tree %s, want %s", name, got, tt.tree)
		}
		if tt.code == "" {
			if len(list) != 0 {
				t.Errorf("%q: %v", name, list)
			}
			continue
		}
		if len(list) != 1 || list[0].Code != tt.code || !strings.Contains(list[0].Message, tt.says) || list[0].Hint == "" || list.ExitCode() != tt.exit {
			t.Errorf("%q: got %+v (%d), want %s saying %q (%d)", name, list, list.ExitCode(), tt.code, tt.says, tt.exit)
		}
	}
	if _, list := Parse("x", Options{}); len(list) != 1 || !list.HasFatal() {
		t.Errorf("without a resolver: %v", list)
	}
}

type broken struct{ Memory }

func (b broken) Open(string) (io.ReadCloser, error) {
	return io.NopCloser(io.MultiReader(strings.NewReader("a\nb {\n"), errReader{})), nil
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, fs.ErrInvalid }

func TestReadErrorInTheMiddle(t *testing.T) {
	o := testOptions()
	o.Resolver = broken{Memory{"/f": ""}}
	_, list := Parse("/f", o)
	if len(list) != 1 || list[0].Code != "F002" || list[0].Pos.Line != 3 {
		t.Errorf("got %v", list)
	}
}

func TestExpandBraces(t *testing.T) {
	for pattern, want := range map[string][]string{
		"a":            {"a"},
		"{a,b}":        {"a", "b"},
		"x{a,b}y{1,2}": {"xay1", "xay2", "xby1", "xby2"},
		"{a,{b,c}d}":   {"a", "bd", "cd"},
		"{a}":          {"a"},
		"{}":           {"{}"},
		"a{}b{c,d}":    {"a{}bc", "a{}bd"},
		"{,x}a":        {"a", "xa"},
		"{a,b":         {"{a,b"},
		"a}b":          {"a}b"},
		`\{a,b}`:       {`\{a,b}`},
		`{a\,b,c}`:     {`a\,b`, "c"},
	} {
		got, ok := expandBraces(pattern)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("%s (-want +got):\n%s", pattern, diff)
		}
	}
	if _, ok := expandBraces(strings.Repeat("{a,b}", 40)); ok {
		t.Error("2^40 alternatives are not too many")
	}
	_, list := ParseString("f", "include "+strings.Repeat("{a,b}", 40), testOptions())
	if len(list) != 1 || list[0].Code != "E013" {
		t.Errorf("too many alternatives: %v", list)
	}
}

func TestOSFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("main.conf", "include conf.d/*.conf\nx ${_PWD}\ninclude conf.d/link.conf\n", 0o644)
	write("conf.d/b.conf", "b", 0o644)
	write("conf.d/a.conf", "a", 0o600)
	write("conf.d/run.conf", "run", 0o755)
	if err := os.Symlink("../main.conf", filepath.Join(dir, "conf.d/link.conf")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "conf.d/gone.conf")); err != nil {
		t.Fatal(err)
	}
	o := testOptions()
	o.Resolver = OS{}
	main := filepath.Join(dir, "main.conf")
	tree, list := Parse(main, o)
	if got, want := short(tree.Nodes), "[a] [b] [x "+dir+"]"; got != want {
		t.Errorf("tree %s, want %s", got, want)
	}
	// gone and run are skipped; link is the main file again, twice.
	if diff := cmp.Diff([]string{"W003 1:9", "E014 1:9", "W003 1:9", "E014 3:9"}, codes(list)); diff != "" {
		t.Errorf("findings (-want +got):\n%s\n%v", diff, list)
	}
	t.Chdir(dir)
	tree, _ = Parse("main.conf", o)
	if diff := cmp.Diff([]string{"main.conf", "conf.d/a.conf", "conf.d/b.conf"}, tree.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if _, list := Parse(dir, o); len(list) != 1 || !strings.Contains(list[0].Message, "directory") {
		t.Errorf("a directory: %v", list)
	}
}
