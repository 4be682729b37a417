package framework

import "time"

// rampSteps is in how many steps a weight grows from a tenth to the whole.
const rampSteps = 10

// rampStep returns how many steps are done.
func rampStep(since, now time.Time, duration time.Duration) int64 {
	if since.IsZero() || duration <= 0 {
		return rampSteps
	}
	return int64(min(max(now.Sub(since), 0), duration)) * rampSteps / int64(duration)
}

// weightAt returns the weight of a server that came back at since: a tenth of the
// full one, but at least 1, and all of it once the duration is over.
func weightAt(full int64, since, now time.Time, duration time.Duration) int64 {
	step := rampStep(since, now, duration)
	if step >= rampSteps || full <= 0 {
		return full
	}
	return max(full*(10+9*step)/100, 1)
}

// rampNext returns when the next step is due; zero when there is none.
func rampNext(since, now time.Time, duration time.Duration) time.Time {
	step := rampStep(since, now, duration)
	if step >= rampSteps {
		return time.Time{}
	}
	// Rounded up, so that the step is done at that time and not a moment later.
	return since.Add(time.Duration((int64(duration)*(step+1) + rampSteps - 1) / rampSteps))
}

// ramp decides which weights grow. was are the standings before. Nothing grows
// while the floor keeps failed servers, nor when it would be the only healthy
// server: all the load would go to those that fail, or the weight would mean
// nothing.
func (vs *VirtualServer) ramp(was []standing) {
	floor, healthy := false, 0
	for _, rs := range vs.Servers {
		floor = floor || rs.kept
		if rs.healthy() {
			healthy++
		}
	}
	for i, rs := range vs.Servers {
		rs.ramp(was[i], !floor && healthy >= 2, vs.now)
	}
}

// ramp works out one server's share; grows says whether its virtual server is one in
// which weights grow.
func (rs *RealServer) ramp(was standing, grows bool, now time.Time) {
	usable, slow := rs.Usable(), rs.Config.SlowStart
	if usable && grows && !(was.alive && was.weight > 0) && !rs.cold && slow > 0 {
		rs.rest().rises = now
	}
	rs.rising = usable && grows && rs.more != nil && !rampNext(rs.more.rises, now, slow).IsZero()
	rs.share = rs.weight
	if rs.rising {
		rs.share = int32(weightAt(int64(rs.weight), rs.more.rises, now, slow))
	} else if rs.more != nil {
		rs.more.rises = time.Time{}
	}
	rs.cold = rs.cold && !usable
}

// Share returns the weight that the server has in the table: the effective one, or
// less while it starts slowly.
func (rs *RealServer) Share() int64 { return int64(rs.share) }

// RisesUntil returns when a slow start ends; zero for none.
func (rs *RealServer) RisesUntil() time.Time {
	if !rs.rising {
		return time.Time{}
	}
	return rs.more.rises.Add(rs.Config.SlowStart)
}
