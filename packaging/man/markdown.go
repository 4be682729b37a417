package man

import "strings"

// Markdown adds a document of this project: headings of the second and third level,
// paragraphs, lists, blocks of code and tables. The title and comments are left out.
func (p *Page) Markdown(text string) {
	var part []string
	flush := func() {
		p.part(part)
		part = nil
	}
	code := false
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			if code {
				p.Verbatim(part)
				part = nil
			} else {
				flush()
			}
			code = !code
		case code:
			part = append(part, line)
		case line == "", strings.HasPrefix(line, "# "), strings.HasPrefix(line, "<!--"):
			flush()
		case strings.HasPrefix(line, "## "):
			flush()
			p.heading(".SH", line[3:]) // in its own letters: names of blocks have them
		case strings.HasPrefix(line, "### "):
			flush()
			p.Subsection(line[4:])
		default:
			part = append(part, line)
		}
	}
	flush()
}

// part is what stands between blank lines.
func (p *Page) part(lines []string) {
	switch {
	case len(lines) == 0:
	case strings.HasPrefix(lines[0], "|"):
		p.table(lines)
	case strings.HasPrefix(lines[0], "- "):
		for item := range strings.SplitSeq(strings.Join(lines, "\n")[2:], "\n- ") {
			p.Bullet(item)
		}
	default:
		p.Paragraph(strings.Join(lines, " "))
	}
}

// table makes a list of a table: the first column is what is told of. One of keywords
// has a shape of its own, else each further column follows the name of it.
func (p *Page) table(lines []string) {
	head := cells(lines[0])
	for _, line := range lines[2:] { // behind the rule
		row := cells(line)
		if strings.Join(head, " ") == "keyword arguments default here meaning" {
			p.keyword(row)
			continue
		}
		var told []string
		for i, c := range row[1:] {
			switch {
			case c == "":
			case i == 0 || head[i+1] == "":
				told = append(told, c)
			default:
				told = append(told, head[i+1]+" "+c)
			}
		}
		p.Item("**"+strings.Trim(row[0], "`*")+"**", sentence(strings.Join(told, "; ")))
	}
}

// here is what the column of that name adds.
var here = map[string]string{
	"yes": "", "no effect": "It has no effect here.", "not yet": "It is read and checked, and not served yet.",
	"skipped": "Its block is passed over.", "extension": "An extension.",
}

func (p *Page) keyword(row []string) {
	name, arguments, without, status, meaning := row[0], strings.Trim(row[1], "`"), row[2], row[3], row[4]
	told := sentence(meaning)
	if without != "" {
		told += " Default: " + sentence(without)
	}
	if more, known := here[status]; !known {
		told += " " + sentence(status)
	} else if more != "" {
		told += " " + more
	}
	p.Item(strings.TrimSpace(name+" "+arguments), told)
}

// cells divides a row. A bar that is escaped is a part of its cell.
func cells(line string) []string {
	const escaped = "\x00"
	line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(strings.ReplaceAll(line, `\|`, escaped)), "|"), "|")
	list := strings.Split(line, "|")
	for i := range list {
		list[i] = strings.ReplaceAll(strings.TrimSpace(list[i]), escaped, "|")
	}
	return list
}
