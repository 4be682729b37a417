package config_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
)

// everything is a checker with something in each of its fields, which no
// configuration could give.
func everything() *config.Checker {
	addr := netip.MustParseAddr("fe80::1%eth0")
	return &config.Checker{
		Kind: config.HTTPGet, Pos: diag.At("a", 1, 2),
		Conn: config.Connection{Target: netip.AddrPortFrom(addr, 80), BindAddr: addr, BindPort: 1, BindIf: "lo", FWMark: 2, Timeout: time.Second,
			Via: &config.Via{Server: addr, Forward: config.Forwarding{Method: config.TUN, Tunnel: config.GUE, Checksum: config.Csum, Port: 3}, Mark: 4}},
		Schedule: config.Schedule{DelayLoop: 1, DelayBeforeRetry: 2, Warmup: 3, Retry: 4, Rise: 5},
		HTTP: &config.HTTP{VirtualHost: "a", SNIName: "b", SNIVirtualHost: "c", TLS: &config.TLS{CA: "/ca", ServerName: "e", ExpiryWarn: 1}, URLs: []config.URL{{
			Path: "/", VirtualHost: "d", Status: []config.StatusRange{{First: 200, Last: 299}},
			Regex: &config.Regex{Pattern: "x", Options: []string{"y"}, MinOffset: 1, MaxOffset: 2},
		}}},
		SMTP: &config.SMTP{Helo: "a"}, DNS: &config.DNS{Type: "A", Name: "b"},
		UDP:  &config.Datagram{Payload: []byte{1}, Reply: []byte{2}, Mask: []byte{3}, Min: 4, Max: 5},
		Misc: &config.Misc{Script: &config.Script{Argv: []string{"/x"}, User: "u", Group: "g"}, Timeout: 1},
		File: &config.TrackFileUse{Name: "f", Weight: 1},
	}
}

// changes lists, by path, every single change of a value.
func changes(t *testing.T, path string, v reflect.Value, visit func(path string, change func())) {
	t.Helper()
	do := func(f func()) { visit(path, f) }
	switch at := v.Addr().Interface().(type) {
	case *diag.Pos:
		do(func() { *at = at.On(int(at.Line)+1, 7) })
		return
	case *netip.Addr:
		for _, other := range []string{"::1", "fe80::1", "fe80::1%eth1", "127.0.0.1"} {
			do(func() { *at = netip.MustParseAddr(other) })
		}
		do(func() { *at = netip.Addr{} })
		return
	case *netip.AddrPort:
		do(func() { *at = netip.AddrPortFrom(at.Addr(), at.Port()+1) })
		do(func() { *at = netip.AddrPortFrom(at.Addr().WithZone(""), at.Port()) })
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		do(func() { v.SetBool(!v.Bool()) })
	case reflect.Int, reflect.Int64, reflect.Int32:
		do(func() { v.SetInt(v.Int() + 1) })
		do(func() { v.SetInt(-v.Int() - 1) })
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		do(func() { v.SetUint(v.Uint() + 1) })
	case reflect.String:
		do(func() { v.SetString(v.String() + "x") })
		do(func() { v.SetString("") })
	case reflect.Pointer:
		to := v.Elem() // before it is gone
		do(func() { v.SetZero() })
		changes(t, path, to, visit)
	case reflect.Slice:
		one := v.Index(0)
		do(func() { v.SetZero() })
		do(func() { v.Set(reflect.Append(v, one)) })
		changes(t, path+"[]", one, visit)
	case reflect.Array:
		changes(t, path+"[]", v.Index(v.Len()-1), visit)
	case reflect.Struct:
		for i := range v.NumField() {
			changes(t, path+"."+v.Type().Field(i).Name, v.Field(i), visit)
		}
	default:
		t.Fatalf("%s: a kind of field that is not known here: %s", path, v.Kind())
	}
}

// when are the fields that say when and how often a question is asked, and what
// its answer weighs.
var when = []string{".Schedule", ".Alpha", ".LogAllFailures", ".HTTP.FastRecovery", ".File.Weight", ".File.Reverse"}

// Whatever field of a checker changes, its place aside, it is another one: no field
// can be forgotten.
func TestCheckersDifferInEveryField(t *testing.T) {
	count := 0
	changes(t, "", reflect.ValueOf(everything()).Elem(), func(string, func()) { count++ })
	if count < 80 {
		t.Fatalf("%d changes only", count)
	}
	for i := range count {
		a, b, at, number := everything(), everything(), "", 0
		changes(t, "", reflect.ValueOf(b).Elem(), func(path string, change func()) {
			if number == i {
				at = path
				change()
			}
			number++
		})
		name := fmt.Sprintf("%s, change %d", at, i)
		same := strings.HasSuffix(at, "Pos")
		asks := same
		for _, w := range when {
			asks = asks || strings.HasPrefix(at, w)
		}
		if got := a.SameAs(b); got != same || b.SameAs(a) != same {
			t.Errorf("%s: SameAs says %t", name, got)
		}
		if got := a.AsksSame(b); got != asks || b.AsksSame(a) != asks {
			t.Errorf("%s: AsksSame says %t", name, got)
		}
		if got := bytes.Equal(a.AppendQuestion(nil), b.AppendQuestion(nil)); got != asks {
			t.Errorf("%s: the questions are equal: %t", name, got)
		}
	}
	if a, b := everything(), everything(); !a.SameAs(b) || !a.AsksSame(a) {
		t.Error("equal checkers differ")
	}
}

func TestComparingCheckersTakesNoMemory(t *testing.T) {
	a, b := everything(), everything()
	buf := make([]byte, 0, 1024)
	known := map[string]int{string(a.AppendQuestion(nil)): 1}
	if n := testing.AllocsPerRun(100, func() {
		if !a.SameAs(b) || known[string(b.AppendQuestion(buf))] != 1 {
			t.Fatal("differ")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
