package backend

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/test/bench/stat"
)

// patience bounds a conversation; nothing in it waits for anything.
const patience = 20 * time.Second

// Control answers on a unix socket until it is closed. A connection is one line and
// its answer:
//
//	status         JSON of Status
//	events FROM    the record from a position on, eight bytes each
//	shut PORT      "ok", or what is wrong
func (s *Server) Control(l net.Listener) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		s.serve(c)
	}
}

func (s *Server) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return
	}
	verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	n := 0
	if rest != "" {
		if _, err := fmt.Sscan(rest, &n); err != nil {
			fmt.Fprintf(c, "%s: want a number, not %q\n", verb, rest)
			return
		}
	}
	// What cannot be written is missed by the peer, which says so.
	switch verb {
	case "status":
		_ = json.NewEncoder(c).Encode(s.Status())
	case "events":
		_ = binary.Write(c, binary.LittleEndian, s.raw(int64(n)))
	case "shut":
		if err := s.Shut(n); err != nil {
			fmt.Fprintln(c, err)
			return
		}
		fmt.Fprintln(c, "ok")
	default:
		fmt.Fprintf(c, "unknown command %q\n", verb)
	}
}

// Client talks to a backend in another process.
type Client struct{ Socket string }

func (c Client) ask(line string) ([]byte, error) {
	conn, err := net.DialTimeout("unix", c.Socket, patience)
	if err != nil {
		return nil, fmt.Errorf("backend: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return nil, fmt.Errorf("backend: %s: %w", line, err)
	}
	b, err := io.ReadAll(conn)
	if err != nil {
		return nil, fmt.Errorf("backend: %s: %w", line, err)
	}
	return b, nil
}

// Status asks for it.
func (c Client) Status() (s Status, err error) {
	b, err := c.ask("status")
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// Events asks for the record from a position on.
func (c Client) Events(from int64) ([]stat.Event, error) {
	b, err := c.ask(fmt.Sprint("events ", from))
	if err != nil {
		return nil, err
	}
	if len(b)%8 != 0 {
		return nil, fmt.Errorf("backend: a record of %d bytes is cut", len(b))
	}
	words := make([]uint64, len(b)/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[i*8:])
	}
	return unpack(words), nil
}

// Shut makes a port refuse.
func (c Client) Shut(port int) error {
	b, err := c.ask(fmt.Sprint("shut ", port))
	if err != nil {
		return err
	}
	if answer := strings.TrimSpace(string(b)); answer != "ok" {
		return errors.New(answer)
	}
	return nil
}
