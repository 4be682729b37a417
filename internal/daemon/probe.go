package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dns"
	"github.com/sluice-lb/sluice/internal/checker/http"
	"github.com/sluice-lb/sluice/internal/checker/misc"
	"github.com/sluice-lb/sluice/internal/checker/ping"
	"github.com/sluice-lb/sluice/internal/checker/smtp"
	"github.com/sluice-lb/sluice/internal/checker/tcp"
	"github.com/sluice-lb/sluice/internal/checker/udp"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/event"
)

// probes makes the probe of each kind of checker. The client side of SSL_GET is
// read once for each configuration.
type probes struct {
	// misc is what scripts need to know.
	misc misc.Options
	// expiry is told of certificates that end soon; nil for nobody.
	expiry *http.ExpiryLog
	// lanes are the ways of check_via; nil for none.
	lanes *lanes

	mu     sync.Mutex
	of     *config.SSL
	loaded bool
	client *tls.Config
	err    error
	// pools are the tls_ca files of that configuration by their names.
	pools map[string]pool
	from  *config.Config
}

// pool is what a tls_ca holds, or why it cannot be used.
type pool struct {
	certificates *x509.CertPool
	err          error
}

func (p *probes) make(cfg *config.Config, c *config.Checker) (checker.Probe, error) {
	made, err := p.direct(cfg, c)
	if err != nil {
		return nil, err
	}
	return p.lanes.lead(c, made), nil
}

// direct makes a probe that does not ask for its lane.
func (p *probes) direct(cfg *config.Config, c *config.Checker) (checker.Probe, error) {
	switch c.Kind {
	case config.TCPCheck:
		return tcp.New(c), nil
	case config.HTTPGet:
		return http.New(c, nil)
	case config.SSLGet:
		p.begin(cfg)
		client, err := p.ssl(cfg.SSL)
		if err != nil {
			return nil, err
		}
		return http.NewWith(c, http.Options{Client: client, CA: p.ca, Expiry: p.expiry})
	case config.SMTPCheck:
		return smtp.New(c), nil
	case config.DNSCheck:
		return dns.New(c)
	case config.UDPCheck:
		return udp.New(c), nil
	case config.PingCheck:
		return ping.New(c), nil
	case config.MiscCheck:
		return misc.New(c, p.misc)
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

// begin forgets the files of another configuration.
func (p *probes) begin(cfg *config.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pools == nil || p.from != cfg {
		p.pools, p.from = map[string]pool{}, cfg
	}
}

// ca reads a tls_ca once for each configuration: a thousand checks may share one.
func (p *probes) ca(file string) (*x509.CertPool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	made, ok := p.pools[file]
	if !ok {
		made.certificates, made.err = http.LoadCA(file)
		p.pools[file] = made
	}
	return made.certificates, made.err
}

// caFindings reads the tls_ca of a check that verifies, once for each file and place.
func (p *probes) caFindings(rs *config.RealServer, c *config.Checker) diag.List {
	if c.HTTP == nil || !c.HTTP.TLS.ReadsFile() {
		return nil
	}
	_, err := p.ca(c.HTTP.TLS.CA)
	if err == nil {
		return nil
	}
	return diag.List{{
		Severity: diag.Fatal, Class: diag.ClassNotFound, Code: "F191", Pos: c.HTTP.TLS.Pos, Width: 1,
		Message: fmt.Sprintf("the certificate of real_server %s cannot be verified: %v", rs.Key, err),
		Hint:    "nothing is run, since the check would fail or verify nothing; mend the file or the path",
	}}
}

// probeFindings makes every probe once, so that what only the probe can tell, a
// regex that cannot be used or a key file that cannot be read, is a finding of the
// configuration and not a surprise at run time. Checkers that cannot be made are
// taken out.
func probeFindings(cfg *config.Config) diag.List {
	var found diag.List
	if cfg == nil {
		return nil
	}
	var p probes
	p.begin(cfg)
	usesSSL := false
	for _, vs := range cfg.VirtualServers {
		for _, rs := range vs.RealServers {
			rs.Checkers = slices.DeleteFunc(rs.Checkers, func(c *config.Checker) bool {
				usesSSL = usesSSL || c.Kind == config.SSLGet
				found = append(found, p.caFindings(rs, c)...)
				if c.Kind == config.DNSCheck {
					if _, err := dns.New(c); err != nil {
						found = append(found, diag.Diagnostic{
							Severity: diag.Error, Class: diag.ClassConfig, Code: "E192", Pos: c.Pos, Width: 1,
							Message: fmt.Sprintf("DNS_CHECK of real_server %s cannot ask: %v", rs.Key, err),
							Hint:    "the check is left out, so that its real server is not checked by it; mend the name",
						})
						return true
					}
				}
				if c.HTTP == nil {
					return false
				}
				for _, u := range c.HTTP.URLs {
					if u.Regex == nil {
						continue
					}
					if _, err := http.Compile(u.Regex); err != nil {
						found = append(found, diag.Diagnostic{
							Severity: diag.Error, Class: diag.ClassConfig, Code: "E190", Pos: u.Regex.Pos, Width: 1,
							Message: fmt.Sprintf("regex %q cannot be used: %v", u.Regex.Pattern, err),
							Notes:   []string{fmt.Sprintf("in %s of real_server %s", c.Kind, rs.Key)},
							Hint:    "the whole checker is left out, so that its real server is not checked by it; mend the pattern",
						})
						return true
					}
				}
				return false
			})
		}
	}
	if usesSSL {
		if _, err := p.ssl(cfg.SSL); err != nil {
			found = append(found, diag.Diagnostic{
				Severity: diag.Fatal, Class: diag.ClassNotFound, Code: "F190", Pos: cfg.SSL.Pos, Width: 1,
				Message: fmt.Sprintf("the SSL block cannot be used: %v", err),
				Hint:    "nothing is run, as with keepalived, since every SSL_GET would fail; mend the file or the path",
			})
		}
	}
	return found
}

// pingRefused says, once for a configuration, that its PING_CHECKs cannot work in
// this process (case C14): each of them says so too, and the last verdicts stay.
func (d *daemon) pingRefused(ctx context.Context, cfg *config.Config) {
	n := 0
	for _, vs := range cfg.VirtualServers {
		for _, rs := range vs.RealServers {
			for _, c := range rs.Checkers {
				if c.Kind == config.PingCheck {
					n++
				}
			}
		}
	}
	if n == 0 {
		return
	}
	if err := ping.Usable(ctx); err != nil {
		d.log.Error("PING_CHECK cannot work here, what it checks keeps its last state", event.Key, event.PartFailed, "checks", n, "err", err)
	}
}
