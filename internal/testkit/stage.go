package testkit

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Stage is a T for programs: a failure ends what is played on it, not the program.
// The zero value is an empty stage.
type Stage struct {
	// Log is told failures and logs at once; nil is for who looks at the end.
	Log io.Writer
	// Failures are what Errorf and Fatalf were told.
	Failures []string
	cleanups []func()
}

// over is what Fatalf unwinds with.
type over struct{}

// Play calls fn and cleans up behind it.
func (t *Stage) Play(fn func()) {
	defer func() {
		for _, f := range slices.Backward(t.cleanups) {
			f()
		}
	}()
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(over); !ok {
				panic(r)
			}
		}
	}()
	fn()
}

// Helper implements T.
func (t *Stage) Helper() {}

// Logf is told what a process printed, which who has no Log keeps anyway.
func (t *Stage) Logf(format string, args ...any) {
	if t.Log != nil {
		fmt.Fprintf(t.Log, format+"\n", args...)
	}
}

// Errorf implements T.
func (t *Stage) Errorf(format string, args ...any) {
	t.Failures = append(t.Failures, strings.TrimSpace(fmt.Sprintf(format, args...)))
	t.Logf(format, args...)
}

// Fatalf implements T.
func (t *Stage) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	panic(over{})
}

// Failed implements T.
func (t *Stage) Failed() bool { return len(t.Failures) > 0 }

// Cleanup implements T.
func (t *Stage) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// TempDir implements T.
func (t *Stage) TempDir() string {
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
