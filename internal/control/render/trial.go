package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-lb/sluice/internal/engine"
)

var resultColor = map[string]string{"ok": good, "failed": bad, "unable": odd}

// Trial writes one line of a transcript of "sluice test". Lines are written as they
// come, so that a slow step shows.
func Trial(w io.Writer, l *engine.TrialLine, color bool) error {
	p := &printer{o: Options{Color: color}, at: l.At}
	switch l.Line {
	case "check":
		if l.VirtualServer != "" {
			p.line("%s of %s, checked once now, beside the schedule", p.color(bold, clean(l.RealServer)), clean(l.VirtualServer))
		}
		p.line("")
		p.line("%s", p.color(bold, strings.TrimSpace(fmt.Sprintf("%d/%d %s %s", l.Check, l.Checks, clean(l.Kind), clean(l.Target)))))
	case "step":
		p.line("  %12s  %-8s %s", took(l.After), clean(l.Stage), clean(l.Text))
	case "result":
		result := p.color(resultColor[l.Result], clean(l.Result))
		if l.Text != "" {
			result += ", " + clean(l.Text)
		}
		// The last step was the reason.
		p.line("  = %s after %s", result, took(l.Took))
		if f := l.Fault; f != nil && (f.Expected != "" || f.Got != "") {
			p.line("    expected %s, got %s", orDash(clean(f.Expected)), orDash(clean(f.Got)))
		}
		p.line("    by its schedule the daemon holds it %s", p.color(verdictColor[l.Verdict], clean(l.Verdict)))
	case "end":
		p.end(l)
	}
	if _, err := io.WriteString(w, p.b.String()); err != nil {
		return fmt.Errorf("write transcript: %w", err)
	}
	return nil
}

func (p *printer) end(l *engine.TrialLine) {
	if l.VirtualServer != "" {
		p.line("%s of %s has no checks", p.color(bold, clean(l.RealServer)), clean(l.VirtualServer))
	}
	p.line("")
	switch l.Result {
	case "ok":
		p.line("%s", p.color(good, "all passed now"))
	case "failed":
		p.line("%s", p.color(bad, "a check failed now"))
	default:
		p.line("%s", p.color(odd, "a check could not run on this machine, which says nothing of the server"))
	}
	if l.State != "" {
		p.line("the daemon's own verdict: %s", p.color(stateColor[l.State], clean(string(l.State))))
		p.paragraph(l.Summary)
	}
}
