package engine

import (
	"fmt"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
)

// Texts of alerts, in keepalived's words: people filter their mail by them
// (facts 12.1).
const (
	mailStartUp   = "=> Starting with quorum up <="
	mailStartDown = "=> Starting with quorum down <="
	mailRemove    = "=> Removing <="
	mailStop      = "=> Shutting down <="
)

// mailNames are how keepalived's alerts name a kind of check.
var mailNames = map[config.CheckerKind]string{
	config.TCPCheck: "TCP CHECK", config.UDPCheck: "UDP CHECK", config.PingCheck: "ICMP CHECK", config.DNSCheck: "DNS_CHECK:",
}

// mailOf is the text of an alert about a check that turned. Below keepalived's line
// stands the reason, which keepalived does not give.
func mailOf(c *config.Checker, v framework.Verdict, o checker.Outcome) string {
	up := v == framework.Up
	text := ""
	switch {
	case c.Kind == config.MiscCheck:
		text = "MISC CHECK " + map[bool]string{true: "succeeded", false: "failed"}[up]
	case c.Kind == config.HTTPGet || c.Kind == config.SSLGet || c.Kind == config.SMTPCheck:
		switch {
		case up:
			text = "CHECK succeed"
		case c.Kind == config.SMTPCheck:
			return fmt.Sprintf("=> CHECK failed on service : %s <=", o.Reason)
		default:
			return fmt.Sprintf("=> CHECK failed on service : HTTP/SSL request failed <=\n\n%s", o.Reason)
		}
	default:
		text = mailNames[c.Kind] + map[bool]string{true: " succeed", false: " failed"}[up]
	}
	text = fmt.Sprintf("=> %s on service <=", text)
	if !up {
		text += "\n\n" + o.Reason
	}
	return text
}

// mailQuorum is the text of an alert about a quorum, with the sum that moved it.
func mailQuorum(vs *server, ev framework.QuorumEvent) string {
	q, h := int64(vs.Config.Quorum), int64(vs.Config.Hysteresis)
	if ev == framework.QuorumLost {
		return fmt.Sprintf("=> Lost quorum %d-%d=%d > %d <=", q, h, q-h, vs.Sum())
	}
	return fmt.Sprintf("=> Gained quorum %d+%d=%d <= %d <=", q, h, q+h, vs.Sum())
}
