package scenario

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/tools/txtar"
)

// verb says what a command takes.
type verb struct {
	// min and max bound the words; max -1 is no bound.
	min, max int
	// text says that behind min words the rest of the line is one text, which
	// must not be empty.
	text bool
}

var verbs = map[string]verb{
	"title":           {text: true},
	"quick":           {},
	"covers":          {min: 1, max: -1},
	"sluice-args":     {min: 1, max: -1},
	"keepalived-args": {min: 1, max: -1},
	"timeline":        {min: 1, max: 1},
	"addr":            {min: 2, max: 2},
	"backend":         {text: true},
	"fifo":            {min: 1, max: 1},
	"start":           {min: 1, max: 1},
	"settle":          {min: 1, max: 1},
	"table":           {min: 1, max: 1},
	"events":          {min: 1, max: 1},
	"output":          {min: 1, text: true},
	"write":           {min: 1, text: true},
	"remove":          {min: 1, max: 1},
	"reload":          {min: 1, max: 1},
	"kernel":          {text: true},
	"stop":            {},
	"test":            {min: 1, max: -1},
	"differs":         {min: 1, text: true},
	"expect":          {min: 3, max: 3},
}

// Parse reads an archive. Every error begins with the name, and the line where
// it has one; all of them are reported.
func Parse(name string, archive []byte) (*Scenario, error) {
	if !utf8.Valid(archive) {
		return nil, fmt.Errorf("%s: not UTF-8; write other bytes as escapes", name)
	}
	a := txtar.Parse(archive)
	s := &Scenario{Name: name, differs: map[string]Claim{}, expects: map[string]Expectation{}}
	var errs []error
	fail := func(line int, err error) { errs = append(errs, fmt.Errorf("%s:%d: %w", name, line, err)) }
	for _, f := range a.Files {
		if _, twice := s.file(f.Name); twice {
			errs = append(errs, fmt.Errorf("%s: file %s stands there twice", name, f.Name))
		}
		if !localName(f.Name) {
			errs = append(errs, fmt.Errorf("%s: file %s: want a name below the folder of the run", name, f.Name))
		}
		s.Files = append(s.Files, File{f.Name, string(f.Data)})
	}
	var claims []Command
	for i, line := range strings.Split(string(a.Comment), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		c, err := parseCommand(i+1, line)
		if err == nil {
			switch c.Verb {
			case "differs", "expect":
				claims = append(claims, c)
			default:
				err = s.add(c)
			}
		}
		if err != nil {
			fail(i+1, err)
		}
	}
	if err := s.nameRecords(); err != nil {
		errs = append(errs, fmt.Errorf("%s:%w", name, err))
	}
	for _, c := range claims {
		if err := s.claim(c); err != nil {
			fail(c.Line, err)
		}
	}
	if s.Title == "" {
		errs = append(errs, fmt.Errorf("%s: no title", name))
	}
	errs = append(errs, s.checkCovers()...)
	errs = append(errs, s.checkOrder()...)
	return s, errors.Join(errs...)
}

func parseCommand(number int, line string) (Command, error) {
	w := &words{rest: line}
	c := Command{Line: number, Verb: w.next()}
	v, ok := verbs[c.Verb]
	if !ok {
		return c, fmt.Errorf("%s: no such command", c.Verb)
	}
	if v.text {
		for range v.min {
			c.Args = append(c.Args, w.next())
		}
		if c.Text = w.left(); c.Text == "" && c.Verb != "write" || slices.Contains(c.Args, "") {
			return c, fmt.Errorf("%s: something is missing behind it", c.Verb)
		}
		return c, nil
	}
	c.Args = strings.Fields(w.left())
	if n := len(c.Args); n < v.min || v.max >= 0 && n > v.max {
		return c, fmt.Errorf("%s: %d words behind it, want %s", c.Verb, n, bounds(v))
	}
	return c, nil
}

func bounds(v verb) string {
	if v.max < 0 {
		return fmt.Sprintf("at least %d", v.min)
	}
	return fmt.Sprint(v.min)
}

