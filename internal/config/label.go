package config

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxLabel is how many characters a label may have.
const MaxLabel = 64

// BadLabel says why a text can be no label, "" if it can: it stands in a column of
// status, in lines of the log and in commands. What would need an escape to be
// printed back into a file is left out.
func BadLabel(s string) string {
	switch n := utf8.RuneCountInString(s); {
	case s == "":
		return "is empty"
	case !utf8.ValidString(s):
		return "is not UTF-8"
	case n > MaxLabel:
		return fmt.Sprintf("has %d characters, and may have %d", n, MaxLabel)
	case strings.TrimSpace(s) != s:
		return "begins or ends with a blank"
	}
	for _, r := range s {
		if !unicode.IsPrint(r) || strings.ContainsRune("\"\\$", r) {
			return fmt.Sprintf("has the character %q, which cannot stand in it", r)
		}
	}
	return ""
}
