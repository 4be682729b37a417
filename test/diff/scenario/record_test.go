package scenario

import (
	"strings"
	"testing"
)

func TestCanonicalTable(t *testing.T) {
	t.Parallel()
	const saved = `-A -u 192.0.2.2:53 -s rr -p 300 -M 255.255.255.0
-A -t [2001:db8::1]:80 -s wlc
-a -t [2001:db8::1]:80 -r [2001:db8::9]:80 -g -w 1
-A -f 5 -6 -s rr
-a -f 5 -6 -r [2001:db8::8]:0 -i -w 0 --tun-type ipip
-A -f 5 -s rr
-a -f 5 -r 10.0.0.2:0 -m -w 2
-a -f 5 -r 10.0.0.1:0 -m -w 1
`
	const want = `-A -f 5 -s rr
-a -f 5 -r 10.0.0.1:0 -m -w 1
-a -f 5 -r 10.0.0.2:0 -m -w 2
-A -f 5 -6 -s rr
-a -f 5 -6 -r [2001:db8::8]:0 -i -w 0 --tun-type ipip
-A -t [2001:db8::1]:80 -s wlc
-a -t [2001:db8::1]:80 -r [2001:db8::9]:80 -g -w 1
-A -u 192.0.2.2:53 -s rr -p 300 -M 255.255.255.0
`
	// Any order, also with destinations before other services, is one.
	reversed := strings.Split(strings.TrimSpace(saved), "\n")
	for i, j := 0, len(reversed)-1; i < j; i, j = i+1, j-1 {
		reversed[i], reversed[j] = reversed[j], reversed[i]
	}
	for name, text := range map[string]string{"as printed": saved, "reversed": strings.Join(reversed, "\n"), "canonical already": want} {
		got, err := Canonical("table:x", text)
		if err != nil || got != want {
			t.Errorf("%s: error %v, got\n%swant\n%s", name, err, got, want)
		}
	}
}

func TestCanonicalTableThresholds(t *testing.T) {
	t.Parallel()
	got, err := Canonical("table:x", `-A -t 192.0.2.1:80 -s rr
-a -t 192.0.2.1:80 -r 10.0.0.1:80 -m -w 1
-a -t 192.0.2.1:80 -r 10.0.0.2:80 -m -w 1
-A -f 7 -6 -s rr
-a -f 7 -6 -r [2001:db8::1]:0 -m -w 1
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port            Uthreshold Lthreshold ActiveConn InActConn
  -> RemoteAddress:Port
TCP  192.0.2.1:80 rr
  -> 10.0.0.1:80                  20         10         3          4
  -> 10.0.0.2:80                  0          0          5          6
FWM  7 IPv6 rr
  -> [2001:db8::1]:0              9          0          0          0
`)
	const want = `-A -f 7 -6 -s rr
-a -f 7 -6 -r [2001:db8::1]:0 -m -w 1 -x 9
-A -t 192.0.2.1:80 -s rr
-a -t 192.0.2.1:80 -r 10.0.0.1:80 -m -w 1 -x 20 -y 10
-a -t 192.0.2.1:80 -r 10.0.0.2:80 -m -w 1
`
	if err != nil || got != want {
		t.Errorf("error %v, got\n%swant\n%s", err, got, want)
	}
}

func TestCanonicalTableRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"-A", "-A -t", "-D -t 192.0.2.1:80", "-a -t 192.0.2.1:80 -m", "-a -t 192.0.2.1:80 -r 10.0.0.1:80", "no table"} {
		if got, err := Canonical("table:x", text); err == nil {
			t.Errorf("%q became %q, want an error", text, got)
		}
	}
}

func TestCanonicalEvents(t *testing.T) {
	t.Parallel()
	canonical := func(text string) string {
		got, err := Canonical("events:x", text)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	a := canonical("rs 1 DOWN\nrs 2 DOWN\nfifo f: VS x UP\\0\nrs 1 UP\nquorum\n\n")
	b := canonical("fifo f: VS x UP\\0\nrs 2 DOWN\nquorum\nrs 1 DOWN\nrs 1 UP\n")
	if a != b {
		t.Errorf("the order between subjects counts:\n%s\n%s", a, b)
	}
	if a != canonical(a) {
		t.Errorf("not stable:\n%s\n%s", a, canonical(a))
	}
	if c := canonical("rs 1 UP\nrs 2 DOWN\nfifo f: VS x UP\\0\nrs 1 DOWN\nquorum\n"); a == c {
		t.Errorf("the order within a subject does not count:\n%s", c)
	}
	if c := canonical("rs 1 DOWN\nrs 2 DOWN\nfifo f: VS x UP\\0\nquorum\n"); a == c {
		t.Errorf("a lost event does not count:\n%s", c)
	}
}
