package keyword

import (
	"fmt"
	"unicode/utf8"

	"github.com/sluice-lb/sluice/internal/config"
)

// labelRow is the word label, in a virtual or a real server. meaning is what it
// names.
func labelRow(meaning string, of func(*frame) *string) keyword {
	row := keyword{
		name: "label", arg: custom(fmt.Sprintf("TEXT of at most %d characters", config.MaxLabel), 1),
		extension: true, def: "none", doc: "a name for people, which the log, the status and commands know " + meaning + " by; in quotes if it has blanks",
	}
	row.set = func(f *frame, v *value) {
		w := v.n.Words[1]
		f.surplus(v.n, 1)
		if bad := config.BadLabel(w.Text); bad != "" {
			f.report(codeLabel, v.n, &w, fmt.Sprintf("label %q %s", shortened(w.Text), bad), f.ignored(v.kw))
			return
		}
		*of(f) = w.Text
	}
	return row
}

// shortened bounds a text in a message.
func shortened(s string) string {
	if n := utf8.RuneCountInString(s); n > config.MaxLabel {
		return string([]rune(s)[:config.MaxLabel]) + "..."
	}
	return s
}
