package top

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/engine"
)

// Model is what is on the screen, and why.
type Model struct {
	// Color marks what is wrong, Cursor the head of the list and the row that keys are
	// about.
	Color, Cursor bool

	width, height int
	snap          *engine.Snapshot
	rows          []row // all, in their order
	shown         []row // those that pass the filter
	err           error
	order         int
	reverse       bool
	trouble       bool
	filter        string
	typing        bool
	before        string // the filter before typing
	paused        bool
	help          bool
	cursor        int
	top           int
	interval      time.Duration
}

// New returns one that is to be fed every interval.
func New(interval time.Duration) *Model {
	return &Model{width: 80, height: 24, interval: interval}
}

// Paused reports whether snapshots are not wanted now.
func (m *Model) Paused() bool { return m.paused }

// Resize takes the terminal's size.
func (m *Model) Resize(width, height int) {
	m.width, m.height = max(width, 20), max(height, 5)
	m.scroll()
}

// Take takes the state, or why there is none.
func (m *Model) Take(s *engine.Snapshot, err error) {
	m.err = err
	if err != nil {
		return // what was known last stays in sight
	}
	m.snap = s
	m.rows = rowsOf(s)
	m.arrange()
}

// arrange sorts and filters, and keeps the cursor on its row.
func (m *Model) arrange() {
	m.scroll() // a key may have moved it
	under := ""
	if m.cursor < len(m.shown) {
		under = m.shown[m.cursor].key()
	}
	sorted(m.rows, m.order, m.reverse)
	m.shown = m.shown[:0]
	for _, r := range m.rows {
		if r.matches(m.filter) && (!m.trouble || r.rank < rankGood) {
			m.shown = append(m.shown, r)
		}
	}
	if i := slices.IndexFunc(m.shown, func(r row) bool { return r.key() == under }); i >= 0 && m.cursor > 0 {
		m.cursor = i
	}
	m.scroll()
}

// page is how many rows fit.
func (m *Model) page() int { return max(m.height-4, 1) }

// scroll keeps the cursor within the list and in sight.
func (m *Model) scroll() {
	m.cursor = max(min(m.cursor, len(m.shown)-1), 0)
	m.top = max(min(m.top, m.cursor, len(m.shown)-m.page()), m.cursor-m.page()+1, 0)
}

// Selected are the names of the virtual and the real server under the cursor.
func (m *Model) Selected() (vs, rs string, ok bool) {
	if m.cursor >= len(m.shown) {
		return "", "", false
	}
	return m.shown[m.cursor].vs, m.shown[m.cursor].rs, true
}

// Action is what a key asks of the caller.
type Action int

// Actions.
const (
	None Action = iota
	Quit
	// Explain: show why the selected server is as it is.
	Explain
	// Now: ask the daemon at once.
	Now
)

// Key takes a key as Keys names it.
func (m *Model) Key(key string) Action {
	if m.typing {
		return m.typed(key)
	}
	if m.help && key != "ctrl-c" {
		m.help = false
		return None
	}
	switch key {
	case "q", "ctrl-c":
		return Quit
	case "?", "h":
		m.help = true
	case "/":
		m.typing, m.before = true, m.filter
	case "esc":
		m.filter, m.trouble = "", false
	case "s", "right":
		m.order = (m.order + 1) % len(orders)
	case "S", "left":
		m.order = (m.order + len(orders) - 1) % len(orders)
	case "r":
		m.reverse = !m.reverse
	case "!", "t":
		m.trouble = !m.trouble
	case "p":
		m.paused = !m.paused
		if !m.paused {
			return Now
		}
	case " ":
		return Now
	case "down", "j":
		m.cursor++
	case "up", "k":
		m.cursor--
	case "pgdn", "ctrl-f":
		m.cursor += m.page()
	case "pgup", "ctrl-b":
		m.cursor -= m.page()
	case "home", "g":
		m.cursor = 0
	case "end", "G":
		m.cursor = len(m.shown) - 1
	case "enter":
		if _, _, ok := m.Selected(); ok {
			return Explain
		}
	}
	m.arrange()
	return None
}

