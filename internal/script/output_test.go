package script

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func TestOutput(t *testing.T) {
	for name, tt := range map[string]struct {
		writes []string
		want   string
	}{
		"nothing":     {nil, ""},
		"lines":       {[]string{"a\n", "b\n\n"}, "a\nb"},
		"full":        {[]string{strings.Repeat("x", maxOutput)}, strings.Repeat("x", maxOutput)},
		"too much":    {[]string{strings.Repeat("x", maxOutput-1), "yz", "w"}, strings.Repeat("x", maxOutput-1) + "y ... (2 bytes more)"},
		"not text":    {[]string{"a\xffb"}, "a?b"},
		"cut in rune": {[]string{strings.Repeat("x", maxOutput-1) + "é"}, strings.Repeat("x", maxOutput-1) + "? ... (1 bytes more)"},
	} {
		t.Run(name, func(t *testing.T) {
			var o output
			for _, w := range tt.writes {
				if n, err := o.Write([]byte(w)); n != len(w) || err != nil {
					t.Errorf("wrote %d, %v", n, err)
				}
			}
			if got := o.String(); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestLeftoversAreBounded: the oldest pipe is given up for a new one, and close
// gives up all.
func TestLeftoversAreBounded(t *testing.T) {
	var l Leftovers
	var writers []*os.File
	pipe := func() *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		writers = append(writers, w)
		return r
	}
	broken := func(w *os.File) bool {
		_, err := io.WriteString(w, strings.Repeat("x", 1<<17)) // more than a pipe holds
		return err != nil
	}
	for range maxLeftovers + 1 {
		l.add(pipe())
	}
	if !broken(writers[0]) || broken(writers[1]) || broken(writers[maxLeftovers]) {
		t.Error("want the oldest pipe closed and the others read")
	}
	l.Close()
	if !broken(writers[1]) {
		t.Error("a pipe is open after close")
	}
	l.add(pipe())
	if !broken(writers[len(writers)-1]) {
		t.Error("a pipe was taken after close")
	}
}

// TestOutputIsReadInAnyCase: what a script printed counts also if its reader did
// not get a turn in time.
func TestOutputIsReadInAnyCase(t *testing.T) {
	for name, tt := range map[string]struct {
		write string
		open  bool // at the other end
		want  string
	}{
		"ended":             {"text", false, "text"},
		"a child holds it":  {"text", true, "text"},
		"nothing":           {"", false, ""},
		"nothing so far":    {"", true, ""},
		"more than is kept": {strings.Repeat("x", 3*maxOutput), true, strings.Repeat("x", maxOutput)},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			if err := r.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
				t.Fatal(err)
			}
			io.WriteString(w, tt.write)
			if !tt.open {
				w.Close()
			}
			var o output
			if err := o.drain(r); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("drained in spite of the deadline: %v", err)
			}
			if end := o.drained(r); end == tt.open || !strings.HasPrefix(o.String(), tt.want) || len(o.kept) != len(tt.want) {
				t.Errorf("%q, end %t; want %q", o.String(), end, tt.want)
			}
		})
	}
}
