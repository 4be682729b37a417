package config

import (
	"net/netip"
	"time"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// CheckerKind is the type of a checker block.
type CheckerKind uint8

// Checker kinds.
const (
	TCPCheck CheckerKind = iota + 1
	HTTPGet
	SSLGet
	SMTPCheck
	DNSCheck
	UDPCheck
	PingCheck
	MiscCheck
	FileCheck
	BFDCheck
)

var checkerNames = map[CheckerKind]string{
	TCPCheck: "TCP_CHECK", HTTPGet: "HTTP_GET", SSLGet: "SSL_GET", SMTPCheck: "SMTP_CHECK",
	DNSCheck: "DNS_CHECK", UDPCheck: "UDP_CHECK", PingCheck: "PING_CHECK", MiscCheck: "MISC_CHECK",
	FileCheck: "FILE_CHECK", BFDCheck: "BFD_CHECK",
}

// String returns the block's keyword.
func (k CheckerKind) String() string {
	if s, ok := checkerNames[k]; ok {
		return s
	}
	return "unknown"
}

// Checker is one checker block with everything it inherits resolved. Of the kinds
// only BFDCheck is never kept in a RealServer: it was reported.
//
// There is one for each real server and more: the order of fields in it and in
// Connection leaves no gaps.
type Checker struct {
	Kind CheckerKind
	// Alpha: down until proven.
	Alpha          bool
	LogAllFailures bool
	Pos            diag.Pos
	Conn           Connection
	Schedule
	// HTTP is set for HTTPGet and SSLGet.
	HTTP *HTTP
	// SMTP, DNS, UDP and Misc are set for the check of their name. PingCheck has
	// nothing of its own.
	SMTP *SMTP
	DNS  *DNS
	UDP  *Datagram
	Misc *Misc
	// File is set for FileCheck.
	File *TrackFileUse
}

// SMTP is what SMTP_CHECK has of its own.
type SMTP struct {
	// Helo is the argument of HELO, never empty.
	Helo string
}

// DefaultHelo is keepalived's helo_name.
const DefaultHelo = "smtpchecker.keepalived.org"

// DNS is what DNS_CHECK has of its own.
type DNS struct {
	// Type is one of A NS CNAME SOA MX TXT AAAA RRSIG DNSKEY, in upper case.
	Type string
	// Name is what is asked for, as written; "" or "." is the root.
	Name string
}

// Datagram is what UDP_CHECK has of its own.
type Datagram struct {
	// Payload is what is sent; nil is the default of 32 octets.
	Payload []byte
	// Require is require_reply. Without it silence is success.
	Require bool
	// Reply are the octets that an answer must have, nil for any answer. Mask has
	// the same length: the bits of Reply that count.
	Reply, Mask []byte
	// Min and Max bound an answer's length in octets. They count only with Reply,
	// as in keepalived (facts 4.11).
	Min, Max int
}

// Misc is what MISC_CHECK has of its own.
type Misc struct {
	// Script is what runs, with the identity it runs under. A first word that
	// starts with < and a path is no program but a file to be opened (facts 11.4).
	Script *Script
	// Timeout is the longest run, never 0: misc_timeout, else the virtual server's
	// delay_loop.
	Timeout time.Duration
	// Dynamic lets an exit status of 2..255 set the weight.
	Dynamic bool
}

// Connection is how a checker reaches its target.
type Connection struct {
	// Target is connect_ip and connect_port, by default the real server as written.
	Target netip.AddrPort
	// BindAddr is the source address, invalid for none; BindPort 0 for any.
	BindAddr netip.Addr
	BindPort uint16
	// Close is how a TCP connection ends.
	Close Close
	// FWMark is SO_MARK, 0 for none.
	FWMark uint32
	// BindIf is the interface (SO_BINDTODEVICE), "" for any.
	BindIf string
	// Timeout is the one deadline from connect to last byte.
	Timeout time.Duration
	// Via is the real server that the way to a virtual address leads through, nil for
	// none. FWMark is its mark then.
	Via *Via
}

// Schedule is when a checker runs and how many results make a verdict.
type Schedule struct {
	DelayLoop        time.Duration
	DelayBeforeRetry time.Duration
	// Warmup spreads the first runs over [0, Warmup).
	Warmup time.Duration
	// Retry is how many failures are forgiven: Retry+1 take the server down.
	Retry uint32
	// Rise is how many successes in a row bring it back, at least 1.
	Rise uint32
}

// HTTPProtocol is http_protocol.
type HTTPProtocol int

// HTTP protocols: HTTP10C is 1.0 with "Connection: close".
const (
	HTTP10 HTTPProtocol = iota
	HTTP10C
	HTTP11
)

// HTTP is what HTTP_GET and SSL_GET have of their own.
type HTTP struct {
	Protocol HTTPProtocol
	// VirtualHost is the Host header that a url without its own sends, already
	// resolved through real and virtual server; "" for the target's address.
	VirtualHost string
	// SNI tells to send a server name. SNIName, if set, is that name for every
	// url; otherwise url virtualhost, then SNIVirtualHost (checker, then virtual
	// server; never the real server's).
	SNI            bool
	SNIName        string
	SNIVirtualHost string
	// FastRecovery skips the second look at a server that answers again.
	FastRecovery bool
	// TLSCompliant exchanges close-notify.
	TLSCompliant bool
	// TLS is how SSL_GET looks at certificates; nil for not at all, as keepalived.
	TLS  *TLS
	URLs []URL
}

// TLS is an extension: what SSL_GET makes of the server's certificate.
type TLS struct {
	// Pos is where CA stands.
	Pos diag.Pos
	// Verify fails the check if the certificate is not valid for the name.
	Verify bool
	// CA is a PEM file with the issuers to trust, "" for the system's.
	CA string
	// ServerName is what is sent and verified, "" for the name that the url asks for.
	ServerName string
	// ExpiryWarn is how long before its end a certificate is warned of, 0 for never.
	ExpiryWarn time.Duration
}

// ReadsFile tells whether a check reads a file of its own when it is made.
func (s *TLS) ReadsFile() bool { return s != nil && s.Verify && s.CA != "" }

// URL is one url block.
type URL struct {
	Pos         diag.Pos
	Path        string
	VirtualHost string
	// Status lists the accepted codes as inclusive ranges; never empty.
	Status []StatusRange
	// Digest is the MD5 that the body must have when HasDigest.
	Digest    [16]byte
	HasDigest bool
	Regex     *Regex
	// TLSCompliant is the url's own switch.
	TLSCompliant bool
}

// StatusRange is status_code: First..Last.
type StatusRange struct{ First, Last int }

// Regex is what a url's regex keywords say.
type Regex struct {
	Pos     diag.Pos
	Pattern string
	// NoMatch inverts the verdict.
	NoMatch bool
	// Options are the words of regex_options in file order.
	Options []string
	// MinOffset and MaxOffset bound where a match may start; MaxOffset is only
	// meaningful when HasMax.
	MinOffset int
	MaxOffset int
	HasMax    bool
}
