package mail

import (
	"bytes"
	"errors"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// maxSubject is keepalived's, before it is encoded.
	maxSubject = 255
	// maxLine is the longest line of a mail in bytes (RFC 5322, 2.1.1).
	maxLine = 998
)

// address is a recipient or a sender.
type address struct {
	envelope string // a@b
	header   string // "Name" <a@b>
}

// parseAddress takes "a@b" or "Name <a@b>", and what RFC 5322 knows beyond.
func parseAddress(s string) (address, error) {
	s = clean(s)
	var a mail.Address
	if p, err := mail.ParseAddress(s); err == nil {
		a = *p
	} else if before, rest, ok := strings.Cut(s, "<"); ok {
		// The name may have characters that it should not have without quotes.
		a.Name = strings.TrimSpace(before)
		if a.Address, ok = strings.CutSuffix(strings.TrimSpace(rest), ">"); !ok {
			return address{}, errors.New("an address ends with >, or has no <")
		}
	} else {
		a.Address = s // without a domain, for the server to complete
	}
	a.Address = strings.TrimSpace(a.Address)
	if a.Address == "" || strings.ContainsAny(a.Address, "<> ") {
		return address{}, errors.New("not an address: expected a@b or Name <a@b>")
	}
	if a.Name == "" {
		return address{a.Address, a.Address}, nil
	}
	if !ascii(a.Name) {
		// Always by base64: an encoded word in a name may not have all the characters
		// that other encoded words may (RFC 2047, 5).
		return address{a.Address, fold(mime.BEncoding.Encode("utf-8", a.Name)) + " <" + a.Address + ">"}, nil
	}
	header := a.String()
	if !strings.Contains(a.Address, "@") {
		header = strings.TrimSuffix(header, "@>") + ">"
	}
	return address{a.Address, header}, nil
}

// fold puts each encoded word on a line of its own.
func fold(words string) string { return strings.ReplaceAll(words, "?= =?", "?=\n =?") }

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// clean makes a text one line of valid UTF-8 without control characters.
func clean(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?")))
}

// sender is notification_email_from, or the daemon's user at this host.
func (s *settings) sender() string {
	if s.From != "" {
		return s.From
	}
	name := "root"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	return name + "@" + hostName()
}

// hello is the argument of HELO.
func (s *settings) hello() string {
	if h := strings.ReplaceAll(clean(s.Helo), " ", ""); h != "" {
		return h
	}
	return hostName()
}

// hostName is this host's name, or localhost if it has none that could be sent.
func hostName() string {
	name, err := os.Hostname()
	if name = clean(name); err != nil || name == "" || strings.ContainsAny(name, " <>@()") {
		return "localhost"
	}
	return name
}

// address is the server's.
func (s *settings) address() string {
	port := s.Port
	if port == 0 {
		port = defaultPort
	}
	return net.JoinHostPort(s.Server, strconv.Itoa(int(port)))
}

// subject is keepalived's.
func (s *settings) subject(m Message) string {
	router := s.routerID
	if router == "" {
		router = hostName()
	}
	what := "Virtualserver " + m.VS
	if m.RS != "" {
		what = "Realserver " + m.RS + " of virtual server " + m.VS
	}
	state := "DOWN"
	if m.Up {
		state = "UP"
	}
	text := clean("[" + router + "] " + what + " - " + state)
	if len(text) > maxSubject {
		text = text[:maxSubject]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
	}
	return text
}

// compose writes the whole mail. Lines end in LF; who sends it sees to CRLF.
func (s *settings) compose(l *letter, from address, to []address) []byte {
	var b bytes.Buffer
	header := func(name, value string) { b.WriteString(name + ": " + value + "\n") }
	header("Date", l.at.Format(time.RFC1123Z))
	header("From", from.header)
	header("Subject", fold(mime.QEncoding.Encode("utf-8", s.subject(l.Message))))
	header("X-Mailer", "sluice")
	list := make([]string, len(to))
	for i, a := range to {
		list[i] = a.header
	}
	header("To", strings.Join(list, ",\n "))

	body := text(l.Body)
	if plain(body) {
		b.WriteString("\n" + body)
	} else {
		header("MIME-Version", "1.0")
		header("Content-Type", "text/plain; charset=utf-8")
		header("Content-Transfer-Encoding", "quoted-printable")
		b.WriteByte('\n')
		q := quotedprintable.NewWriter(&b)
		_, _ = q.Write([]byte(body)) // a buffer takes all
		_ = q.Close()
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// text makes a body lines of valid UTF-8, each with its end, without control
// characters.
func text(s string) string {
	// Durations below a millisecond are no reason to encode a mail that people grep.
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n", "µs", "us").Replace(strings.ToValidUTF8(s, "?"))
	s = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return s
}

// plain says whether a body may go as it is.
func plain(body string) bool {
	for line := range strings.Lines(body) {
		if len(line) > maxLine {
			return false
		}
	}
	return ascii(body)
}
