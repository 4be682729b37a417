package engine

import (
	"testing"

	"github.com/sluice-lb/sluice/internal/config"
)

// TestATargetHasNoScriptArgument: they may be secret, and it is shown to whoever may read.
func TestATargetHasNoScriptArgument(t *testing.T) {
	c := &config.Checker{Kind: config.MiscCheck, Misc: &config.Misc{Script: &config.Script{Argv: []string{"/bin/check", "--password", "hunter2"}}}}
	if got := targetOf(c); got != "/bin/check" {
		t.Errorf("got %q", got)
	}
}
