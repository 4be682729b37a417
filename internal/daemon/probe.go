package daemon

import (
	"crypto/tls"
	"fmt"
	"sync"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/http"
	"github.com/sluice-lb/sluice/internal/checker/tcp"
	"github.com/sluice-lb/sluice/internal/config"
)

// probes makes the probe of each kind of checker. The client side of SSL_GET is
// read once for each configuration.
type probes struct {
	mu     sync.Mutex
	of     *config.SSL
	loaded bool
	client *tls.Config
	err    error
}

func (p *probes) make(cfg *config.Config, c *config.Checker) (checker.Probe, error) {
	switch c.Kind {
	case config.TCPCheck:
		return tcp.New(c), nil
	case config.HTTPGet:
		return http.New(c, nil)
	case config.SSLGet:
		client, err := p.ssl(cfg.SSL)
		if err != nil {
			return nil, err
		}
		return http.New(c, client)
	}
	return nil, fmt.Errorf("%s is not served by this version", c.Kind)
}

func (p *probes) ssl(ssl *config.SSL) (*tls.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.loaded || p.of != ssl {
		p.client, p.err = http.LoadClient(ssl)
		p.of, p.loaded = ssl, true
	}
	return p.client, p.err
}
