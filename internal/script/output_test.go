package script

import (
	"io"
	"os"
	"strings"
	"testing"
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
