package guest

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// stage lends testkit what a test has. A failure ends the run, not the program.
type stage struct {
	failures []string
	cleanups []func()
}

// over is what Fatalf unwinds with.
type over struct{}

// play calls fn and cleans up behind it.
func (t *stage) play(fn func()) {
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

func (t *stage) Helper() {}

// Logf is told what a process printed, which the run keeps anyway.
func (t *stage) Logf(string, ...any) {}

func (t *stage) Errorf(format string, args ...any) {
	t.failures = append(t.failures, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (t *stage) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	panic(over{})
}

func (t *stage) Failed() bool { return len(t.failures) > 0 }

func (t *stage) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *stage) TempDir() string {
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
