package docs

import (
	"regexp"
	"strings"
	"testing"
)

// varies is what may differ between two runs, each with what stands in for it.
var varies = []struct {
	what *regexp.Regexp
	as   string
}{
	// Times: 2026-11-30T14:27:15.242Z, 2026-11-30 14:27:15.242, 14:27:15.
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?\b`), "TIME"},
	// Durations: 3s, 1h2m, 2.05ms, 2.0 s.
	{regexp.MustCompile(`\b(\d+(\.\d+)? ?(ns|µs|ms|s|m|h|d)\b ?)+`), "DURATION "},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(h|m|d))+\d+(\.\d+)?s\b`), "DURATION"},
	// Versions: of the programs, and the kernel's release.
	{regexp.MustCompile(`\b(sluiced?|version[= ]|version": ") ?v?([0-9a-f]{7,40}|\d+\.\d+\S*|\(?devel\)?)(-dirty)?`), "$1 VERSION"},
	{regexp.MustCompile(`Linux \d\S*`), "Linux RELEASE"},
	// Process numbers.
	{regexp.MustCompile(`\bpid[= ]\d+`), "pid=PID"},
	// How often something was done up to now.
	{regexp.MustCompile(`\d+ operations? since the start`), "N operations since the start"},
	{regexp.MustCompile(`\d+ in a row failed|the last run failed`), "N in a row failed"},
	{regexp.MustCompile(`\d+ times`), "N times"},
	// How a column is aligned, and where lines are broken.
	{regexp.MustCompile(`\s+`), " "},
}

// shape is a line without what varies.
func shape(line string) string {
	for _, v := range varies {
		line = v.what.ReplaceAllString(line, v.as)
	}
	return strings.TrimSpace(line)
}

// same says whether what was printed is what the page says, in which a line of "..."
// stands for any number of lines. Where lines are broken counts for nothing: paragraphs
// are filled, and a longer duration may break them elsewhere.
func same(want, got []string) bool {
	var parts []string
	part := []string{}
	for _, line := range want {
		if strings.TrimSpace(line) == "..." {
			parts, part = append(parts, shape(strings.Join(part, "\n"))), nil
			continue
		}
		part = append(part, line)
	}
	last := shape(strings.Join(part, "\n"))
	rest := shape(strings.Join(got, "\n"))
	for i, p := range parts {
		at := strings.Index(rest, p)
		if at < 0 || i == 0 && at > 0 {
			return false
		}
		rest = rest[at+len(p):]
	}
	if len(parts) == 0 {
		return rest == last
	}
	return strings.HasSuffix(rest, last)
}

func TestSame(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		want, got string
		same      bool
	}{
		{"up 2s, quorum for 1m3s", "up 14s, quorum for 2h", true},
		{"It is out for 2.0 s since", "It is out for 1.1 min since", false},
		{"refused after 1.21ms", "refused after 900µs", true},
		{"web1  NAT  up    1", "web1 NAT up 1", true},
		{"web1  NAT  up    1", "web1 NAT up 2", false},
		{"sluiced 204e6ca, up 2s", "sluiced 1.0.0-3-gabc1234, up 2s", false},
		{"sluiced 204e6ca, up 2s", "sluiced 1234567, up 2s", true},
		{"a\n...\nd", "a\nb\nc\nd", true},
		{"a\n...\nd", "a\nd", true},
		{"a\n...\nd", "a\nb", false},
		{"14:27:15.000 WARN x", "03:00:00.123 WARN x", true},
		{"a\nb", "a", false},
		{"...\nb", "a\nb", true},
		{"a\n...", "a\nb", true},
		{"b\n...", "a\nb", false},
		{"out for 2.0 s since\nit failed", "out for 12.0 s\nsince it failed", true},
	} {
		if got := same(strings.Split(tc.want, "\n"), strings.Split(tc.got, "\n")); got != tc.same {
			t.Errorf("same(%q, %q) = %t", tc.want, tc.got, got)
		}
	}
}
