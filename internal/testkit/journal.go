package testkit

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// JournalField is one of a record in systemd's journal.
type JournalField struct{ Name, Value string }

// Journal is a socket that receives records as systemd's journal does.
type Journal struct {
	Path string
	*net.UnixConn
}

// ListenJournal makes one for the time of the test.
func ListenJournal(t *testing.T) *Journal {
	t.Helper()
	return ListenJournalAt(t, filepath.Join(t.TempDir(), "socket"))
}

// ListenJournalAt makes one at a path.
func ListenJournalAt(t *testing.T, path string) *Journal {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &Journal{path, c}
}

// Next reads one record.
func (j *Journal) Next(t *testing.T) []JournalField {
	t.Helper()
	b, err := j.receive()
	if err != nil {
		t.Fatal(err)
	}
	fields, err := DecodeJournal(b)
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

func (j *Journal) receive() ([]byte, error) {
	if err := j.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return nil, err
	}
	b, oob := make([]byte, 1<<20), make([]byte, 256)
	n, oobn, _, _, err := j.ReadMsgUnix(b, oob)
	if err != nil || oobn == 0 {
		return b[:n], err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "record")
	defer f.Close()
	// The journal takes only what the sender cannot change any more.
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if want := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE; err != nil || seals&want != want {
		return nil, fmt.Errorf("the file of a record has seals %x, %w", seals, err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b = make([]byte, st.Size())
	_, err = f.ReadAt(b, 0)
	return b, err
}

// DecodeJournal reads a record as the description of the native protocol says.
func DecodeJournal(b []byte) (fields []JournalField, err error) {
	for len(b) > 0 {
		i := bytes.IndexAny(b, "=\n")
		if i <= 0 {
			return nil, fmt.Errorf("no name in %q", b)
		}
		f := JournalField{Name: string(b[:i])}
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
