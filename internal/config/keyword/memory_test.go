package keyword

import (
	"reflect"
	"strings"
	"testing"
	"unsafe"
)

// A text that is cut out of the file keeps all of that in memory for as long as
// the configuration lives. There is none, whatever word the file has.
func TestNothingOfTheFileIsKept(t *testing.T) {
	x := newIndex()
	texts := 0
	for i := range x.rows {
		k := &x.rows[i]
		if k.status == Skipped || k.arg.kind == argAny {
			continue
		}
		args, needs := exampleOf(k)
		for _, a := range args {
			p := place(k.block, k.name, needs, k.name+" "+a)
			cfg, _ := p.load(x)
			if cfg == nil {
				continue
			}
			texts += inText(t, k.block+"/"+k.name, p.text, reflect.ValueOf(cfg))
		}
	}
	if texts < 1000 {
		t.Errorf("%d texts seen only", texts)
	}
}

// inText reports what points into a text, and counts what it looked at.
func inText(t *testing.T, path, text string, v reflect.Value) (seen int) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		s := v.String()
		if s == "" {
			return 0
		}
		at, from := uintptr(unsafe.Pointer(unsafe.StringData(s))), uintptr(unsafe.Pointer(unsafe.StringData(text)))
		if at >= from && at < from+uintptr(len(text)) {
			t.Errorf("%s: %q is a piece of the file", path, s)
		}
		return 1
	case reflect.Pointer:
		if !v.IsNil() {
			return inText(t, path, text, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			seen += inText(t, path, text, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				seen += inText(t, path+"."+f.Name, text, v.Field(i))
			}
		}
	}
	return seen
}

func TestSharedPartsAreOne(t *testing.T) {
	server := func(n, url string) string {
		return "real_server 10.0.0." + n + " 80 { alpha\n virtualhost h\n HTTP_GET { url { path /a\n" + url + " } }\n SMTP_CHECK { } }\n"
	}
	p := placed{text: "virtual_server 192.0.2.1 80 { protocol TCP\n lvs_sched rr\n lvs_method NAT\n" +
		server("1", "") + server("2", "") + server("3", "status_code 204") + server("4", "regex x") + server("5", "regex x") + "}"}
	cfg, list := p.load(newIndex())
	if len(list) > 0 {
		t.Fatal(list)
	}
	rs := cfg.VirtualServers[0].RealServers
	for i := 1; i < 5; i++ {
		a, b := rs[0], rs[i]
		if a.Handed != b.Handed || a.Checkers[1].SMTP != b.Checkers[1].SMTP {
			t.Errorf("%s has a part for itself", b.Key)
		}
		if one := a.Checkers[0].HTTP == b.Checkers[0].HTTP; one != (i == 1) {
			t.Errorf("%s shares its HTTP: %t", b.Key, one)
		}
	}
	if a, b := rs[3].Checkers[0].HTTP, rs[4].Checkers[0].HTTP; a == b || a.URLs[0].Regex.Pos.Line == b.URLs[0].Regex.Pos.Line {
		t.Error("a regex does not know its own line")
	}
	if !strings.Contains(rs[2].Checkers[0].Pos.String(), ":16:") {
		t.Errorf("a check does not know its own line: %s", rs[2].Checkers[0].Pos)
	}
}
