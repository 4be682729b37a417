package keyword

import "github.com/sluice-lb/sluice/internal/config"

// closeRow is checker_close, which of each block keeps.
func closeRow(def string, of func(*frame) *opt[config.Close]) keyword {
	return keyword{name: "checker_close", arg: words("normal", "full", "reset"), extension: true, def: def,
		doc: "how TCP_CHECK, HTTP_GET, SSL_GET and SMTP_CHECK end a connection: normally, where the last packet of the handshake is spared if the check speaks first or ends at once; normally after a full handshake, as keepalived; or by a reset, which costs less and leaves no port in TIME_WAIT",
		set: func(f *frame, v *value) {
			of(f).set(map[string]config.Close{"normal": config.CloseNormal, "full": config.CloseFull, "reset": config.CloseReset}[v.text])
		}}
}

// endOf resolves how a checker ends its connection.
func (b *builder) endOf(kind config.CheckerKind, ck, rs, vs *checkDefaults) config.Close {
	switch kind {
	case config.TCPCheck, config.HTTPGet, config.SSLGet, config.SMTPCheck:
		return first(config.CloseNormal, ck.close, rs.close, vs.close, b.raw.close)
	}
	return config.CloseNormal
}
