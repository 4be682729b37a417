package scenario

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Behaviour is what a backend does from now on.
type Behaviour struct {
	Addr netip.AddrPort
	// Kind is the word of the script.
	Kind string
	// Status and Body are of the http and https kinds, Status also the rcode of dns.
	Status int
	Body   string
	// Match is the path, host or SNI that http-path, http-host and https-sni
	// answer, Seconds the pause of http-slow.
	Match   string
	Seconds float64
	// Lines are what smtp answers: banner, HELO and QUIT.
	Lines []string
	// Bytes are what udp reply sends.
	Bytes []byte
}

// ParseBehaviour reads the words behind "backend".
func ParseBehaviour(text string) (*Behaviour, error) {
	w := &words{rest: text}
	addr, err := netip.ParseAddrPort(w.next())
	if err != nil {
		return nil, fmt.Errorf("want ADDR:PORT, as 192.0.2.1:80 or [2001:db8::1]:80: %w", err)
	}
	b := &Behaviour{Addr: addr, Kind: w.next()}
	if err := b.arguments(w); err != nil {
		return nil, fmt.Errorf("%s: %w", b.Kind, err)
	}
	if left := w.left(); left != "" {
		return nil, fmt.Errorf("%s: unexpected %q", b.Kind, left)
	}
	return b, nil
}

func (b *Behaviour) arguments(w *words) (err error) {
	switch b.Kind {
	case "tcp", "refuse", "drop", "reset", "dns-wrongid", "dns-short", "dns-silent":
	case "http", "http-keepalive", "https":
		err = b.answer(w)
	case "http-path", "http-host":
		b.Match = w.next()
		err = b.answer(w)
	case "http-raw":
		b.Body, err = unquote(w.left())
		w.rest = ""
	case "http-slow":
		if b.Seconds, err = seconds(w.next()); err == nil {
			err = b.answer(w)
		}
	case "https-sni":
		b.Match = w.next()
		b.Status, err = status(w.next())
	case "smtp":
		b.Lines, err = smtpLines(w)
	case "dns":
		b.Status, err = number(w.next(), 0, 15)
	case "udp":
		err = b.udp(w)
	case "":
		err = fmt.Errorf("what it does is missing")
	default:
		err = fmt.Errorf("no such behaviour")
	}
	return err
}

// answer reads STATUS [BODY].
func (b *Behaviour) answer(w *words) (err error) {
	if b.Status, err = status(w.next()); err != nil {
		return err
	}
	b.Body, err = unquote(w.left())
	w.rest = ""
	return err
}

func (b *Behaviour) udp(w *words) (err error) {
	switch kind := w.next(); kind {
	case "echo", "silent":
		b.Kind += " " + kind
	case "reply":
		b.Kind += " " + kind
		b.Bytes, err = hex.DecodeString(strings.ReplaceAll(w.left(), " ", ""))
		w.rest = ""
	default:
		err = fmt.Errorf("want echo, reply HEX or silent")
	}
	return err
}

// smtpLines reads up to three quoted strings over good defaults. A line without an
// end gets CR LF.
func smtpLines(w *words) ([]string, error) {
	lines := []string{"220 ready\r\n", "250 hello\r\n", "221 bye\r\n"}
	for i := 0; w.left() != ""; i++ {
		if i == len(lines) {
			return nil, fmt.Errorf("want banner, HELO answer and QUIT answer, no more")
		}
		quoted, err := strconv.QuotedPrefix(w.left())
		if err != nil {
			return nil, fmt.Errorf("want quoted strings, as \"220 ready\": %q", w.left())
		}
		w.rest = w.left()[len(quoted):]
		line, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(line, "\n") {
			line += "\r\n"
		}
		lines[i] = line
	}
	return lines, nil
}

// UDP says whether the behaviour is one of datagrams.
func (b *Behaviour) UDP() bool {
	kind, _, _ := strings.Cut(b.Kind, " ")
	return slices.Contains([]string{"udp", "dns", "dns-wrongid", "dns-short", "dns-silent"}, kind)
}

func status(word string) (int, error) { return number(word, 100, 999) }

func number(word string, from, to int) (int, error) {
	n, err := strconv.Atoi(word)
	if err != nil || n < from || n > to {
		return 0, fmt.Errorf("%q: want a number from %d to %d", word, from, to)
	}
	return n, nil
}

func seconds(word string) (float64, error) {
	f, err := strconv.ParseFloat(word, 64)
	if err != nil || f < 0 || f > 600 {
		return 0, fmt.Errorf("%q: want seconds, from 0 to 600", word)
	}
	return f, nil
}

// unquote understands the escapes of Go in a text, which may stand in quotes.
func unquote(text string) (string, error) {
	if !strings.HasPrefix(text, `"`) {
		text = `"` + strings.ReplaceAll(text, `"`, `\"`) + `"`
	}
	s, err := strconv.Unquote(text)
	if err != nil {
		return "", fmt.Errorf("%s: not a text with the escapes of Go: %w", text, err)
	}
	return s, nil
}

// words takes a line apart, word by word.
type words struct{ rest string }

func (w *words) left() string { return strings.TrimSpace(w.rest) }

func (w *words) next() string {
	text := w.left()
	end := strings.IndexAny(text, " \t")
	if end < 0 {
		end = len(text)
	}
	w.rest = text[end:]
	return text[:end]
}
