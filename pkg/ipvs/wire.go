package ipvs

import (
	"encoding/binary"
	"errors"
)

// errShort is for a message or attribute that is shorter than it says or than
// its type needs.
var errShort = errors.New("short or malformed attribute")

func align4(n int) int { return (n + 3) &^ 3 }

// header is struct nlmsghdr without its length.
type header struct {
	typ   uint16
	flags uint16
	seq   uint32
	pid   uint32
}

// nextMessage splits the first message off a datagram. What follows the headers
// is data; ok is false at the end and for what is not a whole message.
func nextMessage(b []byte) (h header, data, rest []byte, ok bool) {
	if len(b) < headerLen {
		return h, nil, nil, false
	}
	n := binary.NativeEndian.Uint32(b)
	if n < headerLen || uint64(n) > uint64(len(b)) {
		return h, nil, nil, false
	}
	h = header{
		typ:   binary.NativeEndian.Uint16(b[4:]),
		flags: binary.NativeEndian.Uint16(b[6:]),
		seq:   binary.NativeEndian.Uint32(b[8:]),
		pid:   binary.NativeEndian.Uint32(b[12:]),
	}
	return h, b[headerLen:n], b[min(align4(int(n)), len(b)):], true
}

// beginMessage appends the two headers of a request; endMessage fills in the
// length once the attributes are there.
func beginMessage(b []byte, family, flags uint16, seq uint32, cmd uint8) []byte {
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint16(b, family)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0) // the kernel knows the sender
	return append(b, cmd, familyVersion, 0, 0)
}

func endMessage(b []byte, start int) {
	binary.NativeEndian.PutUint32(b[start:], uint32(len(b)-start))
}

// setFlags replaces the flags of the message at start.
func setFlags(b []byte, start int, flags uint16) {
	binary.NativeEndian.PutUint16(b[start+6:], flags)
}

func appendAttrHeader(b []byte, typ uint16, size int) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHeaderLen+size))
	return binary.NativeEndian.AppendUint16(b, typ)
}

func appendBytes(b []byte, typ uint16, v []byte) []byte {
	b = append(appendAttrHeader(b, typ, len(v)), v...)
	for len(b)&3 != 0 {
		b = append(b, 0)
	}
	return b
}

// appendString appends a NUL-terminated string (NLA_NUL_STRING).
func appendString(b []byte, typ uint16, s string) []byte {
	b = append(append(appendAttrHeader(b, typ, len(s)+1), s...), 0)
	for len(b)&3 != 0 {
		b = append(b, 0)
	}
	return b
}

func appendUint8(b []byte, typ uint16, v uint8) []byte {
	return append(appendAttrHeader(b, typ, 1), v, 0, 0, 0)
}

func appendUint16(b []byte, typ uint16, v uint16) []byte {
	b = binary.NativeEndian.AppendUint16(appendAttrHeader(b, typ, 2), v)
	return append(b, 0, 0)
}

// appendPort appends a 16-bit number in network order.
func appendPort(b []byte, typ uint16, v uint16) []byte {
	b = binary.BigEndian.AppendUint16(appendAttrHeader(b, typ, 2), v)
	return append(b, 0, 0)
}

func appendUint32(b []byte, typ uint16, v uint32) []byte {
	return binary.NativeEndian.AppendUint32(appendAttrHeader(b, typ, 4), v)
}

// beginNested appends the header of a nested attribute; endNested fills in its
// length. The kernel's IPVS policy predates NLA_F_NESTED and takes it without.
func beginNested(b []byte, typ uint16) []byte { return appendAttrHeader(b, typ, 0) }

func endNested(b []byte, start int) {
	binary.NativeEndian.PutUint16(b[start:], uint16(len(b)-start))
}

// attrs iterates over attributes. The first malformed one ends the iteration and
// stays in err; reading a number of the wrong size does the same.
type attrs struct {
	b    []byte
	typ  uint16
	data []byte
	err  error
}

func (a *attrs) next() bool {
	if a.err != nil || len(a.b) == 0 {
		return false
	}
	if len(a.b) < attrHeaderLen {
		a.err = errShort
		return false
	}
	n := int(binary.NativeEndian.Uint16(a.b))
	if n < attrHeaderLen || n > len(a.b) {
		a.err = errShort
		return false
	}
	a.typ = binary.NativeEndian.Uint16(a.b[2:]) & attrTypeMask
	a.data = a.b[attrHeaderLen:n]
	a.b = a.b[min(align4(n), len(a.b)):]
	return true
}

func (a *attrs) sized(n int) bool {
	if len(a.data) != n {
		a.err = errShort
		return false
	}
	return true
}

func (a *attrs) uint8() uint8 {
	if !a.sized(1) {
		return 0
	}
	return a.data[0]
}

func (a *attrs) uint16() uint16 {
	if !a.sized(2) {
		return 0
	}
	return binary.NativeEndian.Uint16(a.data)
}

func (a *attrs) port() uint16 {
	if !a.sized(2) {
		return 0
	}
	return binary.BigEndian.Uint16(a.data)
}

func (a *attrs) uint32() uint32 {
	if !a.sized(4) {
		return 0
	}
	return binary.NativeEndian.Uint32(a.data)
}

// uint reads a number of either size: the same statistic has 32 bits in one
// attribute and 64 in another.
func (a *attrs) uint() uint64 {
	switch len(a.data) {
	case 4:
		return uint64(binary.NativeEndian.Uint32(a.data))
	case 8:
		return binary.NativeEndian.Uint64(a.data)
	}
	a.err = errShort
	return 0
}

// string reads up to the terminating NUL, or to the end without one.
func (a *attrs) string() string {
	for i, c := range a.data {
		if c == 0 {
			return string(a.data[:i])
		}
	}
	return string(a.data)
}

// name is string without a copy of the names that are common in a table.
func (a *attrs) name() string {
	b := a.data
	if n := len(b); n > 0 && b[n-1] == 0 {
		b = b[:n-1]
	}
	switch string(b) {
	case "rr":
		return "rr"
	case "wrr":
		return "wrr"
	case "lc":
		return "lc"
	case "wlc":
		return "wlc"
	case "sh":
		return "sh"
	case "mh":
		return "mh"
	case "sip":
		return "sip"
	}
	return a.string()
}
