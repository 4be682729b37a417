package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/control/top"
	"github.com/sluice-lb/sluice/internal/engine"
)

func newTop(a *app) *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top [options]",
		Short: "real servers live, what is wrong first",
		Long: `Shows real servers, sorry servers and what drains, live, with what is wrong first.
Keys sort, filter and say why a server is as it is: ? lists them.

Exit statuses:
  0  ended by a key
  3  the daemon cannot be reached`,
		Args: a.operands(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return ended(a.top(cmd, o)) },
	}
	flags := cmd.Flags()
	flags.DurationVarP(&o.interval, "delay", "d", 2*time.Second, "how often to ask the daemon: `DURATION`, 100ms at least")
	flags.BoolVar(&o.once, "once", false, "print what would be shown, and end; without a terminal that is the default")
	return cmd
}

type topOptions struct {
	interval time.Duration
	once     bool
}

func (a *app) top(cmd *cobra.Command, o topOptions) int {
	if o.interval < 100*time.Millisecond {
		return a.misused(cmd, "--delay is below 100ms")
	}
	ctx, cancel := limited(cmd)
	defer cancel()
	client := a.client()
	s, err := client.Status(ctx)
	if err != nil {
		return a.failed(cmd, err, exitUnreachable)
	}
	m := top.New(o.interval)
	m.Color = colour(a.stdout)
	m.Take(s, nil)
	in, out := os.Stdin, a.stdout
	if o.once || !terminal(out) || !term.IsTerminal(int(in.Fd())) {
		width := 80
		if f, ok := out.(*os.File); ok && terminal(out) {
			if w, _, err := term.GetSize(int(f.Fd())); err == nil {
				width = w
			}
		}
		m.Resize(width, 1<<20)
		fmt.Fprintln(out, strings.Join(m.View(), "\n"))
		return exitOK
	}
	return a.live(cmd, m, o.interval)
}

// screen sequences (xterm): the alternate screen, so that what was there comes back.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

// live runs until a key ends it.
func (a *app) live(cmd *cobra.Command, m *top.Model, interval time.Duration) int {
	fd := int(os.Stdin.Fd())
	was, err := term.MakeRaw(fd)
	if err != nil {
		return a.failed(cmd, fmt.Errorf("the terminal cannot be used: %w", err), 1)
	}
	m.Cursor = true
	fmt.Fprint(a.stdout, enterScreen)
	defer func() {
		fmt.Fprint(a.stdout, leaveScreen)
		_ = term.Restore(fd, was) // nothing else can be done about it
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	keys := make(chan string, 64)
	go func() {
		defer close(keys)
		b := make([]byte, 256)
		for {
			n, err := os.Stdin.Read(b)
			if err != nil {
				return
			}
			for _, k := range top.Keys(b[:n]) {
				keys <- k
			}
		}
	}()
	type answer struct {
		s   *engine.Snapshot
		err error
	}
	answers, ask := make(chan answer), make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-ask:
			}
			limited, done := context.WithTimeout(ctx, timeout)
			s, err := a.client().Status(limited)
			done()
			select {
			case answers <- answer{s, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	now := func() {
		select {
		case ask <- struct{}{}:
		default: // one is on its way
		}
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var explained []string // what is shown in place of the list
	width, height := 80, 24
	for {
		if w, h, err := term.GetSize(fd); err == nil {
			width, height = w, h
			m.Resize(w, h)
		}
		if explained == nil {
			a.draw(m.View())
		} else {
			a.draw(fitting(explained, width, height))
		}
		select {
		case s := <-signals:
			if s != syscall.SIGWINCH {
				return exitOK
			}
		case <-tick.C:
			if !m.Paused() {
				now()
			}
		case got := <-answers:
			if !errors.Is(got.err, context.Canceled) {
				m.Take(got.s, got.err)
			}
		case k, ok := <-keys:
			if !ok {
				return exitOK
			}
			if explained != nil {
				explained = nil
				continue
			}
			switch m.Key(k) {
			case top.Quit:
				return exitOK
			case top.Now:
				now()
			case top.Explain:
				vs, rs, _ := m.Selected()
				explained = a.explained(ctx, vs, rs)
			}
		}
	}
}

// draw puts lines on the screen.
func (a *app) draw(lines []string) {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(l)
		b.WriteString("\x1b[K")
	}
	b.WriteString("\x1b[J")
	fmt.Fprint(a.stdout, b.String())
}

// explained says why a server is as it is, in lines.
func (a *app) explained(ctx context.Context, vs, rs string) []string {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	x, err := a.client().Explain(ctx, vs, rs)
	if err != nil {
		return strings.Split(err.Error(), "\n")
	}
	var b strings.Builder
	// Without colours: lines are cut.
	if err := render.Explain(&b, x, false); err != nil {
		return []string{err.Error()}
	}
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

// fitting are lines that fit on a screen, with one below that says how to go on.
func fitting(lines []string, width, height int) []string {
	last := "any key goes back"
	if room := max(height-1, 0); len(lines) > room {
		last = fmt.Sprintf("%s; %d more lines: sluice explain", last, len(lines)-room)
		lines = lines[:room]
	}
	out := make([]string, 0, len(lines)+1)
	for _, l := range append(slices.Clip(lines), last) {
		if r := []rune(l); len(r) > width {
			l = string(r[:max(width-1, 0)]) + "…"
		}
		out = append(out, l)
	}
	return out
}
