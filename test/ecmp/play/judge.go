package play

import (
	"fmt"
	"slices"
)

// Judge returns what is wrong with a run.
func Judge(s *Scenario, r Result) (wrong []string) {
	wrong = append(wrong, r.Problems...)
	if r.Long.Opened == 0 || r.Short.Opened == 0 {
		return append(wrong, "it had no clients")
	}
	if r.Moved == 0 {
		wrong = append(wrong, "the router moved no connection: the run says nothing")
	}
	if slices.Contains(s.Zero, r.Mode) {
		if r.Long.Lost > 0 {
			wrong = append(wrong, fmt.Sprintf("%d of %d long-lived connections were lost (%s)", r.Long.Lost, r.Long.Opened, r.Long.How))
		}
	}
	if slices.Contains(s.ShortZero, r.Mode) && r.Short.Lost > 0 && r.Excused == "" {
		wrong = append(wrong, fmt.Sprintf("%d of %d short requests were lost (%s)", r.Short.Lost, r.Short.Opened, r.Short.How))
	}
	if slices.Contains(s.Costs, r.Mode) && r.Long.Lost == 0 {
		wrong = append(wrong, "nothing was lost, as cannot be: the clients do not see what they should")
	}
	if r.Long.Lost > r.Moved {
		wrong = append(wrong, fmt.Sprintf("%d connections were lost and the router moved only %d", r.Long.Lost, r.Moved))
	}
	return wrong
}
