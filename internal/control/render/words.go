package render

import "time"

// Clean makes a foreign text safe for a terminal and one line.
func Clean(s string) string { return clean(s) }

// Compact writes a duration with its two largest units: "45s", "3m12s", "2h5m", "3d4h".
func Compact(d time.Duration) string { return compact(d) }
