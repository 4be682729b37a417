package diag

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSuggest(t *testing.T) {
	words := []string{"weight", "delay_loop", "real_server", "virtual_server", "TCP_CHECK", "lb_algo", "lb_kind", "ops", "alpha", "omega", "retry", "sh-port"}
	for word, want := range map[string]string{
		"weigth":        "weight", // transposition
		"weght":         "weight",
		"real_sever":    "real_server",
		"delay_lop":     "delay_loop",
		"tcp_check":     "TCP_CHECK", // case alone
		"sh_port":       "sh-port",   // sign alone
		"SH_PROT":       "sh-port",
		"retyr":         "retry",
		"lb_algoo":      "lb_algo",
		"op":            "", // too short to guess
		"opt":           "ops",
		"omgea":         "omega",
		"gamma":         "", // two changes in five letters
		"lb_foo":        "",
		"nat_mask":      "",
		"":              "",
		"weight":        "",
		"virtaul_sevrr": "virtual_server",
	} {
		if got := Suggest(word, words); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
	if got := Suggest(strings.Repeat("a", 1<<20), words); got != "" {
		t.Errorf("a long word: got %q", got)
	}
	// Lower case of this letter takes more bytes than the letter.
	odd := strings.Repeat("Ⱥ", 30)
	if got := Suggest(odd, []string{odd + "x"}); got != "" {
		t.Errorf("growing letters: got %q", got)
	}
	if got := Suggest("abcdef", []string{"abcdxy", "abcdez", "abcdey"}); got != "abcdez" {
		t.Errorf("the nearest first one: got %q", got)
	}
}

// slow is the distance by its definition.
func slow(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	cost := 1
	if a[len(a)-1] == b[len(b)-1] {
		cost = 0
	}
	d := min(slow(a[:len(a)-1], b)+1, slow(a, b[:len(b)-1])+1, slow(a[:len(a)-1], b[:len(b)-1])+cost)
	if len(a) > 1 && len(b) > 1 && a[len(a)-1] == b[len(b)-2] && a[len(a)-2] == b[len(b)-1] {
		d = min(d, slow(a[:len(a)-2], b[:len(b)-2])+1)
	}
	return d
}

func TestDistanceProperty(t *testing.T) {
	short := rapid.StringMatching(`[abc]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := short.Draw(t, "a"), short.Draw(t, "b")
		bound := rapid.IntRange(0, 7).Draw(t, "bound")
		want := min(slow(a, b), bound+1)
		if got := distance(a, b, bound); got != want {
			t.Fatalf("distance(%q, %q, %d) = %d, want %d", a, b, bound, got, want)
		}
	})
}
