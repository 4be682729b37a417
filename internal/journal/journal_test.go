package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// decode reads the native protocol as its description says, with no knowledge of
// Encode.
func decode(b []byte) (fields []Field, err error) {
	for len(b) > 0 {
		i := bytes.IndexAny(b, "=\n")
		if i <= 0 {
			return nil, fmt.Errorf("no name in %q", b)
		}
		f := Field{Name: string(b[:i])}
		sep := b[i]
		b = b[i+1:]
		size := bytes.IndexByte(b, '\n')
		if sep == '\n' {
			if len(b) < 8 {
				return nil, fmt.Errorf("no size of %s", f.Name)
			}
			size = int(binary.LittleEndian.Uint64(b))
			b = b[8:]
		}
		if size < 0 || size >= len(b) || b[size] != '\n' {
			return nil, fmt.Errorf("%s does not end where it says", f.Name)
		}
		f.Value = string(b[:size])
		b = b[size+1:]
		fields = append(fields, f)
	}
	return fields, nil
}

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"took": "TOOK", "retry_in": "RETRY_IN", "a.b-c": "A_B_C", "_pid": "PID", "9lives": "LIVES", "": "", "__": "", "é1x": "X",
		strings.Repeat("a", 70): strings.Repeat("A", 64), "\xff": "",
	} {
		if got := Name(in); got != want {
			t.Errorf("Name(%q) is %q, want %q", in, got, want)
		}
	}
}

// listen is a journal.
func listen(t *testing.T) (*net.UnixConn, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, path
}

// receive reads one record.
func receive(t *testing.T, c *net.UnixConn) []Field {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b, oob := make([]byte, 1<<20), make([]byte, 256)
	n, oobn, _, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		t.Fatal(err)
	}
	b = b[:n]
	if oobn > 0 {
		msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			t.Fatal(err)
		}
		fds, err := unix.ParseUnixRights(&msgs[0])
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fds[0]), "record")
		defer f.Close()
		// The journal takes only what the sender cannot change any more.
		seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
		if want := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE; err != nil || seals&want != want {
			t.Errorf("seals %x, %v", seals, err)
		}
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		b = make([]byte, st.Size())
		if _, err := f.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	fields, err := decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

func dial(t *testing.T, path string) *Writer {
	t.Helper()
	w, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func TestRecordsArriveWhole(t *testing.T) {
	c, path := listen(t)
	w := dial(t, path)
	for name, fields := range map[string][]Field{
		"plain":    {{"MESSAGE", "Lost quorum"}, {"PRIORITY", "4"}},
		"newlines": {{"MESSAGE", "one\ntwo\nMESSAGE=forged\n"}, {"SLUICE_ERR", "\n"}, {"EMPTY", ""}},
		"binary":   {{"MESSAGE", "\x00\xff=\n\x01"}},
		// More than a datagram takes.
		"big": {{"MESSAGE", "x"}, {"SLUICE_OUTPUT", strings.Repeat("line\n", 4<<20)}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := w.Send(fields...); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fields, receive(t, c)); diff != "" {
				t.Errorf("(-want +got):\n%.2000s", diff)
			}
		})
	}
}

// TestAJournalThatDoesNotRead: a sender is told at once, and goes on when it reads
// again, or when another one is there.
func TestAJournalThatDoesNotRead(t *testing.T) {
	c, path := listen(t)
	w := dial(t, path)
	sent := 0
	var err error
	for ; err == nil; sent++ {
		if sent > 1e6 {
			t.Fatal("a socket that nobody reads is never full")
		}
		err = w.Send(Field{"MESSAGE", strings.Repeat("x", 1000)})
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Errorf("full: %v", err)
	}
	receive(t, c)
	if err := w.Send(Field{"MESSAGE", "again"}); err != nil {
		t.Errorf("after one was read: %v", err)
	}
	c.Close()
	if err := w.Send(Field{"MESSAGE", "x"}); err == nil {
		t.Error("without a journal nothing failed")
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := w.Send(Field{"MESSAGE", "x"}); !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), path) {
		t.Errorf("without its socket: %v", err)
	}
	c, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := w.Send(Field{"MESSAGE", "new"}); err != nil {
		t.Error(err)
	}
	if got := receive(t, c); got[0].Value != "new" {
		t.Errorf("got %v", got)
	}
}

func FuzzEncode(f *testing.F) {
	f.Add("MESSAGE", "text", "sluice.vs", "a\nb")
	f.Add("", "=", "_X", "\n")
	f.Add("A=B", "\x00\xff", "A\nB", "x\n")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		want := []Field{}
		all := []Field{{Name(k1), v1}, {Name(k2), v2}, {k1, v1}, {k2, v2}}
		for _, f := range all {
			if f.Name != "" && f.Name == Name(f.Name) {
				want = append(want, f)
			}
		}
		got, err := decode(Encode(nil, all...))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, append([]Field{}, got...)); diff != "" {
			t.Error(diff)
		}
	})
}
