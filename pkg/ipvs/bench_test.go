package ipvs

import "testing"

// BenchmarkBatchEncode writes one send's worth of destinations.
func BenchmarkBatchEncode(b *testing.B) {
	ops := destOps(batchSize)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = buf[:0]
		for i, op := range ops {
			var err error
			if buf, err = appendOp(buf, 0x1c, uint32(i), op); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ops)), "ns/dest")
}

// BenchmarkDumpDecode reads a list of 10,000 destinations in one piece.
func BenchmarkDumpDecode(b *testing.B) {
	const n, piece = 10000, 80
	var datagrams []any
	s := &scripted{answer: func(req []byte) []any {
		hs, _ := requests(req)
		if datagrams == nil {
			ports := make([]uint16, 0, piece)
			for i := range uint16(n) {
				if ports = append(ports, i+1); len(ports) == piece {
					datagrams = append(datagrams, entries(0, 0, ports...))
					ports = ports[:0]
				}
			}
		}
		for _, d := range datagrams {
			for rest := d.([]byte); len(rest) > 0; {
				h := rest
				_, _, rest, _ = nextMessage(rest)
				putSeq(h, hs[0].seq)
			}
		}
		return append(datagrams[:len(datagrams):len(datagrams)], done(hs[0].seq, 0))
	}}
	c := newConn(s, DefaultTimeout)
	got := make([]DestinationInfo, 0, n)
	b.ReportAllocs()
	for b.Loop() {
		got = got[:0]
		_, err := c.dump(b.Context(), cmdGetDest, nil, func(data []byte) error {
			d, err := decodeDestination(data, INET)
			got = append(got, d)
			return err
		})
		if err != nil || len(got) != n {
			b.Fatal(len(got), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/dest")
}
