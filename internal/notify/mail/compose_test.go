package mail

import (
	"bytes"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
)

const (
	rs = "[192.0.2.11]:tcp:80"
	vs = "[192.0.2.1]:tcp:80"
)

func TestSubject(t *testing.T) {
	host := hostName()
	long := strings.Repeat("ä", 200)
	for _, tt := range []struct {
		router string
		m      Message
		want   string
	}{
		{"lb1", Message{RS: rs, VS: vs, Up: true}, "[lb1] Realserver " + rs + " of virtual server " + vs + " - UP"},
		{"lb1", Message{RS: rs, VS: "FWM 5"}, "[lb1] Realserver " + rs + " of virtual server FWM 5 - DOWN"},
		{"lb1", Message{VS: "[web]:0"}, "[lb1] Virtualserver [web]:0 - DOWN"},
		{"", Message{VS: vs, Up: true}, "[" + host + "] Virtualserver " + vs + " - UP"},
		{"a\r\nBcc: evil@b.test", Message{VS: vs, Up: true}, "[a  Bcc: evil@b.test] Virtualserver " + vs + " - UP"},
		{"x\xff", Message{VS: vs, Up: true}, "[x?] Virtualserver " + vs + " - UP"},
		{"xy" + long, Message{VS: vs}, "[xy" + strings.Repeat("ä", 126)},
		{"x" + long, Message{VS: vs}, "[x" + strings.Repeat("ä", 126)}, // never half a letter
	} {
		s := settings{routerID: tt.router}
		if got := s.subject(tt.m); got != tt.want {
			t.Errorf("%q %+v:\n%q, want\n%q", tt.router, tt.m, got, tt.want)
		}
	}
}

func TestAddresses(t *testing.T) {
	for in, want := range map[string]address{
		"ops@a.test":                  {"ops@a.test", "ops@a.test"},
		" ops@a.test ":                {"ops@a.test", "ops@a.test"},
		"<ops@a.test>":                {"ops@a.test", "ops@a.test"},
		"root":                        {"root", "root"},
		"Ops <ops@a.test>":            {"ops@a.test", `"Ops" <ops@a.test>`},
		"Ops Team<ops@a.test>":        {"ops@a.test", `"Ops Team" <ops@a.test>`},
		`"Ops, night" <ops@a.test>`:   {"ops@a.test", `"Ops, night" <ops@a.test>`},
		"Ops, night <ops@a.test>":     {"ops@a.test", `"Ops, night" <ops@a.test>`},
		"L.B. (one) <ops@a.test>":     {"ops@a.test", `"L.B." <ops@a.test>`}, // a comment
		"L.B. (one, two <ops@a.test>": {"ops@a.test", `"L.B. (one, two" <ops@a.test>`},
		"Ops <root>":                  {"root", `"Ops" <root>`},
		"Jürgen <j@a.test>":           {"j@a.test", "=?utf-8?b?SsO8cmdlbg==?= <j@a.test>"},
		"ops@[192.0.2.1]":             {"ops@[192.0.2.1]", "ops@[192.0.2.1]"},
		"":                            {},
		"Ops <>":                      {},
		"Ops <ops@a.test":             {},
		"ops@a.test>":                 {},
		"a@b c@d":                     {},
		"a@b>\r\nRCPT TO:<c@d":        {},
		"Ops <a@b\nDATA>":             {},
		"Ops <a@b> <c@d>":             {},
	} {
		if got, err := parseAddress(in); got != want || (err != nil) != (want == address{}) {
			t.Errorf("%q: %+v, %v, want %+v", in, got, err, want)
		}
	}
}

func TestDefaultsOfSenderAndHelo(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skipf("no host name: %v", err)
	}
	var s settings
	if got := s.sender(); !strings.HasSuffix(got, "@"+host) || strings.HasPrefix(got, "@") {
		t.Errorf("sender %q", got)
	}
	if got := s.hello(); got != host {
		t.Errorf("helo %q", got)
	}
	s.From, s.Helo = "a@b.test", "lb.test\r\nEVIL"
	if s.sender() != "a@b.test" || s.hello() != "lb.testEVIL" {
		t.Errorf("%q %q", s.sender(), s.hello())
	}
	for server, want := range map[string]string{"mx.test": "mx.test:25", "192.0.2.1": "192.0.2.1:25", "2001:db8::1": "[2001:db8::1]:25"} {
		s.Server = server
		if got := s.address(); got != want {
			t.Errorf("%s: %s", server, got)
		}
	}
}

