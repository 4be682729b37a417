package http

import "github.com/sluice-lb/sluice/internal/config"

// request is what is sent for u: keepalived's bytes. In particular the Host
// header is the url's virtualhost, else the checker's, exactly as written, else
// the target's address and port, always with the port.
func request(c *config.Checker, u *config.URL) []byte {
	version, cl := "1.0", ""
	switch c.HTTP.Protocol {
	case config.HTTP10C:
		cl = "Connection: close\r\n"
	case config.HTTP11:
		version, cl = "1.1", "Connection: close\r\n"
	}
	host := u.VirtualHost
	if host == "" {
		host = c.HTTP.VirtualHost
	}
	if host == "" {
		host = c.Conn.Target.String()
	}
	return []byte("GET " + u.Path + " HTTP/" + version + "\r\nUser-Agent: KeepAliveClient\r\n" + cl + "Host: " + host + "\r\n\r\n")
}

// serverName is the TLS server name for u, "" to send none. Unlike Host, the real
// server's virtualhost takes no part in it: SNIVirtualHost leaves it out.
func serverName(h *config.HTTP, u *config.URL) string {
	switch {
	case !h.SNI && h.SNIName == "":
		return ""
	case h.SNIName != "":
		return h.SNIName
	case u.VirtualHost != "":
		return u.VirtualHost
	}
	return h.SNIVirtualHost
}
