package backend

import (
	"bytes"

	"github.com/sluice-lb/sluice/test/diff/scenario"
)

// replier returns what a datagram is answered with; nothing stays silent.
func replier(b *scenario.Behaviour) func([]byte) [][]byte {
	switch b.Kind {
	case "udp echo":
		return func(request []byte) [][]byte { return [][]byte{bytes.Clone(request)} }
	case "udp reply":
		return func([]byte) [][]byte { return [][]byte{b.Bytes} }
	case "dns", "dns-wrongid", "dns-short":
		return func(request []byte) [][]byte { return dnsAnswer(b, request) }
	}
	return func([]byte) [][]byte { return nil }
}

// dnsHeader is the length of the header of a DNS message (RFC 1035, 4.1.1).
const dnsHeader = 12

// dnsAnswer makes an answer without records of a query.
func dnsAnswer(b *scenario.Behaviour, query []byte) [][]byte {
	if len(query) < dnsHeader {
		return nil
	}
	reply := bytes.Clone(query)
	reply[2] |= 0x80 // QR: an answer
	reply[3] = 0x80 | byte(b.Status)
	switch b.Kind {
	case "dns-wrongid":
		reply[1]++
	case "dns-short":
		reply = reply[:dnsHeader/2]
	}
	return [][]byte{reply}
}
