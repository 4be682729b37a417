//go:build !race

package http

import (
	"io"
	"testing"

	"github.com/sluice-lb/sluice/internal/checker"
)

// Under the race detector pools forget at random.
func TestGoodChecksDoNotAllocate(t *testing.T) {
	for name, s := range steady() {
		p := talk(t, s.check)
		n := testing.AllocsPerRun(200, func() {
			if o := lead(p, io.EOF, s.answers...); o.Result != checker.OK {
				t.Fatal(o.Reason)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations for each check", name, n)
		}
	}
}
