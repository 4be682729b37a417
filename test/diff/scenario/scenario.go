// Package scenario is the pure half of the differential test: it reads scenarios,
// brings what a run recorded into a form that can be compared, and judges. It
// starts no process and reads no clock. The format of a scenario is described in
// the documentation of package test/diff.
package scenario

import (
	"fmt"
	"strings"
)

// Scenario is one script with its files.
type Scenario struct {
	Name  string
	Title string
	// Quick scenarios are part of the short run.
	Quick bool
	// Covers lists the keywords that the scenario is about.
	Covers                     []string
	SluiceArgs, KeepalivedArgs []string
	Commands                   []Command
	Files                      []File
	// Timeline is how far apart, in seconds, the same change may be in the two
	// runs; 0 compares no time lines.
	Timeline float64
	// differs and expects hold what is claimed of records, by record name.
	differs map[string]Claim
	expects map[string]Expectation
	names   []string
}

// File is a file of the archive.
type File struct{ Name, Data string }

// Command is one step of the script.
type Command struct {
	Line int
	Verb string
	// Args are the words that the verb wants one by one, Text is the rest of the
	// line for the verbs that take one.
	Args []string
	Text string
	// Behaviour is that of the verb backend.
	Behaviour *Behaviour
	// Record names what the command records, "" for nothing.
	Record string
}

// Claim is a difference that is meant to be.
type Claim struct {
	Line   int
	Reason string
}

// Expectation pins a record to the content of a file.
type Expectation struct {
	Line int
	File string
	// Both says that keepalived's record is held to the file as well.
	Both bool
}

// Records lists the names of everything that a run records, in order. Timeline
// is the last where it is compared.
func (s *Scenario) Records() []string { return s.names }

// Differs returns the claim for a record.
func (s *Scenario) Differs(record string) (Claim, bool) {
	c, ok := s.differs[record]
	return c, ok
}

// file returns the content of a file of the archive.
func (s *Scenario) file(name string) (string, bool) {
	for _, f := range s.Files {
		if f.Name == name {
			return f.Data, true
		}
	}
	return "", false
}

// Kinds of records.
const (
	kindTable  = "table"
	kindEvents = "events"
	kindOutput = "output"
	kindTest   = "test"
	kindStart  = "start"
	kindExit   = "exit"
	// TimelineRecord is both the kind and the name.
	TimelineRecord = "timeline"
)

// nameRecords gives every recording command the name of its record: the kind, a
// colon and the label. What has no label of its own is numbered from the second.
func (s *Scenario) nameRecords() error {
	seen := map[string]bool{}
	for i := range s.Commands {
		c := &s.Commands[i]
		name, unique := "", false
		switch c.Verb {
		case kindTable, kindEvents, kindOutput:
			name, unique = c.Verb+":"+c.Args[0], true
		case kindTest:
			name = kindTest + ":" + strings.Join(c.Args, " ")
		case "start":
			name = kindStart
		case "stop":
			name = kindExit
		default:
			continue
		}
		if seen[name] && unique {
			return fmt.Errorf("%d: %s %s: the label is taken by an earlier %s", c.Line, c.Verb, c.Args[0], c.Verb)
		}
		for base, n := name, 2; seen[name]; n++ {
			name = fmt.Sprintf("%s#%d", base, n)
		}
		seen[name] = true
		c.Record = name
		s.names = append(s.names, name)
	}
	if s.Timeline > 0 {
		s.names = append(s.names, TimelineRecord)
	}
	return nil
}

// resolve finds the record that a label means: its whole name, the label alone or
// the kind alone where only one has it.
func (s *Scenario) resolve(label string) (string, error) {
	var found []string
	for _, name := range s.names {
		if name == label {
			return name, nil
		}
		kind, rest, _ := strings.Cut(name, ":")
		if rest == label || kind == label && kind == kindTest {
			found = append(found, name)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("no record is named %s; there are: %s", label, strings.Join(s.names, ", "))
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%s may mean %s; write one of these", label, strings.Join(found, " or "))
}
