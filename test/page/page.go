// Package page replaces the parts of a document that programs write. A part stands
// between two lines:
//
//	<!-- begin NAME: what writes it -->
//	<!-- end NAME -->
package page

import (
	"fmt"
	"regexp"
	"strings"
)

// Part returns what stands between the lines of a part.
func Part(doc, name string) (string, error) {
	from, to, err := find(doc, name)
	if err != nil {
		return "", err
	}
	return doc[from:to], nil
}

// Replace puts text, which ends with a newline, between the lines of a part.
func Replace(doc, name, text string) (string, error) {
	from, to, err := find(doc, name)
	if err != nil {
		return "", err
	}
	return doc[:from] + text + doc[to:], nil
}

// find returns where the text of a part begins and ends.
func find(doc, name string) (from, to int, err error) {
	begin := regexp.MustCompile(`(?m)^<!-- begin ` + regexp.QuoteMeta(name) + `(:[^\n]*)? -->\n`).FindStringIndex(doc)
	end := "<!-- end " + name + " -->\n"
	if begin == nil {
		return 0, 0, fmt.Errorf("the page lacks a line <!-- begin %s: ... -->", name)
	}
	n := strings.Index(doc[begin[1]:], end)
	if n < 0 {
		return 0, 0, fmt.Errorf("the page lacks the line %q after that of its begin", strings.TrimSpace(end))
	}
	return begin[1], begin[1] + n, nil
}
