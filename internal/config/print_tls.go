package config

import "time"

// day is the unit of tls_expiry_warn.
const day = 24 * time.Hour

func (p *printer) tls(s *TLS) {
	if s == nil {
		return
	}
	p.ext("tls_verify", yesNo(s.Verify))
	if s.CA != "" {
		p.ext("tls_ca", word(s.CA))
	}
	if s.ServerName != "" {
		p.ext("tls_server_name", word(s.ServerName))
	}
	if s.ExpiryWarn != 0 {
		p.ext("tls_expiry_warn", number(int64(s.ExpiryWarn/day)))
	}
}
