package http

import "strconv"

// group reads what follows an opening parenthesis at index at.
func (t *translator) group(at int) (repeatable bool, err error) {
	switch {
	case t.peek() == '*':
		return false, t.fail(at, "verbs and (*...) groups are not supported")
	case !t.eat("?"):
		if t.opt.noAutoCapture {
			return true, t.inside(at, "(?:", "(?:")
		}
		t.groups++
		return true, t.inside(at, "(", "(")
	case t.eat("#"):
		if _, ok := t.until(')'); !ok {
			return false, t.fail(at, "comment without an end")
		}
		// A quantifier behind it belongs to what is before it: too odd to follow.
		return false, nil
	case t.eat(":"):
		return true, t.inside(at, "(?:", "(?:")
	case t.eat(">"):
		t.needFull = true
		return true, t.inside(at, "(?:", "(?>")
	case t.eat("="), t.eat("!"):
		t.needFull = true
		return false, t.inside(at, "(?:", "(?"+string(t.src[t.pos-1]))
	case t.eat("<="), t.eat("<!"):
		t.needFull = true
		return false, t.inside(at, "(?:", "(?<"+string(t.src[t.pos-1]))
	case t.eat("P="):
		name, ok := t.until(')')
		if !ok {
			return false, t.fail(at, "group without an end")
		}
		return true, t.referName(name, at)
	case t.peek() == '(':
		return true, t.conditional(at)
	case t.eat("P<"), t.eat("<"):
		return true, t.named(at, '>')
	case t.eat("'"):
		return true, t.named(at, '\'')
	}
	switch t.peek() {
	case '|':
		return false, t.fail(at, "branch reset (?| is not supported")
	case 'R', '&', '+', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'P':
		return false, t.fail(at, "recursion is not supported")
	case 'C':
		return false, t.fail(at, "callouts are not supported")
	}
	return t.flags(at)
}

// inside reads the rest of a group whose beginning the engines write so.
func (t *translator) inside(at int, re2, full string) error {
	t.emit(re2, full)
	if _, err := t.alternation(); err != nil {
		return err
	}
	if !t.eat(")") {
		return t.fail(at, "group without an end")
	}
	t.both(")")
	return nil
}

func (t *translator) named(at int, end rune) error {
	name, ok := t.until(end)
	if !ok {
		return t.fail(at, "group name without an end")
	}
	if err := t.name(name, at); err != nil {
		return err
	}
	return t.inside(at, "(", "(")
}

// conditional reads (?(group)yes|no).
func (t *translator) conditional(at int) error {
	t.pos++
	cond, ok := t.until(')')
	if !ok {
		return t.fail(at, "condition without an end")
	}
	written := cond
	n, err := strconv.Atoi(cond)
	if err != nil || n <= 0 {
		if len(cond) > 2 && (cond[0] == '<' && cond[len(cond)-1] == '>' || cond[0] == '\'' && cond[len(cond)-1] == '\'') {
			cond = cond[1 : len(cond)-1]
		}
		if n, ok = t.names[cond]; !ok {
			return t.fail(at, "condition (%s) is not supported: only a group's number or name before it is", written)
		}
	}
	if n > t.maxRef {
		t.maxRef, t.refAt = n, at
	}
	t.needFull = true
	t.emit("(?:", "(?:(?("+strconv.Itoa(n)+")")
	branches, err := t.alternation()
	if err != nil {
		return err
	}
	if branches > 2 {
		return t.fail(at, "conditional group with more than two branches")
	}
	if !t.eat(")") {
		return t.fail(at, "group without an end")
	}
	t.emit(")", "))")
	return nil
}

// flags reads (?flags) and (?flags:...).
func (t *translator) flags(at int) (repeatable bool, err error) {
	opt, on := t.opt, true
	if t.eat("^") {
		opt.caseless, opt.multiline, opt.noAutoCapture, opt.dotall, opt.extended = false, false, false, false, false
	}
	for {
		r := t.peek()
		t.pos++
		switch r {
		case 'i':
			opt.caseless = on
		case 'm':
			opt.multiline = on
		case 'n':
			opt.noAutoCapture = on
		case 's':
			opt.dotall = on
		case 'U':
			opt.ungreedy = on
		case 'J':
			// Allows what is refused where it is used.
		case 'x':
			if t.peek() == 'x' {
				return false, t.fail(at, "option xx is not supported")
			}
			opt.extended = on
		case '-':
			if !on {
				return false, t.fail(at, "two hyphens in an option setting")
			}
			if r := t.peek(); r >= '0' && r <= '9' {
				return false, t.fail(at, "recursion is not supported")
			}
			on = false
		case ')':
			t.opt = opt
			return false, nil
		case ':':
			saved := t.opt
			t.opt = opt
			err := t.inside(at, "(?:", "(?:")
			t.opt = saved
			return true, err
		case -1:
			return false, t.fail(at, "group without an end")
		default:
			return false, t.fail(at, "group (?%s is not known", string(r))
		}
	}
}
