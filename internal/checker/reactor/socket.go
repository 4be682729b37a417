package reactor

import (
	"net/netip"

	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// target makes t.to the target of c.
func (l *Loop) target(t *task, c *config.Connection) error {
	l.leavePool(t)
	t.connection = nil
	if err := t.to.Set(c); err != nil {
		t.to = dial.Address{}
		return err
	}
	t.connection = c
	port := t.to.Port()
	t.selfish = l.low <= port && port <= l.high || dial.FixedPort(c)
	if c.Close != config.CloseReset || dial.FixedPort(c) {
		return nil
	}
	key := poolKey{family: t.to.Family, conn: *c}
	key.conn.Target, key.conn.Timeout, key.conn.BindPort = netip.AddrPort{}, 0, 0
	p := l.pools[key]
	if p == nil {
		p = &pool{key: key}
		l.pools[key] = p
	}
	p.users++
	t.pool = p
	return nil
}

// leavePool is done when a task has no use for its pool any more: the sockets of a
// pool without users are closed.
func (l *Loop) leavePool(t *task) {
	p := t.pool
	if p == nil {
		return
	}
	t.pool = nil
	if p.users--; p.users > 0 {
		return
	}
	delete(l.pools, p.key)
	l.drain(p)
}

func (l *Loop) drain(p *pool) {
	for _, k := range p.idle {
		l.pooled--
		l.close(k, false)
	}
	p.idle = nil
}

// used takes a socket out of the task's pool; nil if there is none.
func (l *Loop) used(t *task) *link {
	p := t.pool
	if p == nil || len(p.idle) == 0 {
		return nil
	}
	n := len(p.idle) - 1
	k := p.idle[n]
	p.idle[n] = nil
	p.idle = p.idle[:n]
	l.pooled--
	return k
}

// open makes a socket.
func (l *Loop) open(t *task, c *config.Connection) (*link, error) {
	if l.running+l.pooled > l.limit {
		l.drainOne()
	}
	fd, err := l.sys.open(&t.to, c)
	if err != nil {
		return nil, err
	}
	var k *link
	if n := len(l.free); n > 0 {
		k, l.free = l.free[n-1], l.free[:n-1]
	} else {
		k = &link{tag: tag{index: uint32(len(l.links))}}
		l.links = append(l.links, k)
	}
	k.fd, k.pool = fd, t.pool
	return k, nil
}

// drainOne gives one pool's sockets back: descriptors are short.
func (l *Loop) drainOne() {
	for _, p := range l.pools {
		if len(p.idle) > 0 {
			l.drain(p)
			return
		}
	}
}

// close closes a link's socket and has the link used again.
func (l *Loop) close(k *link, reset bool) {
	l.sys.close(k.fd, reset)
	k.fd, k.t, k.pool, k.send = -1, nil, nil, nil
	k.tag.generation++
	l.free = append(l.free, k)
}

// release ends the connection of a task, if it has one. well: it served its
// purpose.
func (l *Loop) release(t *task, well bool) {
	k := t.link
	if k == nil {
		return
	}
	t.link = nil
	if p := k.pool; p != nil && well && p.users > 0 && len(p.idle) < kept && l.sys.dissolve(k.fd) == 0 {
		k.t, k.send = nil, nil
		p.idle = append(p.idle, k)
		l.pooled++
		return
	}
	l.close(k, dial.Abortive(t.connection))
}

// drop ends a run without an outcome.
func (l *Loop) drop(t *task) {
	l.release(t, false)
	l.running--
	t.state = idle
}
