package daemon

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
)

// TestStatusLineFollows: systemd hears of a director that became passive, once a second
// at most, and of nothing that does not change the line.
func TestStatusLineFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := event.NewLog(100)
		log := slog.New(events.Handler(slog.DiscardHandler))
		var told []string
		s, asked := &engine.Snapshot{Kernel: engine.Kernel{OK: true}, Reload: engine.Reload{OK: true}}, 0
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- followStatus(ctx, events, func() string { asked++; return summary(s) }, func(text string) { told = append(told, text) })
		}()
		happens := func(k event.Kind) { log.Info("Something", event.Key, k) }
		settle := func() { time.Sleep(2 * statusPause); synctest.Wait() } // of the bubble
		happens(event.ServerUp)
		settle()
		if asked != 0 || len(told) != 0 {
			t.Errorf("told %q for what is not in the line", told)
		}
		s.Passive = &engine.Passive{On: true}
		for range 20 {
			happens(event.PassiveOn)
		}
		settle()
		s.Passive = nil
		happens(event.PassiveOff)
		settle()
		happens(event.QuorumGained)
		settle()
		want := []string{"passive, services are withheld; 0 of 0 virtual servers have quorum", "0 of 0 virtual servers have quorum"}
		if !slices.Equal(told, want) || asked != 3 {
			t.Errorf("asked %d times, told\n%s\nwant\n%s", asked, strings.Join(told, "\n"), strings.Join(want, "\n"))
		}
		happens(event.PassiveOn) // the pause ends with the context
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
