package ipvs

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"pgregory.net/rapid"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNextMessage(t *testing.T) {
	one := beginMessage(nil, 0x1c, flagRequest, 7, cmdGetInfo)
	endMessage(one, 0)
	for _, c := range []struct {
		name string
		in   []byte
		ok   bool
		rest int
	}{
		{"empty", nil, false, 0},
		{"short header", one[:15], false, 0},
		{"length below the header", append([]byte{15, 0, 0, 0}, one[4:]...), false, 0},
		{"length above the datagram", append([]byte{21, 0, 0, 0}, one[4:]...), false, 0},
		{"huge length", append([]byte{255, 255, 255, 255}, one[4:]...), false, 0},
		{"whole", one, true, 0},
		{"two", append(bytes.Clone(one), one...), true, 20},
		{"unaligned without padding", append([]byte{19, 0, 0, 0}, one[4:19]...), true, 0},
		{"unaligned with padding", append([]byte{19, 0, 0, 0}, one[4:20]...), true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, data, rest, ok := nextMessage(c.in)
			if ok != c.ok || len(rest) != c.rest {
				t.Fatalf("ok %v, %d bytes left, want %v, %d", ok, len(rest), c.ok, c.rest)
			}
			if ok && (h != header{typ: 0x1c, flags: flagRequest, seq: 7} || data[0] != cmdGetInfo) {
				t.Errorf("header %+v, data %x", h, data)
			}
		})
	}
}

func TestAttributesMalformed(t *testing.T) {
	for _, c := range []struct {
		name string
		in   string
		n    int
		bad  bool
	}{
		{"none", "", 0, false},
		{"one", "0500 0100 07000000", 1, false},
		{"last one unpadded", "0500 0100 07", 1, false},
		{"empty one", "0400 0100 0500 0200 01000000", 2, false},
		{"nested flag is masked", "0500 0180 07000000", 1, false},
		{"short header", "0500 01", 0, true},
		{"length 0", "0000 0100", 0, true},
		{"length 3", "0300 0100", 0, true},
		{"length above the rest", "0900 0100 07000000", 0, true},
		{"second one short", "0500 0100 07000000 0500", 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := attrs{b: unhex(t, c.in)}
			n := 0
			for a.next() {
				if n++; n == 1 && a.typ != 1 {
					t.Errorf("type %d", a.typ)
				}
			}
			if n != c.n || (a.err != nil) != c.bad {
				t.Errorf("%d attributes and %v, want %d, malformed %v", n, a.err, c.n, c.bad)
			}
		})
	}
}

func TestAttributeSizes(t *testing.T) {
	for size := range 9 {
		data := make([]byte, size)
		for _, c := range []struct {
			name string
			read func(*attrs)
			want []int
		}{
			{"uint8", func(a *attrs) { a.uint8() }, []int{1}},
			{"uint16", func(a *attrs) { a.uint16() }, []int{2}},
			{"port", func(a *attrs) { a.port() }, []int{2}},
			{"uint32", func(a *attrs) { a.uint32() }, []int{4}},
			{"uint", func(a *attrs) { a.uint() }, []int{4, 8}},
		} {
			a := attrs{data: data}
			c.read(&a)
			fits := false
			for _, w := range c.want {
				fits = fits || w == size
			}
			if fits != (a.err == nil) || a.err != nil && !errors.Is(a.err, errShort) {
				t.Errorf("%s of %d bytes: %v", c.name, size, a.err)
			}
		}
	}
}

// TestAttributesAgainstNetlink holds the coder to the library's.
func TestAttributesAgainstNetlink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "raw")
		name := rapid.StringMatching(`[a-z]{0,15}`).Draw(t, "name")
		u8, u16, u32 := rapid.Uint8().Draw(t, "8"), rapid.Uint16().Draw(t, "16"), rapid.Uint32().Draw(t, "32")

		e := netlink.NewAttributeEncoder()
		e.Nested(9, func(e *netlink.AttributeEncoder) error {
			e.Bytes(1, raw)
			e.String(2, name)
			e.Uint8(3, u8)
			e.Uint16(4, u16)
			e.Uint32(5, u32)
			return nil
		})
		want, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got := beginNested(nil, 9|netlink.Nested)
		got = appendBytes(got, 1, raw)
		got = appendString(got, 2, name)
		got = appendUint8(got, 3, u8)
		got = appendUint16(got, 4, u16)
		got = appendUint32(got, 5, u32)
		endNested(got, 0)
		if !bytes.Equal(got, want) {
			t.Fatalf("got  %x\nwant %x", got, want)
		}

		// Cut anywhere, both decoders see the same attributes or both refuse.
		// (The library takes attributes of length 0 and longer than the rest at
		// the end, which the kernel never makes; these are not compared.)
		inner, err := nested(want, 9)
		if err != nil {
			t.Fatal(err)
		}
		a := attrs{b: inner}
		d, err := netlink.NewAttributeDecoder(inner)
		if err != nil {
			t.Fatal(err)
		}
		for d.Next() {
			if !a.next() || a.typ != d.Type() || !bytes.Equal(a.data, d.Bytes()) {
				t.Fatalf("type %d: %x, want type %d: %x", a.typ, a.data, d.Type(), d.Bytes())
			}
		}
		if a.next() || a.err != nil {
			t.Fatal("an attribute too many")
		}
		if got := rapid.IntRange(0, len(inner)).Draw(t, "cut"); got < len(inner) {
			a := attrs{b: inner[:got]}
			for a.next() {
			}
		}
	})
}

func TestString(t *testing.T) {
	for in, want := range map[string]string{"": "", "\x00": "", "rr\x00": "rr", "rr": "rr", "a\x00b\x00": "a"} {
		a := attrs{data: []byte(in)}
		if diff := cmp.Diff(want, a.string()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	}
}
