package keyword

// Words lists the words of a kind of block, and what kind of block each opens.
func Words(block string) (words []string, opens map[string]string) {
	x := newIndex()
	opens = map[string]string{}
	for _, name := range x.names(block) {
		if k := x.lookup(block, name); k.status != Skipped {
			words = append(words, name)
			opens[name] = k.opens
		}
	}
	return words, opens
}
