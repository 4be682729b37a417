package man

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

// Page is a manual page in the making. Texts are prose in which `code` and **stress**
// are bold.
type Page struct {
	b strings.Builder
	// fresh is behind a heading, where a paragraph begins by itself.
	fresh bool
}

// New begins a page, as New("sluice", 1, "operate a running sluiced").
func New(name string, section int, does string) *Page {
	p := &Page{}
	fmt.Fprintf(&p.b, ".\\\" Made by packaging/man; \"make man\" writes it.\n.TH %s %d \"\" \"sluice\" \"sluice manual\"\n", strings.ToUpper(name), section)
	p.Section("Name")
	fmt.Fprintf(&p.b, "%s \\- %s\n", escape(name), escape(does))
	p.fresh = false
	return p
}

// Bytes returns the page.
func (p *Page) Bytes() []byte { return []byte(p.b.String()) }

// Section begins one.
func (p *Page) Section(title string) { p.heading(".SH", strings.ToUpper(title)) }

// Subsection begins one.
func (p *Page) Subsection(title string) { p.heading(".SS", title) }

func (p *Page) heading(macro, title string) {
	fmt.Fprintf(&p.b, "%s \"%s\"\n", macro, strings.ReplaceAll(escape(oneLine(title)), `"`, `\(dq`))
	p.fresh = true
}

// Paragraph adds one.
func (p *Page) Paragraph(text string) {
	p.paragraph()
	p.lines(text)
}

func (p *Page) paragraph() {
	if !p.fresh {
		p.b.WriteString(".PP\n")
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Item adds a tagged paragraph.
func (p *Page) Item(tag, text string) {
	p.fresh = false
	p.b.WriteString(".TP\n")
	p.b.WriteString(guard(inline(oneLine(tag))) + "\n")
	if text == "" {
		text = "No more is to be said of it."
	}
	p.lines(text)
}

// Bullet adds an item of a list.
func (p *Page) Bullet(text string) {
	p.fresh = false
	p.b.WriteString(".IP \\(bu 2\n")
	p.lines(text)
}

// Verbatim adds lines that stay as they are.
func (p *Page) Verbatim(lines []string) {
	p.paragraph()
	p.b.WriteString(".RS 4\n.nf\n")
	for _, l := range lines {
		p.b.WriteString(guard(escape(l)) + "\n")
	}
	p.b.WriteString(".fi\n.RE\n")
	p.fresh = false
}

// Flags adds an item for each option that is not hidden. Its text is the usage.
func (p *Page) Flags(flags *pflag.FlagSet) {
	flags.SortFlags = false // as the help has them
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		switch f.NoOptDefVal {
		case "":
			name += "=" + value
		case "-":
			name += "[=" + value + "]"
		}
		switch f.DefValue {
		case "", "0", "0s", "false", "[]":
		default:
			if f.NoOptDefVal == "" && f.Value.Type() != "NAME" {
				text += "; without it `" + f.DefValue + "`"
			}
		}
		p.Item(name, sentence(text))
	})
}

// word is one that may begin a sentence in a capital: no name of a thing that is typed.
var word = regexp.MustCompile(`^[a-z]+[ ,;:]`)

// sentence makes one of a line of help.
func sentence(text string) string {
	if word.MatchString(text) && !strings.HasPrefix(text, "sluice") {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

var (
	// entry is a line that tells of something: "  0  done", "  75 made way".
	entry = regexp.MustCompile(`^  (\S+(?:, \S+)*)  +(\S.*)$|^  (\d+) (\S.*)$`)
	// title is a line in front of such.
	title = regexp.MustCompile(`^([A-Z][^.]*?)( \([^.]*\))?:$`)
)

// Prose adds the text of a help: paragraphs, and indented blocks, each a list where all
// of its lines tell of something, else verbatim.
func (p *Page) Prose(text string) {
	var paragraph, block []string
	flush := func() {
		if len(paragraph) > 0 {
			p.Paragraph(strings.Join(paragraph, " "))
		}
		if len(block) > 0 {
			p.block(block)
		}
		paragraph, block = nil, nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.TrimSpace(line) == "":
			flush()
		case strings.HasPrefix(line, "  "):
			if len(paragraph) > 0 {
				flush()
			}
			block = append(block, line)
		default:
			if len(block) > 0 {
				flush()
			}
			paragraph = append(paragraph, line)
		}
	}
	flush()
}

func (p *Page) block(lines []string) {
	type item struct{ tag, text string }
	var items []item
	for _, l := range lines {
		switch m := entry.FindStringSubmatch(l); {
		case m != nil:
			items = append(items, item{m[1] + m[3], m[2] + m[4]})
		case strings.HasPrefix(l, "   ") && len(items) > 0:
			items[len(items)-1].text += " " + strings.TrimSpace(l)
		default:
			for i := range lines {
				lines[i] = strings.TrimPrefix(lines[i], "  ")
			}
			p.Verbatim(lines)
			return
		}
	}
	for _, i := range items {
		p.Item("**"+i.tag+"**", sentence(i.text))
	}
}

// Sections adds a help whose titled blocks ("Signals:") are sections; what is in front
// of them is returned.
func (p *Page) Sections(text string) (front string) {
	for part := range strings.SplitSeq(text, "\n\n") {
		head, rest, ok := strings.Cut(part, "\n")
		if m := title.FindStringSubmatch(head); ok && m != nil {
			p.Section(strings.TrimSpace(m[1] + m[2]))
			p.Prose(rest)
			continue
		}
		front += part + "\n\n"
	}
	return front
}

// lines adds text with lines of a readable length.
func (p *Page) lines(text string) {
	const width = 78
	line := ""
	for word := range strings.FieldsSeq(inline(text)) {
		if line != "" && len(line)+1+len(word) > width {
			p.b.WriteString(guard(line) + "\n")
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	p.b.WriteString(guard(line) + "\n")
	p.fresh = false
}

// markup is code, or stress.
var markup = regexp.MustCompile("`([^`]+)`|\\*\\*([^*]+)\\*\\*")

// inline escapes a text and makes bold what is marked.
func inline(text string) string {
	var b strings.Builder
	at := 0
	for _, m := range markup.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(escape(text[at:m[0]]))
		in := text[m[0]+1 : m[1]-1]
		if m[4] >= 0 {
			in = text[m[4]:m[5]]
		}
		b.WriteString(`\fB` + escape(in) + `\fP`)
		at = m[1]
	}
	b.WriteString(escape(text[at:]))
	return b.String()
}

var escapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// escape makes a text mean itself, in ASCII.
func escape(text string) string {
	var b strings.Builder
	for _, r := range escapes.Replace(text) {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}

// guard keeps a line from being a request, or none at all.
func guard(line string) string {
	if line == "" || strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return `\&` + line
	}
	return line
}
