package http

import "github.com/sluice-lb/sluice/internal/config"

// appendRequest appends what is sent for u: keepalived's bytes. In particular the
// Host header is the url's virtualhost, else the checker's, exactly as written, else
// the target's address and port, always with the port.
func appendRequest(b []byte, c *config.Checker, u *config.URL) []byte {
	version, closing := "1.0", ""
	switch c.HTTP.Protocol {
	case config.HTTP10C:
		closing = "Connection: close\r\n"
	case config.HTTP11:
		version, closing = "1.1", "Connection: close\r\n"
	}
	b = append(b, "GET "...)
	b = append(b, u.Path...)
	b = append(b, " HTTP/"...)
	b = append(b, version...)
	b = append(b, "\r\nUser-Agent: KeepAliveClient\r\n"...)
	b = append(b, closing...)
	b = append(b, "Host: "...)
	switch {
	case u.VirtualHost != "":
		b = append(b, u.VirtualHost...)
	case c.HTTP.VirtualHost != "":
		b = append(b, c.HTTP.VirtualHost...)
	default:
		b = c.Conn.Target.AppendTo(b)
	}
	return append(b, "\r\n\r\n"...)
}

// serverName is the TLS server name for u, "" to send none. Unlike Host, the real
// server's virtualhost takes no part in it: SNIVirtualHost leaves it out.
func serverName(h *config.HTTP, u *config.URL) string {
	switch {
	case h.TLS != nil && h.TLS.ServerName != "":
		return h.TLS.ServerName
	case !h.SNI && h.SNIName == "":
		return ""
	case h.SNIName != "":
		return h.SNIName
	case u.VirtualHost != "":
		return u.VirtualHost
	}
	return h.SNIVirtualHost
}
