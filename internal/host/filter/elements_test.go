package filter

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/nftables"
)

// TestElementsOfASetThatMoves: what a reading left out is in the next one.
func TestElementsOfASetThatMoves(t *testing.T) {
	t.Parallel()
	var all []nftables.SetElement
	for i := range 300 {
		all = append(all, nftables.SetElement{Key: fmt.Append(nil, i), Val: fmt.Append(nil, -i)})
	}
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		answers  [][]nftables.SetElement
		readings int
		want     int
	}{
		"empty":           {[][]nftables.SetElement{nil}, 1, 0},
		"one part":        {[][]nftables.SetElement{all[:onePart]}, 1, onePart},
		"whole":           {[][]nftables.SetElement{all, all}, 2, 300},
		"a gap, then two": {[][]nftables.SetElement{all[:200], all[100:], all}, 3, 300},
		"twice the same":  {[][]nftables.SetElement{append(all[:150:150], all[:150]...), all, all[150:]}, 3, 300},
		"few, then many":  {[][]nftables.SetElement{append(all[:10:10], all[:10]...), all, all}, 3, 300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			got, err := readElements(func() ([]nftables.SetElement, error) {
				n++
				return tc.answers[min(n, len(tc.answers))-1], nil
			})
			if err != nil || n != tc.readings || len(got) != tc.want {
				t.Errorf("%d elements in %d readings, %v; want %d in %d", len(got), n, err, tc.want, tc.readings)
			}
		})
	}
	n := 0
	if _, err := readElements(func() ([]nftables.SetElement, error) {
		if n++; n > 1 {
			return nil, broken
		}
		return all, nil
	}); !errors.Is(err, broken) {
		t.Errorf("a reading that fails: %v", err)
	}
}
