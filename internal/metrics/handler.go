package metrics

import (
	"net/http"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/engine"
)

// ContentType is the text format's.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// atOnce is how many scrapes are answered at the same time. Two Prometheus servers
// and a person are fewer; each takes memory in proportion to the configuration.
const atOnce = 4

// Handler answers scrapes from the snapshots that read returns.
func Handler(read func() (*engine.Snapshot, config.MetricsDetail)) http.Handler {
	slots := make(chan struct{}, atOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			http.Error(w, "too many scrapes at the same time; try again", http.StatusServiceUnavailable)
			return
		}
		s, detail := read()
		// What could not be read of the process is 0, which is no reason to tell
		// nothing of the services.
		p, _ := ReadProcess()
		w.Header().Set("Content-Type", ContentType)
		// An error here is the client's departure.
		_ = Write(w, s, p, detail)
	})
}
