package render

import (
	"fmt"
	"time"
)

// Clean makes a foreign text safe for a terminal and one line.
func Clean(s string) string { return clean(s) }

// Compact writes a duration with its two largest units: "45s", "3m12s", "2h5m", "3d4h".
func Compact(d time.Duration) string { return compact(d) }

// Count is a number of things: "1 operation", "2 operations".
func Count[N ~int | ~uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
