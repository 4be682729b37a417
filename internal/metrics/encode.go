package metrics

import (
	"fmt"
	"io"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// chunk is how much is written at once.
const chunk = 32 << 10

// encoder writes families one after the other, as the format wants them.
type encoder struct {
	w   io.Writer
	buf []byte
	err error
	// open is the family whose samples are being written.
	open family
	// labels are how many the present sample has.
	labels int
}

// begin starts a sample: labels and a value must follow.
func (e *encoder) begin(f family) { e.sample(f, "") }

// sample is begin with what a histogram's series add to the name.
func (e *encoder) sample(f family, suffix string) {
	if e.open != f {
		e.open = f
		for _, s := range []string{"# HELP ", f.name, " ", f.help, "\n# TYPE ", f.name, " ", f.kind, "\n"} {
			e.buf = append(e.buf, s...)
		}
	}
	e.buf = append(append(e.buf, f.name...), suffix...)
	e.labels = 0
}

// key starts a label.
func (e *encoder) key(name string) {
	sep := byte(',')
	if e.labels == 0 {
		sep = '{'
	}
	e.labels++
	e.buf = append(append(append(e.buf, sep), name...), '=', '"')
}

func (e *encoder) label(name, value string) {
	e.key(name)
	// Nearly no value holds anything that must be escaped.
	if !strings.ContainsAny(value, "\\\"\n") {
		e.buf = append(append(e.buf, value...), '"')
		return
	}
	for i := range len(value) {
		switch c := value[i]; c {
		case '\n':
			e.buf = append(e.buf, '\\', 'n')
		case '"', '\\':
			e.buf = append(e.buf, '\\', c)
		default:
			e.buf = append(e.buf, c)
		}
	}
	e.buf = append(e.buf, '"')
}

func (e *encoder) number(name string, value uint64) {
	e.key(name)
	e.buf = append(strconv.AppendUint(e.buf, value, 10), '"')
}

// service writes the labels of a service, values as in /proc/net/ip_vs and as
// node_exporter has them, which gives a mark port 0.
func (e *encoder) service(k ipvs.ServiceKey) {
	if k.FWMark != 0 {
		e.number("local_port", 0)
		e.key("local_mark")
		e.buf = append(fmt.Appendf(e.buf, "%08X", k.FWMark), '"')
		e.label("proto", "FWM")
	} else {
		e.key("local_address")
		e.buf = append(k.Addr.AppendTo(e.buf), '"')
		e.number("local_port", uint64(k.Port))
		e.label("proto", protocol(k.Protocol))
	}
	e.label("family", k.Family.String())
}

// protocol is the name in /proc/net/ip_vs.
func protocol(p ipvs.Protocol) string {
	switch p {
	case ipvs.TCP:
		return "TCP"
	case ipvs.UDP:
		return "UDP"
	case ipvs.SCTP:
		return "SCTP"
	}
	return p.String()
}

// remote writes the labels of a real server by its "10.0.0.1:80".
func (e *encoder) remote(address string) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		e.label("remote_address", address)
		return
	}
	e.key("remote_address")
	e.buf = append(at.Addr().AppendTo(e.buf), '"')
	e.number("remote_port", uint64(at.Port()))
}

// value ends a sample.
func (e *encoder) value(v float64) {
	if e.labels > 0 {
		e.buf = append(e.buf, '}')
	}
	e.buf = append(e.buf, ' ')
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		e.buf = strconv.AppendInt(e.buf, int64(v), 10)
	} else {
		e.buf = strconv.AppendFloat(e.buf, v, 'g', -1, 64)
	}
	e.buf = append(e.buf, '\n')
	if len(e.buf) >= chunk {
		e.flush()
	}
}

// flush writes what there is. After an error nothing more is written.
func (e *encoder) flush() {
	if e.err == nil {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

// distribution writes a histogram, with a label unless its name is "".
func (e *encoder) distribution(f family, h *engine.Histogram, label, value string) {
	sample := func(suffix string) {
		e.sample(f, suffix)
		if label != "" {
			e.label(label, value)
		}
	}
	var n uint64
	for i, bound := range h.Bounds {
		n += h.Counts[i]
		sample("_bucket")
		e.key("le")
		e.buf = append(strconv.AppendFloat(e.buf, bound.Seconds(), 'g', -1, 64), '"')
		e.value(number(n))
	}
	// The sum of the buckets, so that no scrape shows more in one than there are.
	n += h.Counts[len(h.Bounds)]
	sample("_bucket")
	e.label("le", "+Inf")
	e.value(number(n))
	sample("_sum")
	e.value(h.Sum.Seconds())
	sample("_count")
	e.value(number(n))
}

// single writes a family of one series.
func (e *encoder) single(f family, v float64) {
	e.begin(f)
	e.value(v)
}

func number[N int | int64 | uint32 | uint64](n N) float64 { return float64(n) }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// since1970 is a moment in seconds; the zero time is 0.
func since1970(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
