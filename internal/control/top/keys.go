package top

import (
	"unicode"
	"unicode/utf8"
)

// sequences are what terminals send for keys that are no character (ECMA-48, xterm).
var sequences = map[string]string{
	"\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left",
	"\x1bOA": "up", "\x1bOB": "down", "\x1bOC": "right", "\x1bOD": "left",
	"\x1b[H": "home", "\x1b[F": "end", "\x1bOH": "home", "\x1bOF": "end",
	"\x1b[1~": "home", "\x1b[4~": "end", "\x1b[7~": "home", "\x1b[8~": "end",
	"\x1b[5~": "pgup", "\x1b[6~": "pgdn",
}

var controls = map[byte]string{
	'\r': "enter", '\n': "enter", 0x7f: "backspace", 0x08: "backspace", 0x03: "ctrl-c", 0x02: "ctrl-b", 0x06: "ctrl-f", 0x15: "ctrl-u",
}

// Keys names the keys in what a terminal sent in one read. A sequence that is not
// known is skipped whole; an escape by itself is "esc".
func Keys(in []byte) (keys []string) {
	for len(in) > 0 {
		if in[0] == 0x1b {
			n := sequence(in)
			switch name := sequences[string(in[:n])]; {
			case name != "":
				keys = append(keys, name)
			case n == 1:
				keys = append(keys, "esc")
			}
			in = in[n:]
			continue
		}
		if name := controls[in[0]]; name != "" {
			keys = append(keys, name)
			in = in[1:]
			continue
		}
		r, n := utf8.DecodeRune(in)
		if r != utf8.RuneError && unicode.IsPrint(r) {
			keys = append(keys, string(r))
		}
		in = in[n:]
	}
	return keys
}

// sequence is how long what begins with an escape is.
func sequence(in []byte) int {
	if len(in) < 3 || in[1] != '[' && in[1] != 'O' {
		return 1
	}
	for i, b := range in[2:] {
		if b >= 0x40 && b <= 0x7e {
			return i + 3
		}
	}
	return len(in)
}
