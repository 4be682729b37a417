package engine

// shelfPart is how many things of a shelf are copied when one of them changes.
const shelfPart = 128

// shelf is a list whose old versions readers go on using: a new version shares with
// the one before all parts in which nothing changed.
type shelf[T comparable] struct {
	parts [][]T
	n     int
}

func newShelf[T comparable](n int) shelf[T] {
	s := shelf[T]{n: n}
	all := make([]T, n)
	for ; len(all) > shelfPart; all = all[shelfPart:] {
		s.parts = append(s.parts, all[:shelfPart:shelfPart])
	}
	if len(all) > 0 {
		s.parts = append(s.parts, all)
	}
	return s
}

func (s shelf[T]) at(i int) T { return s.parts[i/shelfPart][i%shelfPart] }

// revision is a shelf that is being changed; nobody else has it yet.
type revision[T comparable] struct {
	shelf[T]
	// fresh are the parts that are not shared, nil as long as the list of the parts
	// is shared too.
	fresh []bool
}

func (s shelf[T]) revise() revision[T] { return revision[T]{shelf: s} }

// set puts a thing in; one that is there already changes nothing.
func (r *revision[T]) set(i int, v T) {
	if r.at(i) == v {
		return
	}
	if r.fresh == nil {
		r.fresh = make([]bool, len(r.parts))
		r.parts = append([][]T(nil), r.parts...)
	}
	k := i / shelfPart
	if !r.fresh[k] {
		r.fresh[k] = true
		r.parts[k] = append([]T(nil), r.parts[k]...)
	}
	r.parts[k][i%shelfPart] = v
}
