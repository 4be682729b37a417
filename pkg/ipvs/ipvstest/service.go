package ipvstest

import (
	"iter"
	"slices"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// service is a service with its destinations. A daemon that is observed, or measured,
// has tens of thousands of them in a table: they lie in one list, and what most do not
// have is kept apart.
type service struct {
	info  ipvs.ServiceInfo
	dests []destination // oldest first; one without an address was deleted
	live  int           // those that were not
	// index has the positions in dests, nil as long as there were few.
	index map[ipvs.DestinationKey]int
}

// few is how many destinations are searched one by one.
const few = 32

type destination struct {
	ipvs.Destination
	traffic *traffic // nil while all of it is 0
}

type traffic struct {
	ipvs.Counters
	ipvs.Stats
}

func (d *destination) info() ipvs.DestinationInfo {
	i := ipvs.DestinationInfo{Destination: d.Destination}
	if d.traffic != nil {
		i.Counters, i.Stats = d.traffic.Counters, d.traffic.Stats
	}
	return i
}

func (d *destination) set(i ipvs.DestinationInfo) {
	*d = destination{Destination: i.Destination}
	if t := (traffic{i.Counters, i.Stats}); t != (traffic{}) {
		d.traffic = &t
	}
}

// find returns a destination, nil for none. It is valid until the next add or remove.
func (s *service) find(k ipvs.DestinationKey) *destination {
	if s.index != nil {
		if i, ok := s.index[k]; ok {
			return &s.dests[i]
		}
		return nil
	}
	for i := range s.dests {
		if d := &s.dests[i]; d.DestinationKey == k && d.Addr.IsValid() {
			return d
		}
	}
	return nil
}

// all goes over the destinations in their order.
func (s *service) all() iter.Seq[*destination] {
	return func(yield func(*destination) bool) {
		for i := range s.dests {
			if d := &s.dests[i]; d.Addr.IsValid() && !yield(d) {
				return
			}
		}
	}
}

// add appends a destination that the service does not have.
func (s *service) add(i ipvs.DestinationInfo) {
	if n := len(s.dests); n == cap(s.dests) {
		// Less at a time than append: most services are small.
		grown := make([]destination, n, n+max(4, n/4))
		copy(grown, s.dests)
		s.dests = grown
	}
	s.dests = append(s.dests, destination{})
	s.dests[len(s.dests)-1].set(i)
	s.live++
	if s.index != nil {
		s.index[i.DestinationKey] = len(s.dests) - 1
	} else {
		s.reindex()
	}
}

// remove takes a destination out of the list, whose holes are closed when they are
// more than half of it.
func (s *service) remove(k ipvs.DestinationKey) {
	*s.find(k) = destination{}
	delete(s.index, k)
	s.live--
	if len(s.dests) < 16 || len(s.dests) < 2*s.live {
		return
	}
	s.dests = slices.DeleteFunc(s.dests, func(d destination) bool { return !d.Addr.IsValid() })
	s.reindex()
}

// reindex makes the index of a list that has become another, if it is long enough.
func (s *service) reindex() {
	s.index = nil
	if len(s.dests) <= few {
		return
	}
	s.index = make(map[ipvs.DestinationKey]int, len(s.dests))
	for i := range s.dests {
		if d := &s.dests[i]; d.Addr.IsValid() {
			s.index[d.DestinationKey] = i
		}
	}
}
