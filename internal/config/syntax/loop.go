package syntax

import (
	"fmt"
	"strconv"
	"strings"
)

// loop reads a ~SEQ, ~SEQx or ~LST line and works on what it repeats. It
// returns false when the line is no loop.
func (p *parser) loop(l line, c *context) bool {
	open := strings.IndexByte(l.text, '(')
	if open < 0 {
		return false
	}
	name := l.text[:open]
	if name != "~SEQ" && name != "~SEQx" && name != "~LST" {
		return false
	}
	if c.ext && len(p.block.stack) > p.block.floor {
		// What it repeats would have to be one statement with the brace behind.
		p.badLoop(&l, 0, open, name+" inside a block of a #sluice comment")
		return true
	}
	end := strings.IndexByte(l.text, ')')
	if end < 0 {
		p.badLoop(&l, 0, open, name+" without its closing parenthesis")
		return true
	}
	args := l.sub(open+1, end)
	rest := l.sub(end+1, len(l.text)).trim()
	run := &repeat{p: p, at: l, rest: rest, c: *c}
	run.c.depth++
	if name == "~LST" {
		p.listLoop(args, run)
	} else {
		p.sequence(name, args, run)
	}
	return true
}

func (p *parser) badLoop(l *line, i, j int, message string) {
	p.report(badLoop, l, i, j, message, "the line is ignored, as keepalived does; write ~SEQ(NAME,[START,][STEP,]END), ~LST(NAME,a,b) or ~LST({A,B},{a1,b1},{a2,b2})")
}

// repeat is what a loop runs each time.
type repeat struct {
	p    *parser
	at   line
	rest line
	c    context
}

// once runs one iteration; false means that there is to be no other.
func (r *repeat) once() bool {
	if !r.p.spend(&r.at) {
		return false
	}
	r.p.logical(r.rest, &r.c)
	return !r.p.stopped
}

// sequence runs ~SEQ and ~SEQx.
func (p *parser) sequence(name string, args line, run *repeat) {
	parts := splitLine(args, ',')
	if len(parts) < 2 || len(parts) > 4 {
		p.badLoop(&run.at, 0, len(name), fmt.Sprintf("%s with %d parameters, 2 to 4 are possible", name, len(parts)))
		return
	}
	variable := parts[0].text
	if variable == "" || identifier(variable) != len(variable) {
		p.badLoop(&run.at, 0, len(name), fmt.Sprintf("%s: %q is not a name", name, shorten(variable)))
		return
	}
	var n [3]int64
	for i, part := range parts[1:] {
		value, _ := p.substitute(part, &run.c)
		v, err := number(value.text)
		if err != nil {
			p.badLoop(&run.at, 0, len(name), fmt.Sprintf("%s: %q is not a number", name, shorten(value.text)))
			return
		}
		n[i] = v
	}
	var start, step, end int64
	switch len(parts) {
	case 2:
		start, step, end = 1, 1, n[0]
		if end < 0 {
			start = -1
		}
		if end < 1 {
			step = -1
		}
	case 3:
		start, step, end = n[0], 1, n[1]
		if end < start {
			step = -1
		}
	default:
		start, step, end = n[0], n[1], n[2]
	}
	switch {
	case step == 0, step > 0 && start > end, step < 0 && start < end:
		p.badLoop(&run.at, 0, len(name), fmt.Sprintf("%s never comes from %d to %d in steps of %d", name, start, end, step))
		return
	case name == "~SEQx" && (start < 0 || end < 0):
		p.badLoop(&run.at, 0, len(name), "~SEQx counts from 0 up only")
		return
	}
	base := 10
	if name == "~SEQx" {
		base = 16
	}
	for v := start; ; v += step {
		p.defs[variable] = &definition{name: variable, value: strconv.FormatInt(v, base)}
		if !run.once() {
			return
		}
		// Compared by distance, so that the last step cannot overflow.
		if step > 0 && uint64(end)-uint64(v) < uint64(step) || step < 0 && uint64(v)-uint64(end) < -uint64(step) {
			return
		}
	}
}

// number reads a decimal, 0x hexadecimal or 0 octal number.
func number(s string) (int64, error) {
	digits := strings.TrimLeft(s, "+-")
	base := 0
	if strings.ContainsAny(digits, "_bBoO") && !strings.HasPrefix(digits, "0x") && !strings.HasPrefix(digits, "0X") || strings.Contains(digits, "_") {
		base = 10 // Go's own notations are errors here
	}
	return strconv.ParseInt(s, base, 64)
}

// listLoop runs ~LST.
func (p *parser) listLoop(args line, run *repeat) {
	groups, ok := listGroups(args.text)
	if !ok || len(groups) < 1 {
		p.badLoop(&run.at, 0, len("~LST"), "~LST with braces that do not match")
		return
	}
	names := groups[0]
	for _, name := range names {
		if name == "" || identifier(name) != len(name) {
			p.badLoop(&run.at, 0, len("~LST"), fmt.Sprintf("~LST: %q is not a name", shorten(name)))
			return
		}
	}
	for _, values := range groups[1:] {
		if len(values) > len(names) {
			p.badLoop(&run.at, 0, len("~LST"), fmt.Sprintf("~LST: %d values for %d names", len(values), len(names)))
			return
		}
	}
	for _, values := range groups[1:] {
		for i, name := range names {
			d := &definition{name: name}
			if i < len(values) {
				d.value = values[i]
			}
			p.defs[name] = d
		}
		if !run.once() {
			return
		}
	}
}

// listGroups splits "A,b,c" and "{A,B},{a,b}" into groups.
func listGroups(s string) (groups [][]string, ok bool) {
	for {
		s = strings.TrimLeft(s, blanks)
		var group string
		if strings.HasPrefix(s, "{") {
			end := strings.IndexByte(s, '}')
			if end < 0 {
				return nil, false
			}
			group, s = s[1:end], strings.TrimLeft(s[end+1:], blanks)
			if s != "" && s[0] != ',' {
				return nil, false
			}
			groups = append(groups, fields(group))
		} else {
			end := strings.IndexByte(s, ',')
			if end < 0 {
				end = len(s)
			}
			group, s = s[:end], s[end:]
			if strings.ContainsAny(group, "{}") {
				return nil, false
			}
			groups = append(groups, []string{strings.Trim(group, blanks)})
		}
		if s == "" {
			return groups, true
		}
		s = s[1:]
	}
}

func fields(s string) []string {
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.Trim(parts[i], blanks)
	}
	return parts
}

// splitLine splits a line at a separator into trimmed parts.
func splitLine(l line, sep byte) []line {
	var parts []line
	for {
		i := strings.IndexByte(l.text, sep)
		if i < 0 {
			return append(parts, l.trim())
		}
		parts = append(parts, l.sub(0, i).trim())
		l = l.sub(i+1, len(l.text))
	}
}
