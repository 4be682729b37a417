package daemon

import (
	"runtime"
	"testing"

	"github.com/sluice-lb/sluice/internal/control"
)

// checker_threads is for the start, and a reload that changes it says so. The checks
// run on each of them.
func TestCheckerThreadsAreReadAtTheStart(t *testing.T) {
	one, _ := backend(t)
	two, _ := backend(t)
	text := confText(one, two)
	p := launch(t, "global_defs {\n #sluice checker_threads 2\n}\n"+text, nil)
	p.out.await(t, 0, "Ready")
	p.out.await(t, 0, "Check passed.*127.0.0.1")
	for text, want := range map[string]bool{
		"global_defs {\n #sluice checker_threads 2\n #sluice checker_close reset\n}\n" + text: false,
		text: true,
	} {
		at := p.mark()
		p.write(text)
		if r, err := control.NewClient(p.socket).Reload(t.Context()); err != nil || !r.OK {
			t.Fatalf("%+v, %v", r, err)
		}
		if want {
			p.out.await(t, at, "WARN checker_threads is read at the start, restart to change it.*running=2 configured=1")
		}
	}
	if status := p.stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

func TestChecksHaveSoManyThreads(t *testing.T) {
	one, four := checks(1).Stats().Limit, checks(4).Stats().Limit
	if one < 32 || four < one-4 {
		t.Errorf("limits %d and %d", one, four)
	}
}

func TestThreadsHaveProcessorsOfTheirOwn(t *testing.T) {
	was := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(was)
	t.Setenv("GOMAXPROCS", "1")
	processors(3)
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors although the operator says one", n)
	}
	t.Setenv("GOMAXPROCS", "")
	processors(3)
	if n := runtime.GOMAXPROCS(0); n != 4 {
		t.Errorf("%d processors for three threads", n)
	}
}