// add takes a command that was split into words; what describes the scenario
// becomes a field, the rest a step.
func (s *Scenario) add(c Command) (err error) {
	switch c.Verb {
	case "title":
		if s.Title != "" {
			return errors.New("a second title")
		}
		s.Title = c.Text
		return nil
	case "quick":
		s.Quick = true
		return nil
	case "covers":
		s.Covers = append(s.Covers, c.Args...)
		return nil
	case "sluice-args":
		s.SluiceArgs = append(s.SluiceArgs, c.Args...)
		return nil
	case "keepalived-args":
		s.KeepalivedArgs = append(s.KeepalivedArgs, c.Args...)
		return nil
	case "timeline":
		s.Timeline, err = seconds(c.Args[0])
		if err == nil && s.Timeline == 0 {
			err = errors.New("timeline 0: no two runs are alike to the moment")
		}
		return err
	case "settle":
		_, err = seconds(c.Args[0])
	case "addr":
		if c.Args[0] != "add" && c.Args[0] != "del" {
			return fmt.Errorf("addr %s: want add or del", c.Args[0])
		}
		_, err = netip.ParseAddr(c.Args[1])
	case "backend":
		c.Behaviour, err = ParseBehaviour(c.Text)
	case "start", "reload", "fifo", "write", "remove":
		if !localName(c.Args[0]) {
			err = fmt.Errorf("%s %s: want a name below the folder of the run", c.Verb, c.Args[0])
		}
	}
	if err == nil {
		s.Commands = append(s.Commands, c)
	}
	return err
}

// localName says whether a file stays below the folder of its run.
func localName(name string) bool {
	return name != "" && !strings.HasPrefix(name, "/") && !slices.Contains(strings.Split(name, "/"), "..")
}

// claim takes a differs or an expect, once all records have their names.
func (s *Scenario) claim(c Command) error {
	record, err := s.resolve(c.Args[0])
	if err != nil {
		return fmt.Errorf("%s: %w", c.Verb, err)
	}
	if c.Verb == "differs" {
		if before, twice := s.differs[record]; twice {
			return fmt.Errorf("differs: %s is excused in line %d already", record, before.Line)
		}
		s.differs[record] = Claim{c.Line, c.Text}
		return nil
	}
	if record == TimelineRecord {
		return errors.New("expect: a time line is never the same to the moment")
	}
	if c.Args[1] != "sluice" && c.Args[1] != "both" {
		return fmt.Errorf("expect: %q: want sluice or both", c.Args[1])
	}
	if _, ok := s.file(c.Args[2]); !ok {
		return fmt.Errorf("expect: no file %s in the archive", c.Args[2])
	}
	s.expects[record] = Expectation{c.Line, c.Args[2], c.Args[1] == "both"}
	return nil
}

// checkCovers wants every keyword that is said to be covered in some file.
func (s *Scenario) checkCovers() (errs []error) {
	for _, word := range s.Covers {
		pattern := regexp.MustCompile(`(^|[^\w.-])` + regexp.QuoteMeta(word) + `($|[^\w.-])`)
		if !slices.ContainsFunc(s.Files, func(f File) bool { return pattern.MatchString(f.Data) }) {
			errs = append(errs, fmt.Errorf("%s: covers %s: the word stands in none of its files", s.Name, word))
		}
	}
	return errs
}

// checkOrder finds steps that cannot work where they stand.
func (s *Scenario) checkOrder() (errs []error) {
	fail := func(c Command, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s:%d: %s: %s", s.Name, c.Line, c.Verb, fmt.Sprintf(format, args...)))
	}
	running := false
	written := map[string]bool{}
	for _, c := range s.Commands {
		switch c.Verb {
		case "write":
			written[c.Args[0]] = true
		case "start", "reload":
			if _, ok := s.file(c.Args[0]); !ok && !written[c.Args[0]] {
				fail(c, "no file %s in the archive", c.Args[0])
			}
			if c.Verb == "start" && running {
				fail(c, "the daemon runs already")
			}
			if c.Verb == "reload" && !running {
				fail(c, "no start before it")
			}
			running = true
		case "stop":
			if !running {
				fail(c, "no start before it")
			}
			running = false
		}
	}
	if running {
		errs = append(errs, fmt.Errorf("%s: no stop at the end", s.Name))
	}
	if len(s.names) == 0 {
		errs = append(errs, fmt.Errorf("%s: nothing is recorded", s.Name))
	}
	return errs
}
