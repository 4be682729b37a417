package vip

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// restlessEnv makes this test binary a process that never has done with its addresses.
const restlessEnv = "SLUICE_TEST_RESTLESS"

// killedAddresses are enough that one send does not hold them, and that a kill meets each
// of the steps; with more an emulated machine is busy for minutes.
const killedAddresses = 2_000

// restless puts thousands of addresses on devices, moves them, keeps them local and takes
// them away, until it is killed.
func restless() {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	v, err := Open()
	fail(err)
	list := many(killedAddresses)
	fmt.Println("begins")
	for {
		for _, want := range []map[netip.Addr]edge.Place{
			on(device, list...), local(on(device, list[killedAddresses/5:]...), list[:killedAddresses/5]...), on("sluice1", list...), nil,
		} {
			_, missing, err := v.Sync(want)
			fail(err)
			fail(first(missing))
		}
	}
}

// TestKernelVIPKilled: whatever a process was doing when it was killed, the next one has
// all as it should be, and then nothing.
func TestKernelVIPKilled(t *testing.T) {
	testkit.Kernel(t)
	ns := testkit.NewNS(t, "killed")
	ns.IP(t, "link add name other type dummy", "address add 203.0.113.7/32 dev other", "address add 2001:db8:7::7/128 dev other", "route add local 203.0.113.8 dev lo table local")
	list := many(killedAddresses)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), restlessEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := ns.Do(cmd.Start); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != "begins" {
			t.Fatalf("the process says %q", lines.Text())
		}
		after := time.Duration(random.Int64N(int64(3 * time.Second)))
		<-time.After(after)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			t.Errorf("the process says %q", lines.Text())
		}
		_ = cmd.Wait()
		t.Logf("round %d: killed after %v with %d addresses on %q and %d routes", round, after, len(onDevice(t, ns, device))+len(onDevice(t, ns, "sluice1")), devices(t, ns), len(routesOf(t, ns)))

		v := openIn(t, ns)
		announced, kept := list[:random.IntN(60)], list[60:60+random.IntN(60)]
		synced(t, v, local(on(device, announced...), kept...))
		holds(t, ns, announced, kept)
		if got := onDevice(t, ns, "sluice1"); got != nil {
			t.Errorf("left on another device: %v", got)
		}
		if round%2 == 1 { // else the next one finds them
			synced(t, v, nil)
			holds(t, ns, nil, nil)
			if got := devices(t, ns); got != "other down" {
				t.Errorf("devices left: %q", got)
			}
		}
		v.Close()
	}
	if got := onDevice(t, ns, "other"); len(got) != 2 {
		t.Errorf("somebody else's addresses: %v", got)
	}
	if out := ns.Run(t, "ip", "route", "show", "table", "local", "203.0.113.8"); out == "" {
		t.Error("somebody else's route is gone")
	}
}
