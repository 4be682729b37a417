package engine

import (
	"slices"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
)

// NoticeKind is what a Notice tells.
type NoticeKind int

// Notice kinds.
const (
	RealServerUp NoticeKind = iota
	RealServerDown
	QuorumUp
	QuorumDown
)

// Notice is one thing that an operator may want to be told: a real server or a
// quorum went up or down. It is sent when the table agrees with it, as keepalived
// does.
type Notice struct {
	Kind NoticeKind
	// VS and RS are keepalived's names; RS is "" for a quorum.
	VS, RS string
	// Script is what the configuration wants run; nil for nothing.
	Script *config.Script
}

// notices are those that wait for the table. While the kernel refuses a change a
// server may go and come back: that has not happened then, and is not told.
type notices struct {
	order []subject
	last  map[subject]Notice
}

type subject struct{ vs, rs string }

func (n *notices) add(note Notice) {
	s := subject{note.VS, note.RS}
	if n.last == nil {
		n.last = map[subject]Notice{}
	}
	switch was, ok := n.last[s]; {
	case !ok:
		n.order = append(n.order, s)
		n.last[s] = note
	case was.Kind != note.Kind:
		delete(n.last, s)
		n.order = slices.DeleteFunc(n.order, func(o subject) bool { return o == s })
	}
}

// tell sends what has waited.
func (e *Engine) tell() {
	if e.opts.Notify != nil {
		for _, s := range e.notices.order {
			e.opts.Notify(e.notices.last[s])
		}
	}
	e.notices = notices{}
}

func (e *Engine) noteServer(vs *server, rs *framework.RealServer, up bool) {
	n := Notice{Kind: RealServerDown, VS: vs.name, RS: rsName(rs.Config.Key, vs.Config), Script: rs.Config.NotifyDown}
	if up {
		n.Kind, n.Script = RealServerUp, rs.Config.NotifyUp
	}
	e.notices.add(n)
}

func (e *Engine) noteQuorum(vs *server, ev framework.QuorumEvent) {
	switch ev {
	case framework.QuorumGained:
		e.notices.add(Notice{Kind: QuorumUp, VS: vs.name, Script: vs.Config.QuorumUp})
	case framework.QuorumLost:
		e.notices.add(Notice{Kind: QuorumDown, VS: vs.name, Script: vs.Config.QuorumDown})
	}
}

// noteStart tells of a virtual server that is new to this process: its quorum, and
// with rs_init_notifies its servers. One that starts below its quorum is told of
// only with a sorry server, which is then in service (facts 5.6).
func (e *Engine) noteStart(vs *server) {
	if e.config.Global.RSInitNotifies {
		for _, rs := range vs.Servers {
			if rs.Alive() {
				e.noteServer(vs, rs, true)
			}
		}
	}
	switch {
	case vs.QuorumUp():
		e.noteQuorum(vs, framework.QuorumGained)
	case vs.Config.Sorry != nil:
		e.noteQuorum(vs, framework.QuorumLost)
	}
}

// noteGone tells of servers that leave a running virtual server, or of a whole one
// that leaves (facts 7.5: as if omega were set).
func (e *Engine) noteGone(was *server, stays map[config.RSKey]bool, whole bool) {
	for _, rs := range was.Servers {
		if rs.Alive() && !stays[rs.Config.Key] {
			e.noteServer(was, rs, false)
		}
	}
	if whole && was.QuorumUp() {
		e.noteQuorum(was, framework.QuorumLost)
	}
}

// noteStop tells at a stop that removes the services, for virtual servers with
// omega only.
func (e *Engine) noteStop() {
	for _, vs := range e.vss {
		if vs.Config.Omega {
			e.noteGone(vs, nil, false)
			// Told even if the quorum was down already, as keepalived does.
			e.noteQuorum(vs, framework.QuorumLost)
		}
	}
	e.tell()
}
