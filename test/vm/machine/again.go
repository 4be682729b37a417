package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Again runs this very program once more at a place, as c says but with a command
// made here: it ends with -guest FILE -out FILE, the plan is in the first as JSON and
// the results are read from the second. Both are in work, which the guest must see.
// c.Output is optional: what matters of the output is in the error.
func Again(ctx context.Context, place Place, c Config, work string, plan, results any) error {
	b, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	planFile, resultFile := filepath.Join(work, "plan.json"), filepath.Join(work, "results.json")
	if err := os.WriteFile(planFile, b, 0o644); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	run := Run
	if place == Host {
		run = RunHost
	}
	var tail strings.Builder
	c.Command = []string{self, "-guest", planFile, "-out", resultFile}
	if c.Output == nil {
		c.Output = &tail
	} else {
		c.Output = io.MultiWriter(c.Output, &tail)
	}
	status, err := run(ctx, c)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, lastLines(tail.String(), 20))
	}
	if status != 0 {
		return fmt.Errorf("the runs ended with status %d:\n%s", status, lastLines(tail.String(), 20))
	}
	if b, err = os.ReadFile(resultFile); err != nil {
		return err
	}
	return json.Unmarshal(b, results)
}

// InGuest is the other side: it reads the plan and writes what fn makes of it.
func InGuest[P, R any](plan, out string, fn func(P) (R, error)) error {
	b, err := os.ReadFile(plan)
	if err != nil {
		return err
	}
	var p P
	if err := json.Unmarshal(b, &p); err != nil {
		return fmt.Errorf("%s: %w", plan, err)
	}
	// Folders of runs must not be writable by others, which scripts are refused
	// for; the guest's /run is its own.
	if strings.HasPrefix(os.TempDir(), "/run/tmp") {
		if err := os.Chmod("/run", 0o755); err != nil {
			return err
		}
	}
	results, err := fn(p)
	if err != nil {
		return err
	}
	if b, err = json.Marshal(results); err != nil {
		return err
	}
	return os.WriteFile(out, b, 0o644)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
