package engine

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// statusTimeout bounds all reading of the kernel for one answer: who asks is told what
// is known, and that the kernel does not answer.
const statusTimeout = 5 * time.Second

// lazyReader keeps one connection for Status and its like.
type lazyReader struct {
	mu gate
	r  Reader
}

// gate is a lock that need not be waited for longer than a context lasts.
type gate struct {
	once sync.Once
	free chan struct{}
}

func (g *gate) init() { g.once.Do(func() { g.free = make(chan struct{}, 1) }) }

func (g *gate) lock(ctx context.Context) error {
	g.init()
	select {
	case g.free <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("another reading of it has not ended: %w", context.Cause(ctx))
	}
}

func (g *gate) unlock() { <-g.free }

// use connects once and has f read, one at a time. A connection that does not answer
// is replaced at the next use.
func (l *lazyReader) use(ctx context.Context, dial func(context.Context) (Reader, error), f func(Reader) error) error {
	if err := l.mu.lock(ctx); err != nil {
		return fmt.Errorf("the kernel's table could not be read: %w", err)
	}
	defer l.mu.unlock()
	err := l.open(ctx, dial)
	if err == nil {
		err = f(l.r)
	}
	if err == nil {
		return nil
	}
	if unanswered(err) && l.r != nil {
		if c, ok := l.r.(io.Closer); ok {
			_ = c.Close() // what it holds is lost anyhow
		}
		l.r = nil
	}
	return fmt.Errorf("the kernel's table could not be read: %w", err)
}

// open connects unless it did; the lock is held.
func (l *lazyReader) open(ctx context.Context, dial func(context.Context) (Reader, error)) error {
	if l.r != nil {
		return nil
	}
	r, err := dial(ctx)
	if err == nil {
		l.r = r
	}
	return err
}
