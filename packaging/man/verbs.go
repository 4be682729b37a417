package man

import (
	"strings"

	"github.com/spf13/cobra"
)

// Verbs is the page of a program of verbs: its own help, each verb under the title of
// its group, and the options that all have.
func Verbs(root *cobra.Command, section int) *Page {
	p := New(root.Name(), section, root.Short)
	p.Section("Synopsis")
	p.Paragraph("`" + root.Name() + "` VERB [options]")
	p.Section("Description")
	p.Prose(root.Long)
	p.Paragraph("What a verb finds is on standard output, what went wrong and progress on standard error.")
	for _, g := range root.Groups() {
		p.Section(strings.TrimSuffix(g.Title, ":"))
		for _, c := range root.Commands() {
			if c.GroupID == g.ID {
				verb(p, c)
			}
		}
	}
	for _, c := range root.Commands() {
		if c.GroupID == "" {
			verb(p, c)
		}
	}
	p.Section("Options of every verb")
	p.Flags(root.PersistentFlags())
	p.Section("Options without a verb")
	p.Flags(root.LocalNonPersistentFlags())
	return p
}

// verb tells of a verb and then of those below it.
func verb(p *Page, c *cobra.Command) {
	if c.Hidden || c.Name() == "help" {
		return
	}
	p.Subsection(c.UseLine())
	if c.Long == "" {
		p.Paragraph(sentence(c.Short))
	} else {
		p.Prose(c.Long)
	}
	if flags := c.LocalNonPersistentFlags(); flags.HasAvailableFlags() {
		p.Flags(flags)
	}
	for _, below := range c.Commands() {
		verb(p, below)
	}
}
