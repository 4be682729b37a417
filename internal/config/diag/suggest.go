package diag

import "strings"

// maxSuggest is the longest word, in bytes, that a suggestion is sought for.
const maxSuggest = 64

// Suggest returns the candidate that was probably meant by a misspelt word, or
// "" when none is near. A word that differs in case or in "-" for "_" alone is
// always near; otherwise the distance (insertions, deletions, substitutions and
// transpositions of neighbours, 1 each) may be 1 for up to five letters, 2 for
// up to eight and 3 beyond. Of equally near candidates the first one wins.
func Suggest(word string, candidates []string) string {
	folded := fold(word)
	if word == "" || len(folded) > maxSuggest {
		return ""
	}
	bound := 3
	switch n := len(word); {
	case n < 3:
		bound = 0
	case n <= 5:
		bound = 1
	case n <= 8:
		bound = 2
	}
	best, bestDistance := "", bound+1
	for _, c := range candidates {
		near := fold(c)
		if c == word || c == "" || len(near) > maxSuggest {
			continue
		}
		if d := distance(folded, near, bestDistance-1); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

func fold(s string) string {
	return strings.ReplaceAll(strings.ToLower(s), "-", "_")
}

// distance is the restricted Damerau-Levenshtein distance (optimal string
// alignment) of two short byte strings, or bound+1 when it is above bound.
func distance(a, b string, bound int) int {
	if d := len(a) - len(b); d > bound || -d > bound {
		return bound + 1
	}
	var rows [3][maxSuggest + 1]int
	before, last, this := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		this[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(last[j]+1, this[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, before[j-2]+1)
			}
			this[j] = d
			least = min(least, d)
		}
		if least > bound+1 {
			return bound + 1
		}
		before, last, this = last, this, before
	}
	return min(last[len(b)], bound+1)
}