func compose(t *rapid.T, s *settings, l *letter) []byte {
	from, err := parseAddress(s.From)
	if err != nil {
		t.Fatalf("%q: %v", s.From, err)
	}
	var to []address
	for _, text := range s.To {
		a, err := parseAddress(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		to = append(to, a)
	}
	return s.compose(l, from, to)
}

func TestMailToTheByte(t *testing.T) {
	s := settings{config.Mail{From: "LB <lb@a.test>", To: []string{"one@a.test", "Two <two@a.test>"}}, "lb1"}
	l := &letter{Message: Message{RS: rs, VS: vs, Body: "=> TCP CHECK failed on service <="}, at: time.Date(2026, 3, 1, 9, 8, 7, 0, time.FixedZone("", 3600))}
	var got []byte
	rapid.Check(t, func(t *rapid.T) { got = compose(t, &s, l) })
	want := `Date: Sun, 01 Mar 2026 09:08:07 +0100
From: "LB" <lb@a.test>
Subject: [lb1] Realserver [192.0.2.11]:tcp:80 of virtual server [192.0.2.1]:tcp:80 - DOWN
X-Mailer: sluice
To: one@a.test,
 "Two" <two@a.test>

=> TCP CHECK failed on service <=

`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Whatever the names and the text are, a mail has the headers that it should have,
// and reads back as what was written.
func TestNoNameAddsAHeader(t *testing.T) {
	odd := rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune("\r\n\t\x00:.,<>@\"\\ =?\u2028\u0085äa"))))
	order := []string{"Date", "From", "Subject", "X-Mailer", "To"}
	rapid.Check(t, func(t *rapid.T) {
		name := strings.Map(func(r rune) rune {
			if r == '<' || r == '>' {
				return -1
			}
			return r
		}, odd.Draw(t, "name"))
		s := settings{config.Mail{From: name + " <lb@a.test>", To: []string{"one@a.test", name + "<two@a.test>"}}, odd.Draw(t, "router")}
		body := odd.Draw(t, "body")
		if rapid.Bool().Draw(t, "long") {
			body += strings.Repeat("x", 2000)
		}
		l := &letter{Message: Message{RS: odd.Draw(t, "rs"), VS: odd.Draw(t, "vs"), Body: body}, at: time.Now()}
		raw := compose(t, &s, l)
		for line := range strings.Lines(string(raw)) {
			if len(line) > maxLine+2 {
				t.Fatalf("a line of %d bytes", len(line))
			}
		}
		for _, c := range raw {
			if c >= utf8.RuneSelf || c < ' ' && c != '\n' && c != '\t' && c != '\r' {
				t.Fatalf("byte %#x in %q", c, raw)
			}
		}
		m, err := mail.ReadMessage(bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("%v in %q", err, raw)
		}
		encoded := m.Header.Get("MIME-Version") != ""
		if want := len(order) + map[bool]int{true: 3}[encoded]; len(m.Header) != want {
			t.Fatalf("%d headers: %v", len(m.Header), m.Header)
		}
		head := string(raw)
		for _, h := range order {
			if !strings.HasPrefix(head, h+": ") {
				t.Fatalf("%s is not where it should be in %q", h, raw)
			}
			if _, head, _ = strings.Cut(head, "\n"); strings.HasPrefix(head, " ") {
				for strings.HasPrefix(head, " ") {
					_, head, _ = strings.Cut(head, "\n")
				}
			}
		}
		for _, h := range []string{"From", "To"} {
			if _, err := m.Header.AddressList(h); err != nil {
				t.Fatalf("%s: %v in %q", h, err, raw)
			}
		}
		subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
		if want := s.subject(l.Message); err == nil && !strings.Contains(want, "=?") && strings.Join(strings.Fields(subject), " ") != strings.Join(strings.Fields(want), " ") {
			t.Fatalf("subject %q, want %q", subject, want)
		}
		var r io.Reader = m.Body
		if encoded {
			r = quotedprintable.NewReader(r)
		}
		got, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("body: %v", err)
		}
		if g, w := strings.ReplaceAll(string(got), "\r\n", "\n"), text(body)+"\n"; g != w {
			t.Fatalf("body %q, want %q", g, w)
		}
	})
}

// TestAQuickFailureIsPlainText: its duration is no reason to encode keepalived's words.
func TestAQuickFailureIsPlainText(t *testing.T) {
	got := text("=> TCP CHECK failed on service <=\n\nconnect to 10.0.0.1:80: connection refused (ECONNREFUSED) after 843µs")
	if !plain(got) || !strings.Contains(got, "=> TCP CHECK failed on service <=") || !strings.Contains(got, "after 843us") {
		t.Errorf("%q is not plain", got)
	}
}
