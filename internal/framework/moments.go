package framework

import (
	"container/heap"
	"time"
)

// moments are the servers that time alone will move, the first of all at the top. A
// server's place is kept with it, so that a new moment costs a few steps whatever the
// number of servers.
type moments []moment

type moment struct {
	at     time.Time
	server int
}

// moment returns when time alone changes something about the server; zero for never.
func (rs *RealServer) moment(now time.Time) time.Time {
	switch {
	case rs.held:
		return rs.more.flaps.until
	case rs.rising:
		return rampNext(rs.more.rises, now, rs.Config.SlowStart)
	}
	return time.Time{}
}

// set gives one server another moment; zero takes it out.
func (m *moments) set(vs *VirtualServer, server int, at time.Time) {
	place := -1
	if rs := vs.Servers[server]; rs.more != nil {
		place = rs.more.place - 1
	}
	h := ordered{m, vs}
	switch {
	case at.IsZero() && place < 0:
	case at.IsZero():
		heap.Remove(h, place)
	case place < 0:
		heap.Push(h, moment{at, server})
	case !at.Equal((*m)[place].at):
		(*m)[place].at = at
		heap.Fix(h, place)
	}
}

// ordered is a heap of moments with what it takes to keep the servers' places.
type ordered struct {
	m  *moments
	vs *VirtualServer
}

func (h ordered) Len() int           { return len(*h.m) }
func (h ordered) Less(i, j int) bool { return (*h.m)[i].at.Before((*h.m)[j].at) }

func (h ordered) Swap(i, j int) {
	m := *h.m
	m[i], m[j] = m[j], m[i]
	h.put(i)
	h.put(j)
}

func (h ordered) put(i int) { h.vs.Servers[(*h.m)[i].server].rest().place = i + 1 }

func (h ordered) Push(x any) {
	*h.m = append(*h.m, x.(moment))
	h.put(len(*h.m) - 1)
}

func (h ordered) Pop() any {
	m := *h.m
	last := m[len(m)-1]
	h.vs.Servers[last.server].more.place = 0
	*h.m = m[:len(m)-1]
	return last
}
