package page

import (
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestReplace(t *testing.T) {
	t.Parallel()
	const doc = "# Top\n<!-- begin one: \"make x\" writes it -->\nold\n<!-- end one -->\nbetween\n<!-- begin other -->\n<!-- end other -->\nrest\n"
	got, err := Replace(doc, "one", "new\n")
	if want := strings.Replace(doc, "old", "new", 1); err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if got, err = Replace(doc, "other", "filled\n"); err != nil || !strings.Contains(got, "other -->\nfilled\n<!-- end other") || !strings.Contains(got, "old") {
		t.Errorf("%q, %v", got, err)
	}
	if part, err := Part(doc, "one"); part != "old\n" || err != nil {
		t.Errorf("%q, %v", part, err)
	}
	for _, name := range []string{"on", "third"} {
		if _, err := Replace(doc, name, ""); err == nil {
			t.Errorf("a part %s is there", name)
		}
	}
	if _, err := Part(strings.Replace(doc, "end one", "end two", 1), "one"); err == nil {
		t.Error("a part without an end is there")
	}
}
