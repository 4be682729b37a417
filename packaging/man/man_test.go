package man

import (
	"bytes"
	"errors"
	"flag"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-lb/sluice/internal/config/keyword"
)

var update = flag.Bool("update", false, "rewrite sluice.conf.5")

// TestManPageOfTheConfiguration makes sluice.conf(5) of the reference.
func TestManPageOfTheConfiguration(t *testing.T) {
	var reference bytes.Buffer
	if err := keyword.Doc(&reference); err != nil {
		t.Fatal(err)
	}
	p := New("sluice.conf", 5, "configuration of sluiced: the LVS half of keepalived.conf")
	p.Section("Description")
	p.Paragraph("`sluiced` reads `/etc/keepalived/keepalived.conf`, or the file that its option `-f` names.")
	p.Markdown(reference.String())
	p.Section("Files")
	p.Item("`/etc/keepalived/keepalived.conf`", "The configuration.")
	p.Item("`/usr/share/doc/sluice/examples`", "Configurations to begin with.")
	p.Section("See also")
	p.Paragraph("`sluiced`(8), `sluice`(1), `keepalived.conf`(5), `ipvsadm`(8)")
	page := p.Bytes()
	if err := Current("sluice.conf.5", page, *update); err != nil {
		t.Error(err)
	}
	lint(t, page)

	plain := Plain(page)
	names := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(reference.String(), -1)
	if len(names) < 200 {
		t.Errorf("the reference has %d keywords only", len(names))
	}
	for _, m := range names {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(m[1]) + `( |$)`).MatchString(plain) {
			t.Errorf("without the keyword %s", m[1])
		}
	}
	if strings.Contains(plain, "| ") && regexp.MustCompile(`(?m)^\|`).MatchString(plain) {
		t.Error("a table was not taken in")
	}
}

func lint(t *testing.T, page []byte) {
	t.Helper()
	switch err := Lint(t.Context(), page); {
	case errors.Is(err, ErrNoGroff):
		t.Log(err)
	case err != nil:
		t.Error(err)
	}
}

func TestPage(t *testing.T) {
	flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
	flags.StringP("file", "f", "/etc/x", "read `FILE`")
	flags.Bool("json", false, "as JSON")
	p := New("x", 1, "do x")
	p.Prose("One\nparagraph.\n\nExit statuses:\n  0  done\n  1  not\n     done\n  75 gone\n\n  x --file=a   # a command\n.so a line")
	p.Flags(flags)
	p.Markdown("# T\n\n## HTTP_GET url\n\n- a\n  b\n- 'c'\n\n```\n.TH\n```\n\n| keyword | arguments | default | here | meaning |\n|---|---|---|---|---|\n" +
		"| `a-b` | `on \\| off` | off | extension | switches \\x |\n\n| | r | d |\n|---|---|---|\n| T | 1 |  |\n")
	want := `.\" Made by packaging/man; "make man" writes it.
.TH X 1 "" "sluice" "sluice manual"
.SH "NAME"
x \- do x
.PP
One paragraph.
.PP
Exit statuses:
.TP
\fB0\fP
done.
.TP
\fB1\fP
Not done.
.TP
\fB75\fP
gone.
.PP
.RS 4
.nf
x \-\-file=a   # a command
.fi
.RE
.PP
\&.so a line
.TP
\fB\-f\fP, \fB\-\-file\fP=FILE
Read FILE; without it \fB/etc/x\fP.
.TP
\fB\-\-json\fP
As JSON.
.SH "HTTP_GET url"
.IP \(bu 2
a b
.IP \(bu 2
\(aqc\(aq
.PP
.RS 4
.nf
\&.TH
.fi
.RE
.TP
\fBa\-b\fP on | off
Switches \ex. Default: off. An extension.
.TP
\fBT\fP
1.
`
	if diff := cmp.Diff(want, string(p.Bytes())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	lint(t, p.Bytes())
}

func TestVerbs(t *testing.T) {
	root := &cobra.Command{Use: "x", Short: "do x", Long: "Does x."}
	root.AddGroup(&cobra.Group{ID: "g", Title: "Looking:"})
	root.PersistentFlags().String("socket", "", "a `PATH`")
	below := &cobra.Command{Use: "deep", Short: "deeper", Run: func(*cobra.Command, []string) {}}
	look := &cobra.Command{Use: "look VS", Short: "look", GroupID: "g", Run: below.Run}
	look.Flags().Bool("wide", false, "more of it")
	look.AddCommand(below)
	root.AddCommand(look, &cobra.Command{Use: "odd", Short: "without a group", Run: below.Run}, &cobra.Command{Use: "secret", Hidden: true, Run: below.Run})
	plain := Plain(Verbs(root, 1).Bytes())
	for _, want := range []string{".SH \"LOOKING\"\n.SS \"x look VS", ".SS \"x look deep", ".SS \"x odd", "\n--wide\nMore of it.", "\n--socket=PATH\n"} {
		if !strings.Contains(plain, want) {
			t.Errorf("without %q:\n%s", want, plain)
		}
	}
	if strings.Contains(plain, "secret") || strings.Count(plain, "--socket") != 1 {
		t.Errorf("too much:\n%s", plain)
	}
}

// FuzzPage: no text becomes a request or leaves a warning.
func FuzzPage(f *testing.F) {
	f.Add("a `b` **c** \\d .e 'f' – g\n.h\n  i  j\n\n| k |\n")
	f.Add("`` `\\` ** .\\\" ...\n'br\n- \n## \"\"\n|||\n|")
	f.Fuzz(func(t *testing.T, text string) {
		p := New("x", 1, "do x")
		p.Prose(text)
		p.Item(text, text)
		for line := range strings.Lines(string(p.Bytes())) {
			if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !regexp.MustCompile(`^\.(TH|SH|SS|PP|TP|RS|RE|nf|fi|IP|\\")`).MatchString(line) {
				t.Errorf("%q became the request %q", text, line)
			}
		}
	})
}
