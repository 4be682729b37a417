package keyword

import (
	"fmt"
	"time"
)

// maxExpiryWarn is how many days ahead an end may be warned of.
const maxExpiryWarn = 3650

// tlsRows are what SSL_GET may say of certificates.
func tlsRows() []keyword {
	return []keyword{
		{name: "tls_verify", arg: onOtherwise(), extension: true, def: "off", doc: "the certificate must be valid, for the server's name, and from a known issuer",
			set: func(f *frame, v *value) { f.ck.tls.Verify = v.yes }},
		{name: "tls_ca", arg: text(), dup: lastReported, extension: true, def: "the system's", doc: "PEM file of the issuers that tls_verify trusts",
			set: func(f *frame, v *value) { f.ck.tls.CA, f.ck.tls.Pos, f.ck.tlsCA = v.text, v.n.Pos, v.n }},
		{name: "tls_server_name", arg: text(), dup: lastReported, extension: true, def: "see below", doc: "the name that is sent (SNI) and verified",
			set: func(f *frame, v *value) { f.ck.tls.ServerName = v.text }},
		{name: "tls_expiry_warn", arg: strictNumber(0, maxExpiryWarn).in("days"), extension: true, def: "0, for never", doc: "warn in the log of a certificate that ends within this time",
			set: func(f *frame, v *value) { f.ck.tls.ExpiryWarn = time.Duration(v.num) * 24 * time.Hour }},
	}
}

// judgeTLS looks at what the block says of certificates as a whole.
func (f *frame) judgeTLS() {
	if h := f.ck.rawHTTP; h != nil && h.tlsCA != nil && !h.tls.Verify {
		f.report(codeTLSUnverified, h.tlsCA, &h.tlsCA.Words[0], fmt.Sprintf("tls_ca %s without tls_verify", h.tls.CA), "certificates are not verified; say tls_verify on")
	}
}

// docTLS tells how certificates are verified.
const docTLS = `
## Certificates of SSL_GET

SSL_GET takes any certificate, as keepalived does. With ` + "`tls_verify on`" + ` the check fails if the certificate has ended, is not
yet valid, is not for the server's name, or was not issued by who is trusted; the reason says which. The handshake ends
with an alert then, which the server may log.

The name that is verified is ` + "`tls_server_name`" + `, else ` + "`sni_name`" + `, else the virtualhost of the url, of the checker or of the
virtual server (a port behind it is left out), else the address that is connected to. With ` + "`tls_verify`" + ` this name is
also sent, without ` + "`enable_sni`" + `, since a server cannot show the right certificate otherwise; an address is never sent.
` + "`tls_server_name`" + ` is sent without ` + "`tls_verify`" + ` too.

` + "`tls_ca`" + ` is read at the start and by each reload. A file that cannot be read, or has no certificate in it, is found by
` + "`sluiced -t`" + `, and refuses the start and the reload: no check is left unverified in silence. For the same reason
a word behind ` + "`tls_verify`" + ` that is none of on, off, true, false, yes and no is an error and counts as on.

` + "`tls_expiry_warn 14`" + ` logs, at most once a day for each certificate, that it ends within 14 days. It works without
` + "`tls_verify`" + `.
`
