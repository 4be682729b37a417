package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// full makes a value with something in every field, so that each can be changed.
func full(v reflect.Value, n *int) {
	*n++
	switch v.Type() {
	case reflect.TypeFor[diag.Pos]():
		v.Set(reflect.ValueOf(diag.At("f.conf", *n, 1)))
		return
	case reflect.TypeFor[netip.Addr]():
		v.Set(reflect.ValueOf(netip.AddrFrom4([4]byte{10, 0, byte(*n >> 8), byte(*n)})))
		return
	case reflect.TypeFor[netip.AddrPort]():
		v.Set(reflect.ValueOf(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(*n >> 8), byte(*n)}), 80)))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		full(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		full(v.Index(0), n)
		full(v.Index(1), n)
	case reflect.Array:
		for i := range v.Len() {
			full(v.Index(i), n)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			full(field, n)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("s", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(uint64(*n % 200))
	default:
		panic(v.Type())
	}
}

// changes calls do for every way to change one thing in v, which is as it was again
// afterwards.
func changes(v reflect.Value, path string, do func(path string)) {
	swap := func(to reflect.Value, what string) {
		was := reflect.New(v.Type()).Elem()
		was.Set(v)
		v.Set(to)
		do(path + what)
		v.Set(was)
	}
	switch v.Type() {
	case reflect.TypeFor[netip.Addr]():
		swap(reflect.ValueOf(netip.MustParseAddr("192.0.2.250")), "")
		return
	case reflect.TypeFor[netip.AddrPort]():
		swap(reflect.ValueOf(netip.MustParseAddrPort("192.0.2.250:80")), "")
		return
	case reflect.TypeFor[diag.Pos]():
		swap(reflect.Zero(v.Type()), " at another place")
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		swap(reflect.Zero(v.Type()), " absent")
		changes(v.Elem(), path, do)
	case reflect.Slice:
		swap(v.Slice(0, 1), " shorter")
		for i := range v.Len() {
			changes(v.Index(i), fmt.Sprint(path, "[", i, "]"), do)
		}
	case reflect.Array:
		changes(v.Index(v.Len()-1), path, do)
	case reflect.Struct:
		for i := range v.NumField() {
			changes(v.Field(i), path+"."+v.Type().Field(i).Name, do)
		}
	case reflect.String:
		swap(reflect.ValueOf(v.String()+"x").Convert(v.Type()), "")
	case reflect.Bool:
		swap(reflect.ValueOf(!v.Bool()), "")
	case reflect.Int, reflect.Int64:
		swap(reflect.ValueOf(v.Int()+1).Convert(v.Type()), "")
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		swap(reflect.ValueOf(v.Uint()+1).Convert(v.Type()), "")
	}
}

func made[T any]() *T {
	t, n := new(T), 0
	full(reflect.ValueOf(t).Elem(), &n)
	return t
}

// TestSameSeesEveryField: a reload leaves alone what is the same, so that a field that
// is not compared is a change that has no effect.
func TestSameSeesEveryField(t *testing.T) {
	t.Parallel()
	sees(t, SameVirtualServer)
	sees(t, SameTrackFile)
	sees(t, SameSSL)
}

func sees[T any](t *testing.T, same func(a, b *T) bool) {
	a, b := made[T](), made[T]()
	if !same(a, b) {
		t.Fatalf("%T differs from its equal", a)
	}
	count := 0
	changes(reflect.ValueOf(b).Elem(), "", func(path string) {
		count++
		if place := strings.HasSuffix(path, "at another place"); same(a, b) != place {
			t.Errorf("%T with another %s: same %v", a, path, !place)
		}
	})
	if count < 4 {
		t.Fatalf("%d changes of %T tried", count, a)
	}
}
