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
	// CheckerUp and CheckerDown are a check's turn that did not change its real
	// server, which is up or down: only mail tells of it.
	CheckerUp
	CheckerDown
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
	// Mail is the text of the alert that the configuration wants sent, in
	// keepalived's words (facts 12.1); "" for none.
	Mail string
}

// notices are those that wait for the table. While the kernel refuses a change a
// server may go and come back: that has not happened then, and is not told.
type notices struct {
	order []subject
	last  map[subject]Notice
}

type subject struct {
	vs, rs string
	// check is a checker's place in its real server, -1 for the server itself.
	check int
}

func (n *notices) add(note Notice, check int) {
	s := subject{note.VS, note.RS, check}
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

func (e *Engine) noteServer(vs *server, rs *framework.RealServer, up bool, mail string) {
	n := Notice{Kind: RealServerDown, VS: vs.name, RS: rsName(rs.Config.Key, vs.Config), Script: rs.Config.NotifyDown}
	if up {
		n.Kind, n.Script = RealServerUp, rs.Config.NotifyUp
	}
	if rs.Config.SMTPAlert {
		n.Mail = mail
	}
	e.notices.add(n, -1)
}

// noteChecker tells, by mail alone, of a check that turned without its server.
func (e *Engine) noteChecker(vs *server, rs *framework.RealServer, check int, mail string) {
	if !rs.Config.SMTPAlert || e.config.Global.Mail.NoCheckerEmails {
		return
	}
	n := Notice{Kind: CheckerDown, VS: vs.name, RS: rsName(rs.Config.Key, vs.Config), Mail: mail}
	if rs.Alive() {
		n.Kind = CheckerUp
	}
	e.notices.add(n, check)
}

// noteQuorum tells of a quorum's move; mail is the alert's text.
func (e *Engine) noteQuorum(vs *server, ev framework.QuorumEvent, mail string) {
	n := Notice{VS: vs.name}
	switch ev {
	case framework.QuorumGained:
		n.Kind, n.Script = QuorumUp, vs.Config.QuorumUp
	case framework.QuorumLost:
		n.Kind, n.Script = QuorumDown, vs.Config.QuorumDown
	default:
		return
	}
	if vs.Config.SMTPAlert {
		n.Mail = mail
	}
	e.notices.add(n, -1)
}

// noteStart tells of a virtual server that is new to this process: its quorum, and
// with rs_init_notifies its servers. One that starts below its quorum is told of
// only with a sorry server, which is then in service (facts 5.6).
func (e *Engine) noteStart(vs *server) {
	if e.config.Global.RSInitNotifies {
		for _, rs := range vs.Servers {
			if rs.Alive() {
				e.noteServer(vs, rs, true, "")
			}
		}
	}
	switch {
	case vs.QuorumUp():
		e.noteQuorum(vs, framework.QuorumGained, mailStartUp)
	case vs.Config.Sorry != nil:
		e.noteQuorum(vs, framework.QuorumLost, mailStartDown)
	}
}

// noteGone tells of servers that leave a running virtual server, or of a whole one
// that leaves (facts 7.5: as if omega were set); mail is the alert's text.
func (e *Engine) noteGone(was *server, stays map[config.RSKey]bool, whole bool, mail string) {
	for _, rs := range was.Servers {
		if rs.Alive() && !stays[rs.Config.Key] {
			e.noteServer(was, rs, false, mail)
		}
	}
	if whole && was.QuorumUp() {
		e.noteQuorum(was, framework.QuorumLost, mail)
	}
}

// noteStop tells at a stop that removes the services, for virtual servers with
// omega only.
func (e *Engine) noteStop() {
	for _, vs := range e.vss {
		if vs.Config.Omega {
			e.noteGone(vs, nil, false, mailStop)
			// Told even if the quorum was down already, as keepalived does.
			e.noteQuorum(vs, framework.QuorumLost, mailStop)
		}
	}
	e.tell()
}
