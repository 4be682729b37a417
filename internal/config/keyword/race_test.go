//go:build race

package keyword_test

const raceEnabled = true
