package mail

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestDialogueToTheByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, polite)
		m := alert
		m.Body = ".\r\n..two\nend"
		r.Send(m)
		synctest.Wait()
		sessions, mails := r.srv.got()
		want := "HELO lb1.test\r\nMAIL FROM:<lb@a.test>\r\nRCPT TO:<one@a.test>\r\nRCPT TO:<two@a.test>\r\nDATA\r\n" +
			"Date: Sat, 01 Jan 2000 00:00:00 +0000\r\nFrom: \"LB\" <lb@a.test>\r\n" +
			"Subject: [lb1] Realserver [192.0.2.11]:tcp:80 of virtual server [192.0.2.1]:tcp:80 - DOWN\r\n" +
			"X-Mailer: sluice\r\nTo: \"One\" <one@a.test>,\r\n two@a.test\r\n\r\n..\r\n...two\r\nend\r\n\r\n.\r\nQUIT\r\n"
		if len(sessions) != 1 || sessions[0] != want || len(mails) != 1 {
			t.Errorf("%d mails, sessions:\n%q\nwant\n%q", len(mails), sessions, want)
		}
		if got := r.Stats(); got != (Stats{Sent: 1}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestAnswersOfTheServer(t *testing.T) {
	for name, tt := range map[string]struct {
		answers map[string]string
		tries   string // the seconds of all sessions
		mails   int
		stats   Stats
		log     string
		last    string // what the last session ends with
	}{
		"of several lines": {map[string]string{"0 ": "220-a\r\n220-b\r\n220 c\r\n", "0 HELO lb1.test": "250-a\n250 b\n"}, "0s", 1, Stats{Sent: 1}, "Mail is sent", "QUIT\r\n"},
		"251":              {map[string]string{"0 RCPT TO:<one@a.test>": "251 will forward\r\n"}, "0s", 1, Stats{Sent: 1}, "", "QUIT\r\n"},
		"421 once":         {map[string]string{"1 ": "421 busy\r\n"}, "0s 30s", 1, Stats{Sent: 1}, `answer 421 \"busy\"`, "QUIT\r\n"},
		"451 twice":        {map[string]string{"1 DATA": "451 disk\r\n", "2 MAIL FROM:<lb@a.test>": "451 x\r\n"}, "0s 30s 2m30s", 1, Stats{Sent: 1}, "", "QUIT\r\n"},
		"451 always":       {map[string]string{"0 .": "451 disk full\r\n"}, "0s 30s 2m30s", 3, Stats{Failed: 1}, "Mail is given up", "QUIT\r\n"},
		"554":              {map[string]string{"0 ": "554-no\r\n554 never\r\n"}, "0s", 0, Stats{Failed: 1}, `greeting: answer 554 \"no\\nnever\"`, "QUIT\r\n"},
		"550 sender":       {map[string]string{"0 MAIL FROM:<lb@a.test>": "550 who?\r\n"}, "0s", 0, Stats{Failed: 1}, `MAIL FROM:<lb@a.test>: answer 550 \"who?\"`, "QUIT\r\n"},
		"552 mail":         {map[string]string{"0 .": "552 too big\r\n"}, "0s", 1, Stats{Failed: 1}, `end of DATA: answer 552`, "QUIT\r\n"},
		"250 to DATA":      {map[string]string{"1 DATA": "250 what\r\n"}, "0s 30s", 1, Stats{Sent: 1}, `DATA: answer 250`, "QUIT\r\n"},
		"one refused":      {map[string]string{"0 RCPT TO:<one@a.test>": "550 unknown\r\n"}, "0s", 1, Stats{Sent: 1}, "Mail recipient is refused", "QUIT\r\n"},
		"both refused":     {map[string]string{"0 RCPT TO:<one@a.test>": "550 a\r\n", "0 RCPT TO:<two@a.test>": "550 b\r\n"}, "0s", 0, Stats{Failed: 1}, "two@a.test", "QUIT\r\n"},
		"one later":        {map[string]string{"1 RCPT TO:<one@a.test>": "450 greylisted\r\n"}, "0s 30s", 2, Stats{Sent: 1}, "450", "QUIT\r\n"},
		"one never":        {map[string]string{"0 RCPT TO:<one@a.test>": "450 later\r\n"}, "0s 30s 2m30s", 1, Stats{Sent: 1}, "Mail is given up", "QUIT\r\n"},
		"hangs up":         {map[string]string{"1 ": "", "2 DATA": ""}, "0s 30s 2m30s", 1, Stats{Sent: 1}, "the server closed the connection", "QUIT\r\n"},
		"silent":           {map[string]string{"1 ": silence, "2 .": silence}, "0s 1m0s 3m30s", 2, Stats{Sent: 1}, "greeting: no answer in time", "QUIT\r\n"},
		"no SMTP":          {map[string]string{"1 ": "HTTP/1.1 400 Bad Request\r\n"}, "0s 30s", 1, Stats{Sent: 1}, "HTTP/1.1 400", "QUIT\r\n"},
		"endless line":     {map[string]string{"1 ": strings.Repeat("2", maxAnswers+1)}, "0s 30s", 1, Stats{Sent: 1}, "", "QUIT\r\n"},
		"endless answer":   {map[string]string{"1 ": strings.Repeat("220-x\r\n", maxAnswers/7+1)}, "0s 30s", 1, Stats{Sent: 1}, "", "QUIT\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, except(tt.answers))
				r.Send(alert)
				<-time.After(time.Hour)
				sessions, mails := r.srv.got()
				if got := r.tries(); got != tt.tries {
					t.Errorf("tried at %s, want %s\n%s", got, tt.tries, r.log)
				}
				if len(mails) != tt.mails || r.Stats() != tt.stats {
					t.Errorf("%d mails, %+v, want %d, %+v\n%s", len(mails), r.Stats(), tt.mails, tt.stats, r.log)
				}
				r.logs(tt.log)
				if last := sessions[len(sessions)-1]; !strings.HasSuffix(last, tt.last) {
					t.Errorf("last session ends with %q", last)
				}
			})
		})
	}
}

func TestASecondTryIsForThoseWhoLackIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, except(map[string]string{"1 RCPT TO:<one@a.test>": "450 greylisted\r\n"}))
		r.Send(alert)
		<-time.After(time.Minute)
		sessions, mails := r.srv.got()
		if len(mails) != 2 || strings.Contains(sessions[1], "RCPT TO:<two@a.test>") || !strings.Contains(sessions[1], "RCPT TO:<one@a.test>") {
			t.Errorf("%d mails, second session %q", len(mails), sessions[1])
		}
	})
}

// A text that is cut off must not end in a way that a server takes for its end.
func TestHalfAMailIsNeverEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := make(chan string, 1)
		r := start(t, polite)
		dial := r.dial
		r.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			r.dial = dial // the first connection alone is odd
			here, there := net.Pipe()
			go func() {
				defer there.Close()
				c := bufio.NewReader(there)
				io.WriteString(there, "220 a\r\n")
				for _, a := range []string{"250 a\r\n", "250 b\r\n", "250 c\r\n", "250 d\r\n", "354 e\r\n"} {
					c.ReadString('\n')
					io.WriteString(there, a)
				}
				// The first bytes, then none for longer than the deadline.
				first, _ := c.ReadString('\n')
				<-time.After(30*time.Second + time.Millisecond)
				rest, _ := io.ReadAll(c)
				heard <- first + string(rest)
			}()
			return here, nil
		}
		m := alert
		m.Body = strings.Repeat("a line\n", 10000)
		r.Send(m)
		got := <-heard
		if strings.Contains(got, "\r\n.\r\n") || strings.Contains(got, "QUIT") || !strings.HasPrefix(got, "Date: ") {
			t.Errorf("the server heard %d bytes, %q", len(got), got[max(0, len(got)-60):])
		}
		<-time.After(time.Minute)
		r.logs("DATA: no answer in time", "will retry")
		if _, mails := r.srv.got(); len(mails) != 1 {
			t.Errorf("%d mails", len(mails))
		}
	})
}

func TestADribblingServerHasOneDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, polite)
		r.dial = func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				defer there.Close()
				for {
					if _, err := io.WriteString(there, "2"); err != nil {
						return
					}
					<-time.After(time.Second)
				}
			}()
			return here, nil
		}
		r.Send(alert)
		<-time.After(29 * time.Second)
		if strings.Contains(r.log.String(), "no answer in time") {
			t.Error("gave up early")
		}
		<-time.After(2 * time.Second)
		r.logs("greeting: no answer in time")
		r.stop()
		<-time.After(2 * time.Second) // for the server to notice
	})
}

func TestEachAnswerHasATimeoutOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, func(n int, command string) string {
			<-time.After(29 * time.Second)
			return polite(n, command)
		})
		r.Send(alert)
		<-time.After(5 * time.Minute)
		if r.Stats() != (Stats{Sent: 1}) {
			t.Errorf("%+v\n%s", r.Stats(), r.log)
		}
	})
}

func TestMailsWaitInOrderWhileTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, polite)
		dial := r.dial
		var away atomic.Bool
		away.Store(true)
		r.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("connection refused")
			}
			return dial(ctx, network, address)
		}
		for i := range 5 {
			r.Send(Message{VS: fmt.Sprint(i)})
		}
		<-time.After(10 * time.Second)
		if got := r.Stats(); got.Queued != 5 {
			t.Errorf("%+v", got)
		}
		away.Store(false)
		<-time.After(20 * time.Second)
		synctest.Wait()
		_, mails := r.srv.got()
		if len(mails) != 5 || r.Stats() != (Stats{Sent: 5}) {
			t.Fatalf("%d mails, %+v", len(mails), r.Stats())
		}
		for i, m := range mails {
			if !strings.Contains(m, fmt.Sprintf("Virtualserver %d - DOWN", i)) || !strings.Contains(m, "00:00:00 +0000") {
				t.Errorf("mail %d: %q", i, m)
			}
		}
		r.logs("connect: connection refused", "retry_in=30s")
	})
}

func TestAReloadTriesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, polite)
		dial := r.dial
		var asked []string
		r.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			asked = append(asked, address)
			if address != "new.test:2525" {
				return nil, errors.New("no such host")
			}
			return dial(ctx, network, address)
		}
		r.Send(alert)
		<-time.After(time.Second)
		for range len(delays) { // and counts anew
			r.Configure(twoRecipients, "lb1")
			synctest.Wait()
		}
		better := twoRecipients
		better.Server, better.Port = "new.test", 2525
		r.Configure(better, "lb2")
		synctest.Wait()
		if want := []string{"mx.test:25", "mx.test:25", "mx.test:25", "new.test:2525"}; !slices.Equal(asked, want) {
			t.Errorf("asked %v, want %v", asked, want)
		}
		if _, mails := r.srv.got(); len(mails) != 1 || !strings.Contains(mails[0], "[lb2]") {
			t.Errorf("%q", mails)
		}
		// Without a recipient nothing is sent, and what waits is forgotten.
		r.Configure(config.Mail{Server: "mx.test"}, "lb1")
		r.Send(alert)
		r.Configure(twoRecipients, "lb1")
		r.Send(alert)
		r.Configure(config.Mail{To: []string{"a@b.test"}}, "lb1")
		<-time.After(time.Hour)
		if got := r.Stats(); got.Sent != 1 || got.Queued != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestTheOldestIsDroppedFromAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &buffer{}
		r := &rig{Mailer: New(Options{Log: slog.New(slog.NewTextHandler(log, nil))}), t: t, log: log, srv: &server{say: polite}}
		r.dial = func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go r.srv.handle(there)
			return here, nil
		}
		r.Send(alert) // nobody is configured
		r.Configure(twoRecipients, "lb1")
		for i := range maxQueued + 3 {
			r.Send(Message{VS: fmt.Sprint(i)})
		}
		if got := r.Stats(); got != (Stats{Queued: maxQueued, Dropped: 3}) {
			t.Errorf("%+v", got)
		}
		r.run()
		synctest.Wait()
		r.logs("Mail queue is full", "dropped=3")
		if _, mails := r.srv.got(); len(mails) != maxQueued || !strings.Contains(mails[0], "Virtualserver 3 ") {
			t.Errorf("%d mails", len(mails))
		}
		r.stop()
		r.Send(alert)
		if got := r.Stats(); got != (Stats{Sent: maxQueued, Dropped: 3}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestStop(t *testing.T) {
	for name, tt := range map[string]struct {
		say   func(int, string) string
		took  time.Duration
		stats Stats
		log   string
	}{
		"sends what waits":     {polite, 0, Stats{Sent: 3}, "Mail is sent"},
		"server is silent":     {except(map[string]string{"0 ": silence}), StopLimit, Stats{Failed: 3}, "mails=3"},
		"server says later":    {except(map[string]string{"0 ": "421 busy\r\n"}), 0, Stats{Failed: 3}, "mails=3"},
		"server refuses":       {except(map[string]string{"0 MAIL FROM:<lb@a.test>": "550 no\r\n"}), 0, Stats{Failed: 3}, "Mail is given up"},
		"server hangs in DATA": {except(map[string]string{"2 .": silence}), StopLimit, Stats{Sent: 1, Failed: 2}, "mails=2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, tt.say)
				for range 3 {
					r.Send(alert)
				}
				from := time.Now()
				r.stop()
				if took := time.Since(from); took != tt.took || r.Stats() != tt.stats {
					t.Errorf("took %v, %+v, want %v, %+v\n%s", took, r.Stats(), tt.took, tt.stats, r.log)
				}
				r.logs(tt.log)
			})
		})
	}
}

func TestStopWhileAMailWaitsForItsNextTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, except(map[string]string{"1 ": "421 busy\r\n"}))
		r.Send(alert)
		r.Send(alert)
		<-time.After(10 * time.Second)
		r.stop()
		if got := r.Stats(); got != (Stats{Sent: 2}) || r.tries() != "0s 10s 10s" {
			t.Errorf("%+v, tried at %s", got, r.tries())
		}
	})
}

func TestUnusableAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, polite)
		c := twoRecipients
		c.To = []string{"one@a.test", "bad <>"}
		r.Configure(c, "lb1")
		r.Send(alert)
		synctest.Wait()
		r.logs("Mail recipient is left out", `recipient="bad <>"`, "Mail is sent")
		if _, mails := r.srv.got(); len(mails) != 1 || strings.Contains(mails[0], "bad") {
			t.Errorf("%q", mails)
		}
		c.To = []string{"bad <>"}
		r.Configure(c, "lb1")
		r.Send(alert)
		c.To, c.From = []string{"one@a.test"}, "bad <>"
		synctest.Wait()
		r.Configure(c, "lb1")
		r.Send(alert)
		synctest.Wait()
		r.logs("notification_email_from: not an address")
		if got := r.Stats(); got != (Stats{Sent: 1, Failed: 2}) {
			t.Errorf("%+v", got)
		}
	})
}

// The whole way over a real socket, with a name to resolve.
func TestRealServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{say: polite}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { s.handle(c) })
		}
	})
	defer conns.Wait()
	defer l.Close()
	r := &rig{Mailer: New(Options{}), t: t, srv: s}
	c := twoRecipients
	c.Server, c.Port, c.Timeout = "localhost", netip.MustParseAddrPort(l.Addr().String()).Port(), 0
	r.Configure(c, "lb1")
	r.run()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				r.Send(alert)
				r.Stats()
			}
		})
	}
	all.Wait()
	testkit.Eventually(t, 30*time.Second, func() string {
		if got := r.Stats(); got.Sent != 20 {
			return fmt.Sprintf("%+v", got)
		}
		return ""
	})
	if _, mails := s.got(); len(mails) != 20 {
		t.Errorf("%d mails", len(mails))
	}
	r.stop()
}
