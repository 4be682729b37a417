package render

import (
	"fmt"
	"strings"

	"github.com/sluice-lb/sluice/internal/engine"
)

// sync writes a line for each half of lvs_sync_daemon that runs or is to run: what it is
// for, whether the kernel has it, and what is lost on the way.
func (p *printer) sync(s *engine.Sync) {
	if s == nil {
		return
	}
	lines := 0
	for i := range s.Halves {
		h := &s.Halves[i]
		if !h.Wanted && !h.Running {
			continue
		}
		lines++
		p.line("sync daemon %s on %s, syncid %d: %s", clean(h.State), orDash(clean(h.Interface)), h.SyncID, p.syncHalf(h))
		if p.o.Wide {
			maxlen := ""
			if h.MaxLen > 0 {
				maxlen = fmt.Sprintf(", messages of at most %d octets", h.MaxLen)
			}
			p.line("  %s port %d%s", orDash(clean(h.Group)), h.Port, maxlen)
		}
	}
	switch {
	case s.Undecided:
		p.line("sync daemon: %s: track_file %s holds no number yet, what runs is left", p.color(odd, "not decided"), clean(s.TrackFile))
	case lines == 0:
		p.line("sync daemon: off")
	}
	if s.Error != "" {
		p.line("sync daemon: %s: %s", p.color(bad, "not known"), clean(s.Error))
	}
}

func (p *printer) syncHalf(h *engine.SyncHalf) string {
	var parts []string
	switch {
	case h.Running && h.Wanted && h.Error == "":
		parts = append(parts, p.color(good, "runs")+" for "+p.ago(h.Since))
	case h.Running && h.Wanted:
		parts = append(parts, p.color(bad, "runs otherwise than wanted")+": "+clean(h.Error))
	case h.Running && h.Error != "":
		parts = append(parts, p.color(bad, "cannot be stopped")+": "+clean(h.Error))
	case h.Running:
		parts = append(parts, p.color(odd, "not wanted any more")+", ends when the other half has taken its place")
	case h.Error != "":
		parts = append(parts, p.color(bad, "DOES NOT RUN")+": "+clean(h.Error))
	default:
		parts = append(parts, p.color(bad, "DOES NOT RUN")+" yet")
	}
	if t := h.Traffic; t != nil {
		if t.Queue > 0 {
			parts = append(parts, fmt.Sprintf("%d octets queued", t.Queue))
		}
		if t.Drops > 0 {
			parts = append(parts, p.color(bad, Count(t.Drops, "message")+" dropped"))
		}
	}
	return strings.Join(parts, ", ")
}