// typed takes a key while the filter is typed.
func (m *Model) typed(key string) Action {
	switch key {
	case "ctrl-c":
		return Quit
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, m.before
	case "backspace":
		if _, n := utf8.DecodeLastRuneInString(m.filter); n > 0 {
			m.filter = m.filter[:len(m.filter)-n]
		}
	case "ctrl-u":
		m.filter = ""
	default:
		if utf8.RuneCountInString(key) == 1 {
			m.filter += key
		}
	}
	m.arrange()
	return None
}

// View returns the lines of the screen, no more than there is room for and none wider.
func (m *Model) View() []string {
	var lines []string
	add := func(color, text string) { lines = append(lines, m.paint(color, cut(text, m.width))) }
	if m.snap == nil {
		text := "waiting for sluiced ..."
		if m.err != nil {
			text = m.err.Error()
		}
		add("", render.Clean(text))
		return lines
	}
	if m.help {
		for _, l := range helpText {
			add("", l)
		}
		return lines[:min(len(lines), m.height)]
	}
	color, head := m.head()
	add(color, head)
	color, sum := m.sum()
	add(color, sum)
	add("", m.bar())
	add(reverse, columns(m.width, "POOL", "SERVER", "STATE", "WEIGHT", "ACTIVE", "INACT", "SINCE", "WHY"))
	for i := m.top; i < min(len(m.shown), m.top+m.page()); i++ {
		r := &m.shown[i]
		color := [...]string{rankBad: bad, rankOdd: odd, rankDrain: odd, rankGood: ""}[r.rank]
		if i == m.cursor {
			color += reverse
		}
		since := "-"
		if !r.since.IsZero() {
			since = render.Compact(m.snap.At.Sub(r.since))
		}
		add(color, columns(m.width, r.pool, r.server, r.state, r.weights(), fmt.Sprint(r.active), fmt.Sprint(r.inactive), since, r.why))
	}
	return lines
}

func (m *Model) head() (color, text string) {
	s := m.snap
	text = fmt.Sprintf("sluiced %s, up %s, configuration %d", render.Clean(s.Version), render.Compact(s.At.Sub(s.Started)), s.Generation)
	switch {
	case m.err != nil:
		return bad, "NO ANSWER since " + s.At.Format(time.TimeOnly) + ": " + render.Clean(m.err.Error())
	case !s.Kernel.OK && !s.Observe:
		return bad, text + "; KERNEL NOT OK: " + render.Clean(s.Kernel.Error)
	case !s.Reload.OK:
		return bad, text + "; LAST RELOAD REFUSED: " + render.Clean(s.Reload.Error)
	case s.Overdue >= time.Second:
		return bad, text + "; CHECKS ARE LATE by " + render.Compact(s.Overdue)
	case s.Passive != nil && s.Passive.On:
		by := &s.Passive.Sources[0]
		return odd, text + "; PASSIVE for " + render.Compact(s.At.Sub(by.Since)) + " by " + render.Clean(by.Who) + ", services are withheld"
	case s.Edge != nil && len(s.Edge.Failures) > 0:
		f := &s.Edge.Failures[0]
		return bad, text + "; " + render.Clean(strings.ToUpper(f.Feature)+" DOES NOT WORK: "+f.Reason)
	case s.Observe:
		text += ", observe mode"
	}
	at := s.At.Format(time.TimeOnly)
	if m.paused {
		at = "paused at " + at
	}
	return "", fmt.Sprintf("%s%*s", text, max(m.width-utf8.RuneCountInString(text), len(at)+1), at)
}

