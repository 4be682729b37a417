package render

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/event"
)

func TestEvents(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 2, 11, 123e6, time.UTC)
	vs, rs := "[192.0.2.10]:tcp:80", "[10.0.0.11]:tcp:80"
	events := []event.Event{
		{Seq: 7, Time: at, Level: "warn", Kind: event.CheckFailed, Message: "Check failed", VirtualServer: vs, RealServer: rs,
			Attrs: map[string]string{"reason": "status 503, want 200", "checker": "HTTP_GET", "attempt": "4/4", "empty": ""}},
		{Seq: 8, Time: at.Add(time.Millisecond), Level: "warn", Kind: event.ServerDown, Message: "Removing service " + rs + " from VS " + vs, VirtualServer: vs, RealServer: rs,
			Attrs: map[string]string{"alive": "1/2"}},
		{Seq: 9, Time: at, Level: "error", Kind: event.Note, Message: "forged\x1b[2J\nline", Attrs: map[string]string{"err": "a\nb\x1b\"", "k\x1b": "v"}},
		{Seq: 10, Time: at, Level: "fatal", Message: "from a later release"},
		{Seq: 11, Time: at, Level: "info", Message: "Ready"},
	}
	for name, tt := range map[string]struct {
		o    EventOptions
		want string
	}{
		"plain": {EventOptions{}, `2026-11-30 10:02:11.123 WARN Check failed rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 attempt=4/4 checker=HTTP_GET empty="" reason="status 503, want 200"
2026-11-30 10:02:11.124 WARN Removing service [10.0.0.11]:tcp:80 from VS [192.0.2.10]:tcp:80 alive=1/2
2026-11-30 10:02:11.123 ERR  forged�[2J line err="a\nb\x1b\"" k�=v
2026-11-30 10:02:11.123 fatal from a later release
2026-11-30 10:02:11.123      Ready
`},
		"somewhere else, in colour": {EventOptions{Zone: time.FixedZone("CET", 3600), Color: true}, "2026-11-30 11:02:11.123 " + odd + "WARN" + reset + " Check failed" + faint +
			` rs=[10.0.0.11]:tcp:80 vs=[192.0.2.10]:tcp:80 attempt=4/4 checker=HTTP_GET empty="" reason="status 503, want 200"` + reset + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			shown := events
			if tt.o.Color {
				shown = events[:1]
			}
			var b strings.Builder
			if err := Events(&b, shown, tt.o); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, b.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
