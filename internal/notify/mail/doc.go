// Package mail sends the mails of smtp_alert: one for each message that it is
// given, to every notification_email, through smtp_server.
//
// It decides how a mail looks, how it is handed over, and how often that is tried.
// It deliberately does not know when one is due: the engine says what happened, and
// what the text is.
//
// The dialogue is keepalived's (facts 12.2): one plain TCP connection for each mail,
// greeting, HELO, MAIL FROM, RCPT TO for each recipient, DATA, QUIT, without TLS and
// without a login. So is the subject, at most 255 bytes:
//
//	[ROUTER_ID] Realserver [192.0.2.11]:tcp:80 of virtual server [192.0.2.1]:tcp:80 - DOWN
//	[ROUTER_ID] Virtualserver [192.0.2.1]:tcp:80 - UP
//
// # Decisions
//
//   - Mails wait in a bounded queue for one goroutine. When it is full the oldest is
//     dropped, which is counted and logged: the newest says how things are.
//   - What may pass, a server that is away or an answer of 4xx, is tried again after
//     half a minute and after two more, then that mail is given up. The others wait
//     behind, in order, since they go to the same server; a reload starts anew at once.
//     keepalived tries once. A connection that breaks between the final dot and its
//     answer may so give a mail twice, as with any mailer.
//   - One recipient that is refused does not cost the others their mail, as it does in
//     keepalived. A second try is only for those that have not got it.
//   - Recipients and server are those of the configuration at the time of the try, so
//     that a reload which corrects them helps what waits. The date is the event's.
//   - The server's name is resolved for each try, here and not while the configuration
//     is read, which keepalived waits for.
//   - One deadline, smtp_connect_timeout, for the connection and for each answer, however
//     its bytes are spread.
//   - net/smtp is not used: it says EHLO first, and what it then does depends on the
//     answer. Reading answers and stuffing dots is net/textproto's.
//   - RCPT TO may be answered 251 as well (RFC 5321, 3.4). keepalived wants 250.
//   - A mail is not cut off at 1023 bytes. X-Mailer is our name.
//   - Control characters in names become blanks, so that no name can add a header or a
//     command. What is not ASCII is encoded: the subject by RFC 2047, the text as
//     quoted-printable UTF-8, but for the sign of microseconds, which becomes "us": what
//     keepalived's mails say must be there to be grepped. The name before an address in brackets is quoted.
//   - At a stop each mail that waits is tried once more, all within StopLimit, and
//     until one fails.
package mail
