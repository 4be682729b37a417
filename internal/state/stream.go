package state

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"time"
)

// Lists are the long lists of a State, made while they are written: at ten thousand
// real servers they would be megabytes. They follow what is in the State's own lists,
// and may be asked for several times.
type Lists struct {
	Services       iter.Seq[Service]
	VirtualServers iter.Seq[VirtualServer]
	Verdicts       iter.Seq[Verdict]
}

// All returns the state with everything in its own lists.
func (s *State) All() *State {
	all := *s
	all.Lists = nil
	all.Services = gather(s.services())
	for i := range all.Services {
		svc := &all.Services[i]
		svc.Destinations, svc.More = gather(both(svc.Destinations, svc.More)), nil
	}
	all.VirtualServers = gather(s.virtualServers())
	all.Verdicts = gather(s.verdicts())
	return &all
}

func gather[T any](seq iter.Seq[T]) (all []T) {
	for v := range seq {
		all = append(all, v)
	}
	return all
}

// both yields a list and then what a sequence has.
func both[T any](list []T, seq iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, v := range list {
			if !yield(v) {
				return
			}
		}
		if seq != nil {
			seq(yield)
		}
	}
}

func (s *State) lists() Lists {
	if s.Lists == nil {
		return Lists{}
	}
	return *s.Lists
}

func (s *State) services() iter.Seq[Service] { return both(s.Services, s.lists().Services) }

func (s *State) virtualServers() iter.Seq[VirtualServer] {
	return both(s.VirtualServers, s.lists().VirtualServers)
}

func (s *State) verdicts() iter.Seq[Verdict] { return both(s.Verdicts, s.lists().Verdicts) }

// flushAt is how much text is collected before it is written.
const flushAt = 32 << 10

// stream writes JSON as json.MarshalIndent does with one space, without ever having
// it whole.
type stream struct {
	w   io.Writer
	buf []byte
	err error
}

// put collects text, and writes it when it is much.
func (o *stream) put(text string) {
	o.buf = append(o.buf, text...)
	if len(o.buf) >= flushAt {
		o.flush()
	}
}

func (o *stream) flush() {
	if o.err == nil {
		_, o.err = o.w.Write(o.buf)
	}
	o.buf = o.buf[:0]
}

func (o *stream) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// spaces are enough for any depth.
const spaces = "                "

// line begins a line at a depth.
func (o *stream) line(depth int) {
	o.put("\n")
	o.put(spaces[:depth])
}

// key begins a field; first tells of the first one of its object.
func (o *stream) key(depth int, first bool, name string) {
	if !first {
		o.put(",")
	}
	o.line(depth)
	o.put(`"`)
	o.put(name)
	o.put(`": `)
}

// text writes a string. What JSON has no need to escape goes out as it is.
func (o *stream) text(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			b, err := json.Marshal(s)
			o.fail(err)
			o.put(string(b))
			return
		}
	}
	o.put(`"`)
	o.put(s)
	o.put(`"`)
}

func (o *stream) time(t time.Time) {
	o.buf = append(o.buf, '"')
	b, err := t.AppendText(o.buf)
	if err != nil {
		o.fail(err)
		return
	}
	o.buf = append(b, '"')
}

func (o *stream) duration(d time.Duration) { o.buf = strconv.AppendInt(o.buf, int64(d), 10) }

// list writes a list at a depth, each of whose elements write writes; without any it
// writes nothing, not even begin.
func list[T any](o *stream, depth int, seq iter.Seq[T], begin func(), write func(T)) {
	n := 0
	for v := range seq {
		if n == 0 {
			begin()
			o.put("[")
		} else {
			o.put(",")
		}
		n++
		o.line(depth + 1)
		write(v)
		if o.err != nil {
			return
		}
	}
	if n > 0 {
		o.line(depth)
		o.put("]")
	}
}

// Write writes the file's content, a piece at a time.
func (s *State) Write(w io.Writer) error {
	o := &stream{w: w, buf: make([]byte, 0, flushAt+4096)}
	o.put("{")
	o.key(1, true, "version")
	o.put(strconv.Itoa(Version))
	o.key(1, false, "saved")
	o.time(s.Saved)
	o.key(1, false, "generation")
	o.put(strconv.FormatUint(s.Generation, 10))
	list(o, 1, s.services(), func() { o.key(1, false, "services") }, o.service)
	list(o, 1, s.virtualServers(), func() { o.key(1, false, "virtual_servers") }, func(v VirtualServer) {
		o.put("{")
		o.key(3, true, "virtual_server")
		o.text(v.VirtualServer)
		o.key(3, false, "quorum")
		o.put(strconv.FormatBool(v.Quorum))
		o.line(2)
		o.put("}")
	})
	list(o, 1, s.verdicts(), func() { o.key(1, false, "verdicts") }, o.verdict)
	list(o, 1, slices.Values(s.Marks), func() { o.key(1, false, "marks") }, func(m Mark) {
		// The whole object is indented for it, as it is nested in one.
		b, err := json.MarshalIndent(m, "  ", " ")
		o.fail(err)
		o.put(string(b))
	})
	if len(s.Operator) > 0 {
		// The whole object is indented for it, as it is nested in one.
		b, err := json.MarshalIndent(s.Operator, " ", " ")
		o.fail(err)
		o.key(1, false, "operator")
		o.put(string(b))
	}
	o.put("\n}\n")
	o.flush()
	if o.err != nil {
		return fmt.Errorf("encode the state: %w", o.err)
	}
	return nil
}

func (o *stream) service(v Service) {
	o.put("{")
	o.key(3, true, "service")
	o.text(v.Service)
	if v.DrainTimeout != 0 {
		o.key(3, false, "drain_timeout_ns")
		o.duration(v.DrainTimeout)
	}
	list(o, 3, both(v.Destinations, v.More), func() { o.key(3, false, "destinations") }, func(d Destination) {
		o.put("{")
		o.key(5, true, "destination")
		o.text(d.Destination)
		if d.Drain != nil {
			o.key(5, false, "drain")
			o.put("{")
			o.key(6, true, "since")
			o.time(d.Drain.Since)
			o.key(6, false, "why")
			o.text(d.Drain.Why)
			if d.Drain.Limit != nil {
				o.key(6, false, "limit_ns")
				o.duration(*d.Drain.Limit)
			}
			o.line(5)
			o.put("}")
		}
		o.line(4)
		o.put("}")
	})
	o.line(2)
	o.put("}")
}

func (o *stream) verdict(v Verdict) {
	o.put("{")
	o.key(3, true, "virtual_server")
	o.text(v.VirtualServer)
	o.key(3, false, "real_server")
	o.text(v.RealServer)
	o.key(3, false, "checker")
	o.text(v.Checker)
	o.key(3, false, "up")
	o.put(strconv.FormatBool(v.Up))
	o.key(3, false, "at")
	o.time(v.At)
	if v.Reason != "" {
		o.key(3, false, "reason")
		o.text(v.Reason)
	}
	o.line(2)
	o.put("}")
}
