// Package http is HTTP_GET and SSL_GET: ask for every url of a checker in order
// and compare status, digest and regular expression with what was configured.
//
// It deliberately does not use net/http. The bytes of the request are those that
// keepalived sends, since servers and their logs match on them, and the criteria
// look at the raw answer, which net/http hides. Retries, and what a failure means
// for a server, are not known here.
//
// # Decisions
//
// One run asks all urls, each on a connection of its own and each within one
// deadline of connect_timeout from the first system call to the last byte.
// keepalived asks one url each delay_loop, and a server that dribbles its answer
// can hold its check for ever. The first url that fails ends the run and is named
// in the reason.
//
// The verdict falls when it is known. A status that is not accepted fails at the
// end of the status line. Without digest and regex the end of the header is the
// end of the check: what the server does to the connection then is not looked at.
// keepalived reads to the end of the connection, so that a server which keeps it
// open fails there and passes here. A connection that ends before the header does
// fails in both.
//
// With digest or regex the body is read until the connection ends, or until
// Content-Length bytes have come, or not at all for status 204 and 304. Bytes
// beyond Content-Length are not part of the answer. A body shorter than its
// Content-Length is no failure by itself, as in keepalived; the reason mentions
// it. A chunked body is not decoded: digest and regex see the chunk framing, as in
// keepalived. Servers may chunk only in answer to http_protocol 1.1. A body for a
// regex is bounded by MaxBody, one for a digest alone, which is not kept, by
// MaxDigestBody.
//
// The header ends at an empty line, with or without CR, within MaxHeader bytes
// (keepalived: CRLF only, 4095). The status is the three digits after the first
// blank of the first line, followed by a blank or the end of the line (keepalived:
// a blank). Content-Length is a header field in any case of letters (keepalived:
// that text in that case, anywhere).
//
// A regex is matched against the whole answer, header and body, and its offsets
// count from the first byte of the header. That is what keepalived does when the
// answer comes in one segment, as small ones do; when the body comes in a later
// segment it matches the body alone, which no configuration can rely on. So a
// pattern that must match the body's first byte needs the multiline option, or to
// match the blank line. See Pattern for the language.
//
// What is said and how an answer is judged is one conversation (see
// checker.Conversation) without any I/O. An HTTP_GET without regex is that, and who
// runs it may lead thousands on one thread: a call costs at most the digest of the
// bytes that came. A handshake or a regex that backtracks would hold all the others
// up, so checks with TLS or a regex are probes only, and lead the same conversation
// on a goroutine of their own.
//
// No byte of a header is kept. Status and Content-Length are found as the bytes
// come, by automata of a few words, so that a server that dribbles costs no buffer
// and the verdict cannot depend on segments. The state of a run comes from a pool
// and goes back at its end, and the request is written anew each time: an idle probe
// is three words, where the request alone would be a hundred bytes.
//
// After a failed send the answer that the server had sent before counts, if it is
// whole; also if it is wrong, since that says more than the broken connection.
//
// Redirects are not followed. Certificates are not verified, old protocol
// versions and ciphers are accepted: it is a check of a server on a network of
// ours, and keepalived does the same.
//
// With tls_verify the certificate must be valid for the name that is asked for, and
// that name is sent even without enable_sni: one that is verified but not sent would
// make each server with several names fail. Versions and ciphers stay as they are,
// since an old cipher is no reason to take a server out. The certificate of each
// check goes with its outcome, verified or not, so that its end can be watched.
package http
