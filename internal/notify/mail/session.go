package mail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"strconv"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
)

// maxAnswers bounds all that a server may say in one session, in bytes.
const maxAnswers = 256 << 10

// attempt hands a mail over to the recipients that have not got it. On an error some
// of them have not, and may still.
func (m *Mailer) attempt(ctx context.Context, set *settings, l *letter) error {
	from, err := parseAddress(set.sender())
	if err != nil {
		return refusal{fmt.Errorf("notification_email_from: %w", err)}
	}
	var to []address // with a place in the header
	var left []address
	for _, text := range set.To {
		a, err := parseAddress(text)
		if err != nil {
			if !l.done[text] {
				m.log.Error("Mail recipient is left out", event.Key, event.MailFailed, "recipient", text, "err", err, "hint", "correct notification_email")
			}
			l.done[text] = true
			continue
		}
		to = append(to, a)
		if !l.done[a.envelope] {
			left = append(left, a)
		}
	}
	if len(left) == 0 {
		return nil
	}
	s, err := m.connect(ctx, set)
	if err != nil {
		return err
	}
	defer s.close()
	err = m.handOver(s, set, l, from, to, left)
	if err == nil || isAnswer(err) {
		// Not to a connection that failed, and never within a text that did not end.
		s.quit()
	}
	return err
}

// handOver is the dialogue.
func (m *Mailer) handOver(s *session, set *settings, l *letter, from address, to, left []address) error {
	if err := s.say(220, ""); err != nil {
		return err
	}
	if err := s.say(250, "HELO %s", set.hello()); err != nil {
		return err
	}
	if err := s.say(250, "MAIL FROM:<%s>", from.envelope); err != nil {
		return err
	}
	var took []string
	var later error
	for _, a := range left {
		err := s.say(25, "RCPT TO:<%s>", a.envelope)
		switch {
		case err == nil:
			took = append(took, a.envelope)
		case permanent(err):
			l.done[a.envelope] = true
			m.log.Error("Mail recipient is refused", event.Key, event.MailFailed, "recipient", a.envelope, "server", set.address(), "err", err)
		case isAnswer(err):
			later = err
		default:
			return err
		}
	}
	if len(took) == 0 {
		return later
	}
	if err := s.say(354, "DATA"); err != nil {
		return err
	}
	if err := s.data(set.compose(l, from, to)); err != nil {
		return err
	}
	for _, envelope := range took {
		l.done[envelope] = true
	}
	l.sent = true
	m.log.Debug("Mail is sent", "subject", set.subject(l.Message), "server", set.address(), "recipients", len(took))
	return later
}

// session is a connection to the mail server.
type session struct {
	conn    net.Conn
	text    *textproto.Conn
	timeout time.Duration
	// deadline is the step's.
	deadline time.Time
	unwatch  func() bool
}

func (m *Mailer) connect(ctx context.Context, set *settings) (*session, error) {
	timeout := set.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	dialing, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := m.dial(dialing, "tcp", set.address())
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	s := &session{conn: conn, timeout: timeout}
	s.text = textproto.NewConn(struct {
		io.Reader
		io.Writer
		io.Closer
	}{io.LimitReader(conn, maxAnswers), conn, conn})
	s.unwatch = context.AfterFunc(ctx, func() { conn.Close() })
	return s, nil
}

func (s *session) close() {
	s.unwatch()
	s.conn.Close()
}

// begin sets the one deadline of a step.
func (s *session) begin() {
	s.deadline = time.Now().Add(s.timeout)
	_ = s.conn.SetDeadline(s.deadline)
}

// say sends a command, if there is one, and reads an answer that must have the
// code, or begin with it.
func (s *session) say(code int, format string, args ...any) error {
	s.begin()
	step := "greeting"
	if format != "" {
		step = fmt.Sprintf(format, args...)
		if err := s.text.PrintfLine("%s", step); err != nil {
			return fmt.Errorf("%s: %w", step, explain(err))
		}
	}
	return s.answer(code, step)
}

func (s *session) answer(code int, step string) error {
	_, _, err := s.text.ReadResponse(code)
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*textproto.Error](err)
	if !ok {
		// net/textproto takes what has come by then for a line.
		if !time.Now().Before(s.deadline) {
			err = os.ErrDeadlineExceeded
		}
		return fmt.Errorf("%s: %w", step, explain(err))
	}
	err = fmt.Errorf("%s: answer %w", step, &textproto.Error{Code: e.Code, Msg: cut(e.Msg)})
	if e.Code/100 == 5 {
		return refusal{err}
	}
	return err
}

// isAnswer says whether the server said no, as opposed to a connection that failed.
func isAnswer(err error) bool { return errors.As(err, new(*textproto.Error)) }

// data sends the mail itself, dots stuffed and lines ended as they must be.
func (s *session) data(mail []byte) error {
	s.begin()
	w := s.text.DotWriter()
	if _, err := w.Write(mail); err != nil {
		return fmt.Errorf("DATA: %w", explain(err))
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("DATA: %w", explain(err))
	}
	return s.answer(250, "end of DATA")
}

// quit says good-bye. What becomes of it changes nothing: the mail is there or it is
// not.
func (s *session) quit() {
	_ = s.conn.SetDeadline(time.Now().Add(min(s.timeout, time.Second)))
	if s.text.PrintfLine("QUIT") == nil {
		_, _, _ = s.text.ReadResponse(221)
	}
}

func explain(err error) error {
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the server closed the connection")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("no answer in time")
	}
	if e, ok := errors.AsType[textproto.ProtocolError](err); ok {
		return errors.New(strconv.QuoteToASCII(cut(string(e))))
	}
	return err
}

// cut shows the beginning of foreign text.
func cut(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
