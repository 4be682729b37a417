package daemon

import (
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/http"
)

// expiryLog warns of certificates that end soon, as tls_expiry_warn asks.
func (d *daemon) expiryLog() *http.ExpiryLog {
	return http.NewExpiryLog(func(target string, c checker.Certificate) {
		what := "A server's certificate ends soon"
		if time.Until(c.NotAfter) <= 0 {
			what = "A server's certificate has ended"
		}
		d.log.Warn(what, "certificate", c.Subject, "issuer", c.Issuer, "ends", c.NotAfter.UTC().Format(time.RFC3339), "seen_at", target, "hint", "renew it; nothing more is said of it for a day")
	})
}
