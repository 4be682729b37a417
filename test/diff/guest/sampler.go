package guest

import (
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/diff/scenario"
)

// sampler looks at the table every tenth of a second and notes what is new.
type sampler struct {
	f    *os.File
	done chan struct{}
	wg   sync.WaitGroup

	seen map[string]int
	news []seenAt
	err  error
}

type seenAt struct {
	at     time.Time
	dest   string
	weight int
}

// newSampler begins. The file is opened in the namespace and shows it from then on
// to whoever reads it.
func newSampler(ns *testkit.NS) (*sampler, error) {
	s := &sampler{done: make(chan struct{}), seen: map[string]int{}}
	err := ns.Do(func() (err error) { s.f, err = os.Open("/proc/thread-self/net/ip_vs"); return err })
	if err != nil {
		return nil, err
	}
	s.wg.Go(s.loop)
	return s, nil
}

func (s *sampler) loop() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.err = s.look(); s.err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-s.done:
			s.err = s.look()
			return
		}
	}
}

func (s *sampler) look() error {
	if _, err := s.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(s.f)
	if err != nil {
		return err
	}
	now := time.Now()
	table, err := testkit.ParseProc(string(text))
	if err != nil {
		return err
	}
	present := map[string]int{}
	for _, service := range table {
		for _, d := range service.Dests {
			present[fmt.Sprintf("%s -> %s", service.Key, d.Addr)] = d.Weight
		}
	}
	for dest, weight := range present {
		if was, ok := s.seen[dest]; !ok || was != weight {
			s.news = append(s.news, seenAt{now, dest, weight})
		}
	}
	for dest := range s.seen {
		if _, ok := present[dest]; !ok {
			s.news = append(s.news, seenAt{now, dest, scenario.Absent})
		}
	}
	s.seen = maps.Clone(present)
	return nil
}

// stop takes a last look and returns the changes, in seconds since the moment.
func (s *sampler) stop(since time.Time) ([]scenario.Change, error) {
	close(s.done)
	s.wg.Wait()
	s.f.Close()
	var changes []scenario.Change
	for _, n := range s.news {
		changes = append(changes, scenario.Change{At: n.at.Sub(since).Seconds(), Dest: n.dest, Weight: n.weight})
	}
	return changes, s.err
}
