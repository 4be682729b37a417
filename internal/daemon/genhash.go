package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/http"
	"github.com/sluice-lb/sluice/internal/config"
)

// Genhash makes the digest of a page, for url's digest. Its options are those of
// keepalived's genhash, and so is what it prints; other than that program it fails,
// with a status, when there is no digest.
type Genhash struct {
	server, path, host, protocol, check string
	port                                uint16
	seconds                             float64
	mark                                uint32
	tls, sni, verbose, block, md5sum    bool
	json                                bool
}

// Page is what sluice genhash --json prints.
type Page struct {
	// URL is what was asked for, by the server's address.
	URL string `json:"url"`
	// VirtualHost is the Host header that was sent, if it is not the address.
	VirtualHost string `json:"virtualhost,omitempty"`
	// Status is the answer's code.
	Status int `json:"status"`
	// Digest is the MD5 of the body in hexadecimal digits.
	Digest string `json:"digest"`
	// Length is how many bytes the body has.
	Length int64 `json:"length"`
	// Short says that the body ended before its Content-Length.
	Short bool `json:"short,omitempty"`
	// Took is how long it took.
	Took time.Duration `json:"took_ns"`
}

// ErrOtherDigest is a page whose digest is not the one of --check.
var ErrOtherDigest = errors.New("another digest")

// Define adds the options.
func (g *Genhash) Define(flags *pflag.FlagSet) {
	flags.StringVarP(&g.server, "server", "s", "", "the server's `ADDRESS`")
	flags.Uint16VarP(&g.port, "port", "p", 0, "its `PORT` (80, or 443 with -S, if not given)")
	flags.StringVarP(&g.path, "url", "u", "", "`PATH` to ask for")
	flags.BoolVarP(&g.tls, "use-ssl", "S", false, "over TLS, as SSL_GET")
	flags.BoolVarP(&g.sni, "use-sni", "I", false, "send the virtual host as TLS server name")
	flags.StringVarP(&g.host, "use-virtualhost", "V", "", "`HOST` to ask for (the Host header)")
	flags.StringVarP(&g.protocol, "protocol", "P", "1.0", "HTTP `VERSION`: 1.0, 1.0c (with \"Connection: close\") or 1.1")
	flags.Float64VarP(&g.seconds, "timeout", "t", 5, "`SECONDS` until the whole answer must have come")
	flags.Uint32VarP(&g.mark, "fwmark", "m", 0, "firewall `MARK` of the packets sent")
	flags.BoolVarP(&g.verbose, "verbose", "v", false, "say each step on standard error")
	flags.BoolVar(&g.block, "conf", false, "print the url block for the configuration")
	flags.StringVar(&g.check, "check", "", "fail if the digest is not `DIGEST`")
	flags.BoolVar(&g.json, "json", false, "print the page's digest, status and length as JSON")
	flags.BoolVar(&g.md5sum, "md5sum", false, "print \"MD5SUM = \" before the digest, as old versions of keepalived do")
}

// Take prepares the request. target is http://HOST:PORT/PATH in place of -s, -p and -u,
// or "". An error is about the command line.
func (g *Genhash) Take(target string) error {
	switch {
	case target != "" && (g.server != "" || g.path != "" || g.port != 0):
		return errors.New("give either a URL, or --server, --port and --url")
	case target != "":
		if err := g.takeURL(target); err != nil {
			return err
		}
	case g.server == "" || g.path == "":
		return errors.New("which page? Give a URL, http://HOST:PORT/PATH, or --server, --port and --url")
	}
	switch {
	case g.seconds <= 0 || g.seconds > 3600:
		return errors.New("--timeout is not within 0 and 3600 seconds")
	case g.protocol != "1.0" && g.protocol != "1.0c" && g.protocol != "1.1":
		return fmt.Errorf("--protocol %q: want 1.0, 1.0c or 1.1", g.protocol)
	case g.sni && g.host == "":
		return errors.New("--use-sni sends the name of --use-virtualhost, which is not given")
	case strings.ContainsAny(g.path+g.host, " \t\r\n"):
		return errors.New("a path or a host name has no blanks and no line ends; write a blank of a path as %20")
	case g.json && g.block:
		return errors.New("--conf is no JSON: give either it or --json")
	case g.check != "" && !isDigest(g.check):
		return fmt.Errorf("--check %q is not 32 hexadecimal digits", g.check)
	}
	if g.port == 0 {
		g.port = 80
		if g.tls {
			g.port = 443
		}
	}
	return nil
}

func isDigest(s string) bool {
	return len(s) == 32 && strings.Trim(strings.ToLower(s), "0123456789abcdef") == ""
}

