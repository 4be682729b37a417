package main

import (
	"fmt"
	"os"
	"slices"
)

// stage lends testkit what a test has: failures, clean-up, folders.
type stage struct {
	failed   bool
	cleanups []func()
}

// over is what Fatalf unwinds with.
type over struct{}

// run plays and cleans up, and returns the exit status.
func (t *stage) run(play func(*stage)) (status int) {
	defer func() {
		if t.failed {
			status = 1
		}
	}()
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
	play(t)
	return 0
}

func (t *stage) Helper() {}

func (t *stage) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func (t *stage) Errorf(format string, args ...any) {
	t.failed = true
	fmt.Fprintf(os.Stderr, "demo: "+format+"\n", args...)
}

func (t *stage) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	panic(over{})
}

func (t *stage) Failed() bool { return t.failed }

func (t *stage) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *stage) TempDir() string {
	dir, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
