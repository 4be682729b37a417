package render

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/engine"
)

// TestLabelsStandBehindNames: in the table, in the list of orders, and for the filter.
func TestLabelsStandBehindNames(t *testing.T) {
	s := healthy()
	s.VirtualServers[0].Label, s.VirtualServers[0].RealServers[0].Label = "web shop", "blue\x1b"
	var b bytes.Buffer
	if r, err := Status(&b, s, Options{Filter: "BLUE"}); err != nil || r.Shown != 1 {
		t.Errorf("the filter shows %d, %v", r.Shown, err)
	}
	for _, want := range []string{s.VirtualServers[0].Name + " (web shop) ", s.VirtualServers[0].RealServers[0].Address + " (blue\ufffd) "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, &b)
		}
	}
	b.Reset()
	o := engine.Override{VS: "FWM 5", VSLabel: "mail", Server: "10.0.0.1:80", Label: "blue", Kind: engine.VerbDrain}
	if err := Overrides(&b, []engine.Override{o}, now); err != nil || !strings.Contains(b.String(), "FWM 5 (mail)    10.0.0.1:80 (blue)  drain") {
		t.Errorf("%v:\n%s", err, &b)
	}
}
