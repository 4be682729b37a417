package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
)

const (
	cookieName = "sluice_session"
	// sessionFor is how long a login lasts, maxSessions how many there are; the oldest
	// gives way.
	sessionFor  = 12 * time.Hour
	maxSessions = 100

	minToken = 16
	maxToken = 4096

	// One address may fail failBurst times at once, and once more each failEvery.
	failBurst = 5
	failEvery = 12 * time.Second
	// maxFailing bounds the addresses that are remembered for that.
	maxFailing = 1024
)

// admin is who may change something over HTTP. Its zero value is nobody.
type admin struct {
	mu sync.Mutex
	// token is the digest of the token, nil for nobody.
	token *[sha256.Size]byte
	// sessions are those logged in, by the digest of their cookie.
	sessions map[[sha256.Size]byte]session
	failing  map[netip.Addr]failing
}

type session struct {
	who   string
	until time.Time
}

// failing is when an address will have been forgiven all that it failed.
type failing struct{ until time.Time }

// Whys of a refusal.
var (
	errNoToken  = errors.New("this takes the token of http_admin: log in, or send Authorization: Bearer TOKEN")
	errBadToken = errors.New("that is not the token of http_admin")
	errTooMany  = errors.New("too many wrong tokens from this address; wait a minute")
)

// ConfigureAdmin reads the token's file; "" is nobody. What is wrong with it is logged,
// and nobody may change anything then. Another token ends all sessions.
func (s *Server) ConfigureAdmin(path string) {
	var token *[sha256.Size]byte
	if path != "" {
		text, err := readToken(path)
		if err != nil {
			s.Log.Error("http_admin does not work, nobody may change anything over HTTP. Mend the file and reload", event.Key, event.HTTPFailed, "http_admin", path, "err", err)
		} else {
			sum := sha256.Sum256([]byte(text))
			token = &sum
		}
	}
	a := &s.admin
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token != nil && token != nil && *a.token == *token {
		return
	}
	a.token, a.sessions = token, nil
}

// readToken reads a token that nobody but its owner and a group may read.
func readToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold the daemon up
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file", path)
	}
	if extra := info.Mode().Perm() &^ 0o640; extra != 0 {
		who := "others than its owner may change it"
		if extra&0o004 != 0 {
			who = "everybody may read it"
		}
		return "", fmt.Errorf("%s has mode %04o, so that %s: chmod 0600 or 0640", path, info.Mode().Perm(), who)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s belongs to uid %d, who is neither root nor this daemon's user: chown root", path, st.Uid)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(b))
	switch {
	case len(b) > maxToken:
		return "", fmt.Errorf("%s is longer than %d bytes", path, maxToken)
	case len(text) < minToken:
		return "", fmt.Errorf("the token in %s is shorter than %d characters: openssl rand -hex 24", path, minToken)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("the token in %s is not one line of printable ASCII without spaces: openssl rand -hex 24", path)
	}
	return text, nil
}

func (a *admin) on() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token != nil
}

// client is the address at the other end; IPv6 counts by its /64.
func client(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// check compares a token. An address that failed too often gets no answer to that.
func (a *admin) check(from netip.Addr, token string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := from
	if from.Is6() {
		if p, err := from.Prefix(64); err == nil {
			key = p.Addr()
		}
	}
	now := time.Now()
	f := a.failing[key]
	if f.until.Sub(now) > (failBurst-1)*failEvery {
		return errTooMany
	}
	sum := sha256.Sum256([]byte(token))
	if a.token != nil && subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1 {
		return nil
	}
	if a.failing == nil {
		a.failing = map[netip.Addr]failing{}
	}
	if _, there := a.failing[key]; !there && len(a.failing) >= maxFailing {
		a.forgive(now)
	}
	if f.until.Before(now) {
		f.until = now
	}
	f.until = f.until.Add(failEvery)
	a.failing[key] = f
	return errBadToken
}

// forgive makes room: for those whose time is over, else for the one that is next.
func (a *admin) forgive(now time.Time) {
	var next netip.Addr
	for k, f := range a.failing {
		if f.until.Before(now) {
			delete(a.failing, k)
		} else if !next.IsValid() || f.until.Before(a.failing[next].until) {
			next = k
		}
	}
	if len(a.failing) >= maxFailing {
		delete(a.failing, next)
	}
}

// begin makes a session and returns its cookie.
func (a *admin) begin(who string) *http.Cookie {
	value := rand.Text()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sessions == nil {
		a.sessions = map[[sha256.Size]byte]session{}
	}
	now := time.Now()
	var oldest [sha256.Size]byte
	for k, s := range a.sessions {
		if s.until.Before(now) {
			delete(a.sessions, k)
		} else if o, ok := a.sessions[oldest]; !ok || s.until.Before(o.until) {
			oldest = k
		}
	}
	if len(a.sessions) >= maxSessions {
		delete(a.sessions, oldest)
	}
	a.sessions[sha256.Sum256([]byte(value))] = session{who, now.Add(sessionFor)}
	return &http.Cookie{Name: cookieName, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: int(sessionFor / time.Second)}
}

// who is the operator of a request's session, "" for none.
func (a *admin) who(r *http.Request) string {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s, ok := a.sessions[sha256.Sum256([]byte(c.Value))]
	if !ok || a.token == nil || !time.Now().Before(s.until) {
		return ""
	}
	return s.who
}

func (a *admin) end(r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.sessions, sha256.Sum256([]byte(c.Value)))
	}
}

// authorize says who asks, by token or session.
func (a *admin) authorize(r *http.Request) (who string, err error) {
	if h := r.Header.Get("Authorization"); h != "" {
		scheme, token, _ := strings.Cut(h, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return "", errNoToken
		}
		if err := a.check(client(r), strings.TrimSpace(token)); err != nil {
			return "", err
		}
		return "http:" + client(r).String(), nil
	}
	if who := a.who(r); who != "" {
		return who, nil
	}
	return "", errNoToken
}
