package syntax

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// However a file comes in pieces, its lines are the same; one that is too long is
// passed over whole.
func TestLinesOfAFile(t *testing.T) {
	broken := errors.New("broken")
	lengths := rapid.OneOf(rapid.IntRange(0, 40), rapid.SampledFrom([]int{maxLine - 1, maxLine, maxLine + 1, maxLine + 2, maxLine + 3, chunk, 3 * chunk}))
	rapid.Check(t, func(t *rapid.T) {
		var want []string
		for i, n := range rapid.SliceOfN(lengths, 0, 12).Draw(t, "lengths") {
			want = append(want, strings.Repeat(string(rune('a'+i)), n)+"\n")
		}
		text := strings.Join(want, "")
		if rapid.Bool().Draw(t, "no end") {
			text = strings.TrimSuffix(text, "\n")
			if n := len(want); n > 0 {
				if want[n-1] = strings.TrimSuffix(want[n-1], "\n"); want[n-1] == "" {
					want = want[:n-1]
				}
			}
		}
		end := rapid.SampledFrom([]error{io.EOF, broken}).Draw(t, "end")
		lr := &lineReader{rest: text, err: end}
		if pieces := rapid.IntRange(0, 3).Draw(t, "pieces"); pieces > 0 {
			var r io.Reader = strings.NewReader(text)
			if pieces == 2 {
				r = iotest.HalfReader(r)
			}
			if pieces == 3 {
				r = iotest.DataErrReader(r)
			}
			lr = &lineReader{r: r}
			if end == broken {
				lr.r = io.MultiReader(r, iotest.ErrReader(broken))
			}
		}
		for i := 0; ; i++ {
			got, long, err := lr.next()
			switch {
			case got == "" && i == len(want):
			case i >= len(want):
				t.Fatalf("a line too many: %.40q", got)
			case long == 0 && (got != want[i] || len(got) > maxLine+2),
				long > 0 && (long != len(want[i]) || long <= maxLine+1 || got != want[i][:256]):
				t.Fatalf("line %d: %d bytes, long %d, want %d bytes", i, len(got), long, len(want[i]))
			}
			if err != nil {
				if err != end || i < len(want)-1 {
					t.Fatalf("%v after %d of %d lines", err, i+1, len(want))
				}
				return
			}
		}
	})
}

func TestReaderThatReturnsNothing(t *testing.T) {
	lr := &lineReader{r: idle{}}
	if _, _, err := lr.next(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v", err)
	}
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }
