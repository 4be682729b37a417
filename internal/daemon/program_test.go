package daemon

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestTheProgramIsForgotten, and goes on.
func TestTheProgramIsForgotten(t *testing.T) {
	mapped := func() int {
		b, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(b)
		if m == nil {
			t.Skip("this kernel does not tell RssFile (Linux 4.5)")
		}
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := mapped()
	if err := forgetProgram(); err != nil {
		t.Fatal(err)
	}
	if after := mapped(); after >= before {
		t.Errorf("%d kB of the program are mapped, %d before", after, before)
	}
}
