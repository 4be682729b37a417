package metrics

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/pace"
)

// ContentType is the text format's.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// atOnce is how many scrapes are answered at the same time. Two Prometheus servers
// and a person are fewer; each takes memory in proportion to the configuration.
const atOnce = 4

// compressors are used again: each takes most of a megabyte.
var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is right
	return z
}}

// Handler answers scrapes with what read returns.
func Handler(read func() Reading) http.Handler {
	slots := make(chan struct{}, atOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			http.Error(w, "too many scrapes at the same time; try again", http.StatusServiceUnavailable)
			return
		}
		reading := read()
		// What could not be read of the process is 0, which is no reason to tell
		// nothing of the services.
		p, _ := ReadProcess()
		w.Header().Set("Content-Type", ContentType)
		w.Header().Set("Vary", "Accept-Encoding")
		var body io.Writer = unhurried{w, reading.Pace}
		if reading.Detail == config.MetricsServer && acceptsGzip(r.Header.Get("Accept-Encoding")) {
			w.Header().Set("Content-Encoding", "gzip")
			z := compressors.Get().(*gzip.Writer)
			z.Reset(body)
			defer func() {
				// An error is the client's departure, here and below.
				reading.Pace.Step(func() { _ = z.Close() })
				z.Reset(io.Discard)
				compressors.Put(z)
			}()
			body = z
		}
		_ = Write(body, reading, p)
	})
}

// unhurried is a client, who may take its time: others have their turn meanwhile.
type unhurried struct {
	io.Writer
	pace *pace.Gate
}

// Write implements io.Writer, for who has its turn.
func (u unhurried) Write(b []byte) (int, error) {
	u.pace.Leave()
	defer u.pace.Enter()
	return u.Writer.Write(b)
}

// acceptsGzip reads an Accept-Encoding.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, rest, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		q, has := strings.CutPrefix(strings.TrimSpace(rest), "q=")
		if !has {
			return true
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		return err == nil && v > 0
	}
	return false
}