func (m *Model) sum() (color, text string) {
	quorum, floor, drains, hidden := 0, 0, 0, 0
	for i := range m.snap.VirtualServers {
		vs := &m.snap.VirtualServers[i]
		if vs.QuorumUp {
			quorum++
		}
		if vs.AtFloor {
			floor++
		}
		if vs.VIP != nil && (!vs.VIP.Announced || len(vs.VIP.Missing) > 0) {
			hidden++
		}
	}
	states := map[string]int{}
	var active uint64
	for i := range m.rows {
		r := &m.rows[i]
		states[r.state]++
		active += r.active
		if r.state == "drains" {
			drains++
		}
	}
	n := len(m.snap.VirtualServers)
	parts := []string{fmt.Sprintf("%d of %d pools have quorum", quorum, n)}
	if quorum < n || floor > 0 {
		color = bad
	}
	if floor > 0 {
		parts = append(parts, fmt.Sprintf("%d AT ITS FLOOR", floor))
	}
	if hidden > 0 {
		parts = append(parts, fmt.Sprintf("%d NOT ANNOUNCED", hidden))
	}
	for _, s := range []engine.State{engine.StateUp, engine.StateDown, engine.StateKept, engine.StateUnverified, engine.StateDamped, engine.StateMaintenance, engine.StateWithdrawn, engine.StatePassive, engine.StateHeld} {
		if n := states[string(s)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if drains > 0 {
		parts = append(parts, fmt.Sprintf("%d drain", drains))
	}
	return color, strings.Join(append(parts, fmt.Sprintf("%d active", active)), ", ")
}

// bar tells how the list was made.
func (m *Model) bar() string {
	if m.typing {
		return "filter: " + m.filter + "_"
	}
	text := "by " + orders[m.order].name
	if m.reverse {
		text += ", reversed"
	}
	if m.trouble {
		text += ", trouble alone"
	}
	if m.filter != "" {
		text += fmt.Sprintf(", with %q", m.filter)
	}
	text = fmt.Sprintf("%s: %d of %d", text, len(m.shown), len(m.rows))
	const keys = "s sort  / filter  ! trouble  enter why  ? keys  q quit"
	return fmt.Sprintf("%s%*s", text, max(m.width-utf8.RuneCountInString(text), len(keys)+2), keys)
}

// ANSI colours by what they tell.
const (
	bad     = "\x1b[1;31m"
	odd     = "\x1b[33m"
	reverse = "\x1b[7m"
	plain   = "\x1b[0m"
)

func (m *Model) paint(color, text string) string {
	marked := strings.HasSuffix(color, reverse)
	color = strings.TrimSuffix(color, reverse)
	if !m.Color {
		color = ""
	}
	if marked && m.Cursor {
		color += reverse
	}
	if color == "" {
		return text
	}
	return color + text + plain
}

// columns lays a row out. Of a wide terminal names get a share, the reason the rest.
func columns(width int, pool, server, state, weight, active, inactive, since, why string) string {
	more := min(max(width-80, 0)/4, 24)
	return fmt.Sprintf("%s %s %s %s %s %s %s %s", left(pool, 18+more), left(server, 18+more), left(state, 6+min(more, 5)),
		right(weight, 6), right(active, 6), right(inactive, 6), right(since, 5), why)
}

func left(s string, width int) string { return fmt.Sprintf("%-*s", width, cut(s, width)) }

func right(s string, width int) string { return fmt.Sprintf("%*s", width, cut(s, width)) }

// cut shortens a text to a width, with a mark.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(width-1, 0)]) + "…"
}

var helpText = []string{
	"sluice top: real servers, sorry servers and what drains, live",
	"",
	"  s S, right left  sort: trouble, pool, server, active, inactive, weight, changed",
	"  r                reverse the order",
	"  /                filter: words that a line must all have; enter, esc",
	"  ! t              trouble alone",
	"  esc              no filter",
	"  enter            why the selected server is as it is",
	"  up down k j, pgup pgdn, home end",
	"  p                pause;  space  ask now",
	"  q                quit",
	"",
	"  WEIGHT is wanted/in the kernel where the two differ.",
	"",
	"any key goes back",
}
