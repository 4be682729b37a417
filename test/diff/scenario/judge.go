package scenario

import (
	"fmt"
	"strings"
)

// Status is the judgement of a scenario; a greater one is worse.
type Status int

// Statuses.
const (
	Same Status = iota
	// Different on purpose: every difference has its reason.
	Different
	// Unexplained: a difference without a reason, a reason without a difference,
	// or a record that is not what it is pinned to.
	Unexplained
	// Broken: a run that says nothing.
	Broken
)

// String returns the words of the report.
func (s Status) String() string {
	return [...]string{"same", "different on purpose", "UNEXPLAINED", "BROKEN"}[s]
}

// OK says whether the status lets the test pass.
func (s Status) OK() bool { return s <= Different }

// Finding is one thing that the judge has to say.
type Finding struct {
	Status Status
	// Record is what it is about, "" for the whole run.
	Record string
	// Reason is the claim's, of a difference on purpose.
	Reason string
	// Stale says that a reason has no difference.
	Stale bool
	// Detail shows the difference: lines with - are keepalived's alone, with + sluice's.
	Detail string
}

// Result is the judgement with all that led to it.
type Result struct {
	Name, Title string
	Status      Status
	Findings    []Finding
}

func (r *Result) add(f Finding) {
	r.Findings = append(r.Findings, f)
	r.Status = max(r.Status, f.Status)
}

// Judge compares the two runs of a scenario.
func Judge(s *Scenario, keepalived, sluice *Run) Result {
	r := Result{Name: s.Name, Title: s.Title}
	for _, run := range []*Run{keepalived, sluice} {
		for _, p := range run.Problems {
			r.add(Finding{Status: Broken, Detail: run.Daemon + ": " + p})
		}
	}
	if r.Status == Broken {
		return r
	}
	for _, name := range s.names {
		s.judgeRecord(&r, name, keepalived, sluice)
	}
	return r
}

func (s *Scenario) judgeRecord(r *Result, name string, keepalived, sluice *Run) {
	detail := ""
	if name == TimelineRecord {
		detail = compareTimelines(keepalived, sluice, s.Timeline)
	} else {
		k, kok := keepalived.Records[name]
		v, vok := sluice.Records[name]
		if !kok || !vok {
			r.add(Finding{Status: Broken, Record: name, Detail: "was not recorded"})
			return
		}
		if k != v {
			detail = lineDiff(k, v)
		}
		s.judgePinned(r, name, k, v)
	}
	claim, claimed := s.differs[name]
	switch {
	case detail != "" && claimed:
		r.add(Finding{Status: Different, Record: name, Reason: claim.Reason, Detail: detail})
	case detail != "":
		r.add(Finding{Status: Unexplained, Record: name, Detail: detail})
	case claimed:
		r.add(Finding{Status: Unexplained, Record: name, Stale: true,
			Detail: fmt.Sprintf("line %d says that it differs (%s), and it does not: take the line away", claim.Line, claim.Reason)})
	}
}

// judgePinned holds a record to its file.
func (s *Scenario) judgePinned(r *Result, name, keepalived, sluice string) {
	e, pinned := s.expects[name]
	if !pinned {
		return
	}
	data, _ := s.file(e.File)
	want, err := Canonical(name, data)
	if err != nil {
		r.add(Finding{Status: Broken, Record: name, Detail: fmt.Sprintf("%s: %v", e.File, err)})
		return
	}
	if sluice != want {
		r.add(Finding{Status: Unexplained, Record: name, Detail: "sluice against " + e.File + ":\n" + lineDiff(want, sluice)})
	}
	if e.Both && keepalived != want {
		r.add(Finding{Status: Unexplained, Record: name, Detail: "keepalived against " + e.File + ":\n" + lineDiff(want, keepalived)})
	}
}

// lineDiff lists the lines that only one of two texts has, in their order, and all
// lines where only the order differs.
func lineDiff(a, b string) string {
	var out strings.Builder
	only := func(sign, text, other string) {
		left := map[string]int{}
		for line := range strings.Lines(other) {
			left[strings.TrimRight(line, "\n")]++
		}
		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, "\n")
			if left[line]--; left[line] < 0 {
				fmt.Fprintf(&out, "%s %s\n", sign, line)
			}
		}
	}
	only("-", a, b)
	only("+", b, a)
	if out.Len() == 0 {
		only("-", a, "")
		only("+", b, "")
	}
	return out.String()
}
