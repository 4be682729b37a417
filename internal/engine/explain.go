package engine

import (
	"fmt"
	"time"

	"github.com/sluice-lb/sluice/internal/framework"
)

// situate says in one word and one sentence what a real server is doing.
func situate(vs *server, rs *framework.RealServer, sit *situation) (State, string) {
	down := sit.failed
	if down == "" {
		down = "a check failed"
	}
	switch {
	case rs.Maintenance():
		why := "weight 0"
		for _, f := range rs.Files() {
			if c, fault := f.Status(); fault || c < 0 {
				why = fmt.Sprintf("track_file %s is %d", f.Name, f.Value)
				break
			}
		}
		for i, d := range rs.Dynamic() {
			if d.Set && d.Weight == 0 {
				why = fmt.Sprintf("%s asks for weight 0", rs.Config.Checkers[i].Kind)
			}
		}
		if !rs.Alive() && !rs.Unverified() {
			why += "; also " + down
		}
		return StateMaintenance, why
	case rs.Kept() && vs.sorryServes():
		return StateWithdrawn, "failed, kept by min_alive, but the quorum is lost and the sorry server serves: " + down
	case rs.Kept() && rs.Unverified():
		return StateKept, "waits for its first good check, kept by min_alive: " + down
	case rs.Kept():
		return StateKept, "failed, kept by min_alive: " + down
	case !rs.HeldUntil().IsZero():
		return StateDamped, fmt.Sprintf("all checks pass, but it flapped %d times: held back by flap_damping until %s", rs.Flaps(), rs.HeldUntil().Format(time.TimeOnly))
	case rs.Unverified():
		return StateUnverified, "waits for its first good check"
	case !rs.Alive():
		return StateDown, down
	case rs.Config.Weight == 0 && rs.Weight() == 0:
		return StateMaintenance, "weight 0 in the configuration"
	case vs.sorryServes():
		return StateWithdrawn, "healthy, but the sorry server serves"
	case len(rs.Checkers) == 0:
		return StateUp, "no checks"
	}
	for _, v := range rs.Checkers {
		if v == framework.Unknown && vs.suspended {
			return StateUp, "trusted, not checked while the address is not on this host"
		}
		if v == framework.Unknown {
			return StateUp, "trusted, not checked yet"
		}
	}
	return StateUp, "all checks pass"
}
