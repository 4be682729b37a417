package trackfile

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestParseIsStrtolBase0(t *testing.T) {
	for _, tc := range []struct {
		in    string
		want  int64
		state State
	}{
		{"5\n", 5, OK},
		{"-7", -7, OK},
		{"+7", 7, OK},
		{" \t\r\n\v\f 7 trailing", 7, OK},
		{"12abc", 12, OK},
		{"0x10", 16, OK},
		{"0XfF", 255, OK},
		{"-0x10", -16, OK},
		{"010", 8, OK},
		{"08", 0, OK},   // "0", then rubbish
		{"0x", 0, OK},   // likewise
		{"0xg1", 0, OK}, // likewise
		{"0b11", 0, OK},
		{"1 2", 1, OK},
		{"1_000", 1, OK},
		{"", 0, Empty},
		{" \n\n", 0, Empty},
		{"abc", 0, Garbage},
		{"-", 0, Garbage},
		{"+ 5", 0, Garbage},
		{"--5", 0, Garbage},
		{"\x00\x00", 0, Garbage},
		{"\ufeff5", 0, Garbage}, // a byte order mark
		{"-2147483648", -2147483648, OK},
		{"-2147483649", 0, OutOfRange},
		{"2147483647", 2147483647, OK},
		{"2147483648", 2147483648, OK},
		{"2147483649", 0, OutOfRange},
		{"0x80000000", 2147483648, OK},
		{strings.Repeat("9", 120), 0, OutOfRange},
		{"-" + strings.Repeat("9", 120), 0, OutOfRange},
		{"0x" + strings.Repeat("f", 120), 0, OutOfRange},
		{"0" + strings.Repeat("7", 120), 0, OutOfRange},
		{strings.Repeat("0", 120) + "17", 15, OK},
		{strings.Repeat(" ", 126) + "42", 4, OK}, // the 128th byte is not seen
		{strings.Repeat(" ", 127) + "42", 0, Empty},
	} {
		got, state := Parse([]byte(tc.in))
		if got != tc.want || state != tc.state {
			t.Errorf("Parse(%.40q) = %d, %v; want %d, %v", tc.in, got, state, tc.want, tc.state)
		}
	}
}

// Go's parser of integers is the oracle for what it accepts.
func TestParseAgreesWithStrconv(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64().Draw(t, "v")
		format := rapid.SampledFrom([]string{"", "0x", "0"}).Draw(t, "format")
		base := map[string]int{"": 10, "0x": 16, "0": 8}[format]
		in := format + strings.TrimPrefix(strconv.FormatInt(v, base), "-")
		if v < 0 {
			in = "-" + in
		}
		want, err := strconv.ParseInt(in, 0, 64)
		wantState := OK
		if err != nil || want < Min || want > Max {
			want, wantState = 0, OutOfRange
		}
		tail := rapid.SampledFrom([]string{"", "\n", " x", "\x00"}).Draw(t, "tail")
		if got, state := Parse([]byte(in + tail)); got != want || state != wantState {
			t.Fatalf("Parse(%q) = %d, %v; want %d, %v", in+tail, got, state, want, wantState)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"5\n", "-0x7f", "0777", "junk", "\x00", "2147483649"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, state := Parse(b)
		if v < Min || v > Max || state != OK && v != 0 {
			t.Errorf("Parse(%q) = %d, %v", b, v, state)
		}
		if v2, state2 := Parse(b[:min(len(b), maxRead)]); v != v2 || state != state2 {
			t.Errorf("bytes after the 127th changed %d, %v to %d, %v", v2, state2, v, state)
		}
	})
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "5\n")
	loop := filepath.Join(dir, "loop")
	dangling := filepath.Join(dir, "dangling")
	fifo := filepath.Join(dir, "fifo")
	for _, err := range []error{os.Symlink(loop, loop), os.Symlink("nowhere", dangling), unix.Mkfifo(fifo, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, path string
		want       int64
		state      State
		err        string
	}{
		{"a number", plain, 5, OK, ""},
		{"missing", filepath.Join(dir, "none"), 0, Missing, ""},
		{"a file for a directory", filepath.Join(plain, "x"), 0, Missing, ""},
		{"a dangling link", dangling, 0, Missing, ""},
		{"empty", write("empty", ""), 0, Empty, ""},
		{"a FIFO without a writer", fifo, 0, Empty, ""},
		{"/dev/null", "/dev/null", 0, Empty, ""},
		{"garbage", write("garbage", "on\n"), 0, Garbage, `"on" is not a number`},
		{"long garbage", write("long", strings.Repeat("x", 500)), 0, Garbage, `"` + strings.Repeat("x", 32) + `" is not a number`},
		{"out of range", write("range", "99999999999\n"), 0, OutOfRange, `"99999999999" is outside -2147483648..2147483648`},
		{"a directory", dir, 0, Unreadable, "is a directory"},
		{"a link to itself", loop, 0, Unreadable, "too many levels of symbolic links"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v, state, err := Read(tc.path)
			if v != tc.want || state != tc.state {
				t.Errorf("Read = %d, %v; want %d, %v", v, state, tc.want, tc.state)
			}
			switch {
			case tc.err == "" && err != nil:
				t.Errorf("error %v, want none", err)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), tc.path)):
				t.Errorf("error %v, want one with %q and the path", err, tc.err)
			}
		})
	}
}

func TestReadDoesNotWaitForAFIFOsWriter(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if v, state, err := Read(fifo); v != 0 || state != Empty || err != nil {
		t.Errorf("silent writer: %d, %v, %v; want 0, empty", v, state, err)
	}
	if _, err := w.WriteString("9\n"); err != nil {
		t.Fatal(err)
	}
	if v, state, err := Read(fifo); v != 9 || state != OK || err != nil {
		t.Errorf("after a write: %d, %v, %v; want 9", v, state, err)
	}
}
