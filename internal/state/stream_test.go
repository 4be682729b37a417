package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// anyState draws a state with everything in its own lists.
func anyState(t *rapid.T) *State {
	texts := rapid.OneOf(rapid.StringMatching("[ -~]{0,12}"), rapid.String())
	text := func() string { return texts.Draw(t, "text") }
	when := func() time.Time {
		zone := time.FixedZone("", 60*rapid.IntRange(-720, 720).Draw(t, "zone"))
		return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "s"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns")).In(zone)
	}
	n := func() int { return rapid.IntRange(0, 3).Draw(t, "n") }
	s := &State{Version: Version, Saved: when(), Generation: rapid.Uint64().Draw(t, "generation")}
	for range n() {
		svc := Service{Service: text(), DrainTimeout: time.Duration(rapid.Int64Range(0, 5).Draw(t, "timeout"))}
		for range n() {
			d := Destination{Destination: text()}
			if rapid.Bool().Draw(t, "drain") {
				d.Drain = &Drain{Since: when(), Why: text()}
				if rapid.Bool().Draw(t, "limit") {
					limit := time.Duration(rapid.Int64().Draw(t, "limit"))
					d.Drain.Limit = &limit
				}
			}
			svc.Destinations = append(svc.Destinations, d)
		}
		s.Services = append(s.Services, svc)
	}
	for range n() {
		s.VirtualServers = append(s.VirtualServers, VirtualServer{text(), rapid.Bool().Draw(t, "quorum")})
	}
	for range n() {
		s.Verdicts = append(s.Verdicts, Verdict{Key: Key{text(), text(), text()}, Up: rapid.Bool().Draw(t, "up"), At: when(), Reason: text()})
	}
	s.Operator = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`null`), json.RawMessage(`[]`), json.RawMessage(`[{"a":[1,{"b":"<&>"}]},{}]`)}).Draw(t, "operator")
	return s
}

// TestStreamIsTheLibrarys: what is written a piece at a time is to the byte what the
// library makes of the whole, wherever the lists come from.
func TestStreamIsTheLibrarys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyState(t)
		want, err := json.MarshalIndent(s, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, '\n')
		split := *s
		cut := func(n int) int { return rapid.IntRange(0, n).Draw(t, "cut") }
		a, b, c := cut(len(s.Services)), cut(len(s.VirtualServers)), cut(len(s.Verdicts))
		split.Services, split.VirtualServers, split.Verdicts = s.Services[:a], s.VirtualServers[:b], s.Verdicts[:c]
		rest := slices.Clone(s.Services[a:])
		for i := range rest {
			if ds := rest[i].Destinations; len(ds) > 0 {
				rest[i].Destinations, rest[i].More = ds[:1], slices.Values(ds[1:])
			}
		}
		split.Lists = &Lists{slices.Values(rest), slices.Values(s.VirtualServers[b:]), slices.Values(s.Verdicts[c:])}
		for _, one := range []*State{s, &split, split.All()} {
			got, err := Encode(one)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("written:\n%s\nwant:\n%s", got, want)
			}
		}
	})
}

// many is a state of n verdicts that are made when they are asked for.
func many(n int) *State {
	return &State{Saved: noon, Lists: &Lists{Verdicts: func(yield func(Verdict) bool) {
		for range n {
			if !yield(Verdict{Key: Key{"[192.0.2.1]:tcp:80", "10.0.0.1:80", "0123456789abcdef0123456789abcdef"}, Up: true, At: noon}) {
				return
			}
		}
	}}}
}

type counter struct{ writes, bytes, most int }

func (c *counter) Write(b []byte) (int, error) {
	c.writes++
	c.bytes += len(b)
	c.most = max(c.most, len(b))
	return len(b), nil
}

// TestStreamIsNeverWhole: the memory that writing takes does not grow with the state.
func TestStreamIsNeverWhole(t *testing.T) {
	var c counter
	s := many(10_000)
	n := testing.AllocsPerRun(3, func() {
		if err := s.Write(&c); err != nil {
			t.Fatal(err)
		}
	})
	if n > 50 || c.most > 2*flushAt || c.writes < 10 {
		t.Errorf("%v allocations, %d writes of at most %d bytes for %d", n, c.writes, c.most, c.bytes/4)
	}
}

type broken struct{ after int }

var errBroken = errors.New("disk full")

func (b *broken) Write(p []byte) (int, error) {
	if b.after--; b.after < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

func TestStreamTellsOfAFailedWrite(t *testing.T) {
	for after := range 3 {
		if err := many(1000).Write(&broken{after}); !errors.Is(err, errBroken) {
			t.Errorf("after %d writes: %v", after, err)
		}
	}
	if _, err := Encode(&State{Saved: time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("a year of five digits is no error")
	}
}

func BenchmarkEncode10000(b *testing.B) {
	s := many(10_000)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Write(&counter{}); err != nil {
			b.Fatal(err)
		}
	}
}
