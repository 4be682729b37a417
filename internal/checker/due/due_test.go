package due

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type thing struct {
	at  int64
	ref Ref
}

func TestTheQueueIsAModelOfASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[thing]
		in := map[*thing]bool{}
		pick := func(t *rapid.T) *thing {
			var all []*thing
			for k := range in {
				all = append(all, k)
			}
			if len(all) == 0 {
				t.Skip("empty")
			}
			// Any of them, but the same one each time.
			least := all[0]
			n := rapid.IntRange(0, 1<<30).Draw(t, "which")
			for _, k := range all {
				if (int(k.ref)^n)%1021 < (int(least.ref)^n)%1021 {
					least = k
				}
			}
			return least
		}
		at := rapid.Int64Range(0, 50)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				x := &thing{at: at.Draw(t, "at")}
				x.ref = q.Push(x, x.at)
				in[x] = true
			},
			"move": func(t *rapid.T) {
				x := pick(t)
				x.at = at.Draw(t, "at")
				q.Move(x.ref, x.at)
			},
			"remove": func(t *rapid.T) {
				x := pick(t)
				q.Remove(x.ref)
				delete(in, x)
			},
			"pop": func(t *rapid.T) {
				x, _ := q.Min()
				if x == nil {
					t.Skip("empty")
				}
				q.Remove(x.ref)
				delete(in, x)
			},
			"": func(t *rapid.T) {
				if q.Len() != len(in) {
					t.Fatalf("%d things, want %d", q.Len(), len(in))
				}
				least, when := q.Min()
				if (least == nil) != (len(in) == 0) || least != nil && (!in[least] || least.at != when) {
					t.Fatalf("min %v at %d", least, when)
				}
				for x := range in {
					if x.ref == 0 || q.At(x.ref) != x.at || x.at < when {
						t.Fatalf("%+v: at %d, min %d", x, q.At(x.ref), when)
					}
				}
			},
		})
	})
}

func TestThingsComeInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[thing]
		times := rapid.SliceOf(rapid.Int64Range(0, 20)).Draw(t, "times")
		for _, at := range times {
			q.Push(&thing{at: at}, at)
		}
		got := []int64{}
		for q.Len() > 0 {
			x, at := q.Min()
			if x.at != at {
				t.Fatalf("%d is due at %d", x.at, at)
			}
			got = append(got, at)
			q.Remove(q.heap[0].ref)
		}
		slices.Sort(times)
		if !slices.Equal(got, times) {
			t.Fatalf("%v, want %v", got, times)
		}
	})
}

func TestASteadyQueueDoesNotAllocate(t *testing.T) {
	var q Queue[thing]
	things := make([]thing, 1000)
	for i := range things {
		things[i].ref = q.Push(&things[i], int64(i))
	}
	if n := testing.AllocsPerRun(5000, func() {
		x, at := q.Min()
		q.Move(x.ref, at+777)
		y := &things[at%1000]
		q.Remove(y.ref)
		y.ref = q.Push(y, at+500)
	}); n != 0 {
		t.Errorf("%v allocations for each turn", n)
	}
}
