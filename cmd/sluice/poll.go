package main

import (
	"context"
	"time"
)

const (
	// askEvery is the pause between looks, tellEvery between lines of progress where
	// there is no terminal.
	askEvery  = time.Second
	tellEvery = 5 * time.Second
	// silence is how long a daemon may not answer before the wait is given up: one
	// that is being restarted is back sooner.
	silence = 30 * time.Second
)

// poll is a wait for something that a daemon has to be asked about.
type poll struct {
	// limit is how long it may last, 0 for ever.
	limit time.Duration
	// ask looks, and says what is to be done with what it saw.
	ask func(context.Context) error
	// seen is told of an answer: how long the wait has lasted, and whether its limit is
	// over, or a line of progress is due. It returns whether the wait is over.
	seen func(took time.Duration, late, tell bool) (status int, over bool)
	// silent is told that nobody answers, and ended that the caller's context is over;
	// both return the status.
	silent func(error) int
	ended  func() int
}

func (p *poll) run(ctx context.Context) int {
	begun := time.Now()
	answered, told := begun, time.Time{}
	for {
		err := p.ask(ctx)
		now := time.Now()
		if err == nil {
			answered = now
			took, tell := now.Sub(begun), now.Sub(told) >= tellEvery
			if tell {
				told = now
			}
			if status, over := p.seen(took, p.limit > 0 && took >= p.limit, tell); over {
				return status
			}
		} else if now.Sub(answered) >= silence {
			return p.silent(err)
		}
		pause := askEvery
		if p.limit > 0 {
			pause = min(pause, max(begun.Add(p.limit).Sub(now), time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return p.ended()
		case <-time.After(pause):
		}
	}
}
