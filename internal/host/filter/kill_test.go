package filter

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
)

// TestMain's process is also the one that is killed.
const killEnv = "SLUICE_FILTER_KILL"

// TestKernelKilledInATransaction: a process that is killed while it writes leaves
// something that the next makes right, and says nothing of it: nobody else was at work.
func TestKernelKilledInATransaction(t *testing.T) {
	guard, marking := many(4_000)
	switch os.Getenv(killEnv) {
	case "steps":
		// As a cut transaction that gets through some of its parts.
		var f Filter
		f.k.most = 1 << 15
		for _, steps := range [][]step{plan(nil, guardOf(guard)), plan(nil, markingOf(marking)[0])} {
			if _, err := f.k.commit(steps[:len(steps)/2]); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "whole":
		var f Filter
		for {
			fmt.Println("writing")
			_, err := f.Guard(guard)
			_, err2 := f.Marks(marking)
			_, err3 := f.Guard(nil)
			_, err4 := f.Marks(nil)
			if err != nil || err2 != nil || err3 != nil || err4 != nil {
				fmt.Println("failed:", err, err2, err3, err4)
				os.Exit(1)
			}
		}
	}
	r := newRig(t)
	for i := range 4 {
		mode := []string{"steps", "whole"}[i%2]
		p := r.ns.Start(t, []string{killEnv + "=" + mode}, os.Args[0], "-test.run=^TestKernelKilledInATransaction$")
		if mode == "whole" {
			for range i/2 + 1 {
				p.WaitLine(t, time.Minute, "^writing$")
			}
			p.Kill()
		}
		if status := p.Wait(t, time.Minute); status != 128+int(syscall.SIGKILL) {
			t.Fatalf("%s: status %d", mode, status)
		}
		t.Logf("%s: a killed process leaves %q", mode, r.nft("list tables"))
		next := r.open()
		if n := r.guard(next, guard) + r.marks(next, marking); n != 0 {
			t.Errorf("%s: the next process says that somebody else changed %d things", mode, n)
		}
		if n, m := r.count(nftables.TableFamilyINet, GuardTable, "service4"), r.count(nftables.TableFamilyIPv4, "keepalived_ipvs", "tcp_map"); n != 3000 || m != 3000 {
			t.Errorf("%s: the guard has %d services and the map %d addresses of IPv4, want 3000 each", mode, n, m)
		}
		another := r.open()
		if i < 2 {
			r.guard(another, nil)
			r.marks(another, nil)
			if out := r.nft("list tables"); out != "" {
				t.Errorf("%s: %q is left", mode, out)
			}
		}
	}
}
