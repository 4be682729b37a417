package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
)

// TestPoolIsNeverEmptiedByAnOperator: whatever reloads and commands come, a pool that
// could serve still can right after each, and whenever a configured server is good and
// not drained, somebody serves. Commands are never forced, so that all of it is the
// guards' doing.
func TestPoolIsNeverEmptiedByAnOperator(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { walk(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func walk(t *testing.T, rnd *rand.Rand) {
	const servers = 6
	r := newRig(t)
	good := map[int]bool{}
	for n := 1; n <= servers; n++ {
		good[n] = true
		r.set(n, checker.OK, "ok")
	}
	configured := []int{1, 2}
	r.start(holding(conf(configured...), time.Minute))
	r.pass(11 * time.Second)
	serving := func() bool {
		for d := range strings.FieldsSeq(r.content()) {
			var n, w int
			if _, err := fmt.Sscanf(d, "%d:%d", &n, &w); err != nil {
				t.Fatal(err)
			}
			if w > 0 && good[n] {
				return true
			}
		}
		return false
	}
	for step := range 60 {
		before, did := serving(), ""
		switch n := 1 + rnd.IntN(servers); rnd.IntN(5) {
		case 0:
			configured = rnd.Perm(servers)[:1+rnd.IntN(3)]
			for i := range configured {
				configured[i]++
			}
			r.reload(holding(conf(configured...), time.Minute))
			did = fmt.Sprint("reload to ", configured)
		case 1:
			_ = r.operate(order(n, VerbDrain)) // it may be refused or unknown
			did = fmt.Sprint("drain ", n)
		case 2:
			_ = r.operate(order(n, VerbUndrain))
			did = fmt.Sprint("undrain ", n)
		case 3:
			good[n] = !good[n]
			r.set(n, map[bool]checker.Result{true: checker.OK, false: checker.Failed}[good[n]], "set")
			before, did = false, fmt.Sprint("server ", n, " good ", good[n])
		case 4:
			did = "time"
			r.pass(time.Duration(rnd.IntN(90)) * time.Second)
		}
		synctest.Wait()
		if before && !serving() {
			t.Fatalf("step %d, %s: the pool can serve no longer: %s", step, did, r.content())
		}
		r.pass(11 * time.Second) // every check has run
		drained := map[string]bool{}
		for _, o := range r.e.Orders() {
			drained[o.RS.String()] = true
		}
		for _, n := range configured {
			if good[n] && !drained[target(n)] && !serving() {
				t.Fatalf("step %d, %s: server %d is good, and the table holds %q", step, did, n, r.content())
			}
		}
	}
	r.stop(nil)
}
