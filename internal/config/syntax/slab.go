package syntax

// slabSize is how many values are allocated at once.
const slabSize = 256

// slab hands out values of blocks that are allocated whole: a configuration of
// 30,000 real servers has some 200,000 statements and words, which live and die
// together with its tree.
type slab[T any] struct{ free []T }

// one returns a zero value.
func (s *slab[T]) one() *T {
	if len(s.free) == 0 {
		s.free = make([]T, slabSize)
	}
	v := &s.free[0]
	s.free = s.free[1:]
	return v
}

// room returns an empty slice with room for n values and no more.
func (s *slab[T]) room(n int) []T {
	if n > slabSize/4 {
		return make([]T, 0, n)
	}
	if len(s.free) < n {
		s.free = make([]T, slabSize)
	}
	v := s.free[:0:n]
	s.free = s.free[n:]
	return v
}
