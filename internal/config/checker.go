package config

import (
	"net/netip"
	"time"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// CheckerKind is the type of a checker block.
type CheckerKind int

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

// Checker is one checker block with everything it inherits resolved. Only kinds
// that this daemon runs are kept in a RealServer; the others were reported.
type Checker struct {
	Kind CheckerKind
	Pos  diag.Pos
	Conn Connection
	Schedule
	// HTTP is set for HTTPGet and SSLGet.
	HTTP *HTTP
	// File is set for FileCheck.
	File *TrackFileUse
}

// Connection is how a checker reaches its target.
type Connection struct {
	// Target is connect_ip and connect_port, by default the real server as written.
	Target netip.AddrPort
	// BindAddr is the source address, invalid for none; BindPort 0 for any.
	BindAddr netip.Addr
	BindPort uint16
	// BindIf is the interface (SO_BINDTODEVICE), "" for any.
	BindIf string
	// FWMark is SO_MARK, 0 for none.
	FWMark uint32
	// Timeout is the one deadline from connect to last byte.
	Timeout time.Duration
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
	// Alpha: down until proven.
	Alpha          bool
	LogAllFailures bool
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
	URLs         []URL
}

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
