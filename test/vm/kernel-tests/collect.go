package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// collector passes a test stream through and counts what it says. Only results
// of top-level tests count as tests; a skip or failure of a subtest counts too.
type collector struct {
	out  io.Writer
	line []byte // what has come of the current line

	pkg             string
	ran             map[string]int // tests with a result, by package
	passed          int
	failed, skipped []string
}

// lines passes whole lines on, with a prefix that tells several guests apart.
type lines struct {
	out    io.Writer
	lock   *sync.Mutex // of out
	prefix string
	part   []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	end := bytes.LastIndexByte(l.part, '\n') + 1
	if end == 0 {
		return len(p), nil
	}
	text := make([]byte, 0, end)
	for line := range bytes.Lines(l.part[:end]) {
		text = append(append(text, l.prefix...), line...)
	}
	l.part = append(l.part[:0], l.part[end:]...)
	l.lock.Lock()
	defer l.lock.Unlock()
	_, err := l.out.Write(text)
	return len(p), err
}

// flush passes on what is there of a line.
func (l *lines) flush() {
	if len(l.part) > 0 {
		_, _ = l.Write([]byte("\n"))
	}
}

// Write implements io.Writer.
func (c *collector) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	for _, chunk := range bytes.SplitAfter(p[:n], []byte("\n")) {
		c.line = append(c.line, chunk...)
		if bytes.HasSuffix(c.line, []byte("\n")) {
			c.flush()
		}
	}
	return n, err
}

// flush takes what is there of a line as a whole one.
func (c *collector) flush() {
	line := strings.TrimRight(string(c.line), "\r\n")
	c.line = c.line[:0]
	if pkg, ok := strings.CutPrefix(line, header); ok {
		c.pkg = pkg
		return
	}
	result := strings.TrimLeft(line, " ")
	for _, kind := range []string{"PASS", "FAIL", "SKIP"} {
		rest, ok := strings.CutPrefix(result, "--- "+kind+": ")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, " ")
		top := result == line
		if top {
			if c.ran == nil {
				c.ran = map[string]int{}
			}
			c.ran[c.pkg]++
		}
		switch {
		case kind == "FAIL":
			c.failed = append(c.failed, c.pkg+" "+name)
		case kind == "SKIP":
			c.skipped = append(c.skipped, c.pkg+" "+name)
		case top:
			c.passed++
		}
	}
}

func (c *collector) summary() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, len(c.failed), len(c.skipped))
}

// verdict is nil only if every package ran something and nothing failed or was
// skipped. A regexp of the caller's own may leave packages without a match.
func (c *collector) verdict(packages []testPackage, pattern string) error {
	var errs []error
	if len(c.failed) > 0 {
		errs = append(errs, fmt.Errorf("failed:\n  %s", strings.Join(c.failed, "\n  ")))
	}
	if len(c.skipped) > 0 {
		errs = append(errs, fmt.Errorf("skipped, which is a failure on a real kernel:\n  %s", strings.Join(c.skipped, "\n  ")))
	}
	total := 0
	for _, p := range packages {
		total += c.ran[p.path]
		if c.ran[p.path] == 0 && pattern == "^TestKernel" {
			errs = append(errs, fmt.Errorf("%s: no test ran to a result", p.path))
		}
	}
	if total == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("no test ran to a result"))
	}
	return errors.Join(errs...)
}