// takeURL reads a URL. A host that is no address is asked for by its name.
func (g *Genhash) takeURL(target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return fmt.Errorf("no URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return fmt.Errorf("%q is no URL of HTTP: want http://HOST:PORT/PATH", target)
	}
	if u.User != nil {
		return errors.New("a URL with a user or password: checks send none")
	}
	g.server, g.path, g.tls = u.Hostname(), u.RequestURI(), g.tls || u.Scheme == "https"
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return fmt.Errorf("port %q is not one of 1 to 65535", p)
		}
		g.port = uint16(n)
	}
	if _, err := netip.ParseAddr(g.server); err != nil && g.host == "" {
		g.host, g.sni = u.Host, g.sni || g.tls
	}
	return nil
}

// Run asks for the page and prints its digest. What went wrong is the error:
// ErrOtherDigest or that there is no digest.
func (g *Genhash) Run(ctx context.Context, stdout, stderr io.Writer) error {
	addr, err := g.resolve(ctx)
	if err != nil {
		return err
	}
	c := g.checker(netip.AddrPortFrom(addr, g.port))
	if g.verbose {
		ctx = checker.WithTrace(ctx, func(e checker.TraceEntry) {
			fmt.Fprintf(stderr, "%8s  %-7s  %s\n", checker.Elapsed(e.After), e.Stage, e.Text)
		})
	}
	got, o := http.Digest(ctx, c)
	if o.Result != checker.OK {
		return fmt.Errorf("no digest of %s, it failed at stage %s: %s", g.target(o.Fault), o.Fault.Stage, o.Reason)
	}
	sum := fmt.Sprintf("%x", got.Digest)
	if g.verbose {
		fmt.Fprintf(stderr, "%8s  %-7s  status %d, digest of %d bytes\n", checker.Elapsed(o.Took), checker.StageBody, got.Status, got.Length)
	}
	if got.Note != "" {
		fmt.Fprintf(stderr, "the body is short%s\n", got.Note)
	}
	accepted := got.Status >= 200 && got.Status <= 299
	if !accepted {
		fmt.Fprintf(stderr, "the status is %d, which a url without status_code does not accept\n", got.Status)
	}
	text := sum + "\n"
	switch {
	case g.json:
		scheme := "http://"
		if g.tls {
			scheme = "https://"
		}
		b, err := json.MarshalIndent(Page{
			URL: scheme + c.Conn.Target.String() + g.path, VirtualHost: g.host,
			Status: got.Status, Digest: sum, Length: got.Length, Short: got.Note != "", Took: o.Took,
		}, "", "  ")
		if err != nil {
			return fmt.Errorf("print the digest: %w", err)
		}
		text = string(b) + "\n"
	case g.md5sum:
		text = "MD5SUM = " + text
	}
	if g.block {
		text += g.conf(sum, got.Status, accepted)
	}
	if _, err := io.WriteString(stdout, text); err != nil {
		return fmt.Errorf("print the digest: %w", err)
	}
	if g.check != "" && !strings.EqualFold(g.check, sum) {
		return fmt.Errorf("%w: %s, expected %s", ErrOtherDigest, sum, strings.ToLower(g.check))
	}
	return nil
}

// resolve finds the server's address.
func (g *Genhash) resolve(ctx context.Context) (netip.Addr, error) {
	if a, err := netip.ParseAddr(g.server); err == nil {
		return a.Unmap(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout())
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", g.server)
	if err != nil || len(all) == 0 {
		return netip.Addr{}, fmt.Errorf("the address of %s is not found: %w", g.server, err)
	}
	return all[0].Unmap(), nil
}

func (g *Genhash) timeout() time.Duration { return time.Duration(g.seconds * float64(time.Second)) }

// checker is the check that would ask for the page.
func (g *Genhash) checker(target netip.AddrPort) *config.Checker {
	c := &config.Checker{
		Kind: config.HTTPGet,
		Conn: config.Connection{Target: target, Timeout: g.timeout(), FWMark: g.mark},
		HTTP: &config.HTTP{SNI: g.sni, URLs: []config.URL{{Path: g.path, VirtualHost: g.host}}},
	}
	switch g.protocol {
	case "1.0c":
		c.HTTP.Protocol = config.HTTP10C
	case "1.1":
		c.HTTP.Protocol = config.HTTP11
	}
	if g.tls {
		c.Kind = config.SSLGet
	}
	if host, _, err := net.SplitHostPort(g.host); err == nil {
		c.HTTP.SNIName = host // a server name has no port
		if !g.sni {
			c.HTTP.SNIName = ""
		}
	}
	return c
}

func (g *Genhash) target(f *checker.Fault) string {
	if f.Target != "" {
		return f.Target
	}
	return net.JoinHostPort(g.server, strconv.Itoa(int(g.port))) + g.path
}

// conf is the url block of the page.
func (g *Genhash) conf(sum string, status int, accepted bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "url {\n    path %s\n", config.Word(g.path))
	if g.host != "" {
		fmt.Fprintf(&b, "    virtualhost %s\n", config.Word(g.host))
	}
	fmt.Fprintf(&b, "    digest %s\n", sum)
	if !accepted {
		fmt.Fprintf(&b, "    status_code %d\n", status)
	}
	b.WriteString("}\n")
	return b.String()
}
