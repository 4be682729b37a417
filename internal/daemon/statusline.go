package daemon

import (
	"context"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
)

// statusPause is between two lines of status, however much happens.
const statusPause = time.Second

// statusKinds are the events after which the line of status may be another.
var statusKinds = map[event.Kind]bool{
	event.PassiveOn: true, event.PassiveOff: true,
	event.QuorumGained: true, event.QuorumLost: true,
	event.KernelUnreachable: true, event.KernelRefused: true, event.KernelBack: true,
}

// followStatus tells the line of status whenever it is another, until the context ends.
func followStatus(ctx context.Context, log *event.Log, line func() string, tell func(string)) error {
	known, told := log.Last(), ""
	for {
		if err := log.Wait(ctx, known); err != nil {
			return nil // it is over
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(statusPause):
		}
		happened, missed := log.Since(known, 0)
		concerned := missed > 0
		for i := range happened {
			known = happened[i].Seq
			concerned = concerned || statusKinds[happened[i].Kind]
		}
		if !concerned {
			continue
		}
		if now := line(); now != told {
			told = now
			tell(now)
		}
	}
}
