package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

const token = "0123456789abcdef-token"

// admin turns http_admin on and returns the token's file.
func (s *site) adminOn() string {
	s.Helper()
	file := filepath.Join(s.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		s.Fatal(err)
	}
	s.ConfigureAdmin(file)
	if !s.admin.on() {
		s.Fatal(s.log.b.String())
	}
	return file
}

// login returns a session's cookie.
func (s *site) logIn(name string) string {
	s.Helper()
	a := s.do(http.MethodPost, "/admin/login", "token="+token+"&name="+name)
	a.want(s.T, http.StatusSeeOther)
	c := a.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || strings.Contains(c.Value, token) {
		s.Errorf("cookie %v", c)
	}
	return c.Name + "=" + c.Value
}

var adminPaths = []string{"GET /admin/login", "POST /admin/login", "POST /admin/logout", "GET /admin/server?vs=x", "POST /admin/drain", "POST /admin/undrain", "POST /admin/weight", "GET /admin/drain", "GET /admin/"}

// TestWithoutATokenNothingCanBeChanged: the paths are not there, and no button is.
func TestWithoutATokenNothingCanBeChanged(t *testing.T) {
	s := newSite(t, farm(1, 2))
	off := func() {
		t.Helper()
		for _, p := range adminPaths {
			method, path, _ := strings.Cut(p, " ")
			s.do(method, path, "vs=x&rs=y", "Authorization", "Bearer "+token).want(t, http.StatusNotFound)
		}
		s.get("/").without(t, "/admin/", "<form method=\"post\"")
	}
	off()
	s.adminOn()
	cookie := s.logIn("ann")
	s.ConfigureAdmin("")
	off()
	s.do(http.MethodPost, "/admin/drain", "vs=x&rs=y", "Cookie", cookie).want(t, http.StatusNotFound)
	if len(s.commands) != 0 {
		t.Errorf("commands %v", s.commands)
	}
}

func TestATokenFileThatIsNotSafeIsRefused(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		text string
		mode os.FileMode
		want string // "" for none
	}{
		"fine":       {token, 0o600, ""},
		"group":      {token, 0o640, ""},
		"read only":  {token, 0o400, ""},
		"world":      {token, 0o644, "everybody may read it: chmod 0600 or 0640"},
		"group may":  {token, 0o660, "others than its owner may change it"},
		"short":      {"abc", 0o600, "shorter than 16"},
		"empty":      {"\n", 0o600, "shorter than 16"},
		"two lines":  {token + "\n" + token, 0o600, "one line"},
		"very long":  {strings.Repeat("x", maxToken+1), 0o600, "longer than"},
		"not a file": {"", 0, "no regular file"},
		"missing":    {"", 0, "no such file"},
	} {
		path := filepath.Join(dir, name)
		switch {
		case name == "not a file":
			path = dir
		case name != "missing":
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
		}
		s := newSite(t, farm(1, 1))
		s.ConfigureAdmin(path)
		if got := s.admin.on(); got != (tt.want == "") {
			t.Errorf("%s: on is %v", name, got)
		}
		log := s.log.b.String()
		if tt.want != "" && !strings.Contains(log, tt.want) || strings.Contains(log, token) {
			t.Errorf("%s: log %s", name, log)
		}
	}
}

// TestAProgramOperatesWithTheToken.
func TestAProgramOperatesWithTheToken(t *testing.T) {
	s := newSite(t, farm(1, 2))
	s.adminOn()
	bearer := []string{"Authorization", "Bearer " + token}
	s.do(http.MethodPost, "/admin/drain", "vs=a&rs=b&reason=new+kernel&until=2h&force=true", bearer...).want(t, http.StatusOK, `"who":"http:192.0.2.1"`)
	s.do(http.MethodPost, "/admin/undrain", "server=10.0.0.1", bearer...).want(t, http.StatusOK)
	s.do(http.MethodPost, "/admin/weight", "vs=a&rs=b&weight=7", bearer...).want(t, http.StatusOK)
	s.do(http.MethodPost, "/admin/weight", "vs=a&rs=b&weight=default", bearer...).want(t, http.StatusOK)
	s.do(http.MethodPost, "/admin/drain", `{"virtual_server":"a","real_server":"b","reason":"r"}`, append(bearer, "Content-Type", "application/json")...).want(t, http.StatusOK)
	var got []string
	for _, c := range s.commands {
		w := "-"
		if c.Weight != nil {
			w = fmt.Sprint(*c.Weight)
		}
		got = append(got, fmt.Sprint(c.Verb, " ", c.VS, c.RS, c.Server, " ", c.Reason, " ", !c.Until.IsZero(), c.Force, w, c.Who))
	}
	want := "[drain ab new kernel true true-http:192.0.2.1 undrain 10.0.0.1  false false-http:192.0.2.1 weight ab  false false7http:192.0.2.1 weight ab  false false-http:192.0.2.1 drain ab r false false-http:192.0.2.1]"
	if fmt.Sprint(got) != want {
		t.Errorf("commands\n%v, want\n%v", got, want)
	}
	for body, want := range map[string]string{
		"vs=a&rs=b&until=yesterday": "neither a duration", "vs=a&rs=b&unitl=2h": `no field \"unitl\"`, "vs=a&force=maybe": "true or false",
	} {
		s.do(http.MethodPost, "/admin/drain", body, bearer...).want(t, http.StatusBadRequest, want)
	}
	s.do(http.MethodPost, "/admin/weight", "vs=a&rs=b", bearer...).want(t, http.StatusBadRequest, "weight is a number")
	s.do(http.MethodPost, "/admin/drain", "vs="+strings.Repeat("x", maxForm), bearer...).want(t, http.StatusBadRequest)
	if len(s.commands) != 5 {
		t.Errorf("%d commands", len(s.commands))
	}
	s.refusal = &engine.CommandError{Code: engine.CodeRefused, Message: "it would cost the pool its quorum"}
	s.do(http.MethodPost, "/admin/drain", "vs=a&rs=b", bearer...).want(t, http.StatusConflict, `"code":"refused"`, "its quorum")
	s.refusal = errors.New("the loop did not answer")
	s.do(http.MethodPost, "/admin/drain", "vs=a&rs=b", bearer...).want(t, http.StatusServiceUnavailable, "did not answer")
	n := len(s.commands)
	for _, bad := range [][]string{nil, {"Authorization", "Bearer wrong"}, {"Authorization", "Basic " + token}, {"Cookie", cookieName + "=" + token}} {
		s.do(http.MethodPost, "/admin/drain", "vs=a&rs=b", bad...).want(t, http.StatusUnauthorized)
	}
	if len(s.commands) != n {
		t.Error("a command without the token")
	}
}

// TestAnOperatorDrainsFromThePage, without any script.
func TestAnOperatorDrainsFromThePage(t *testing.T) {
	snap := farm(1, 2)
	s := newSite(t, snap)
	file := s.adminOn()
	s.get("/").want(t, http.StatusOK, "log in to drain")
	s.get("/").without(t, "/admin/server")
	s.do(http.MethodPost, "/admin/login", "token=wrong").want(t, http.StatusUnauthorized, "not the token")
	s.do(http.MethodPost, "/admin/login", "name=a+b&token="+token).want(t, http.StatusBadRequest, "a name has")
	s.get("/admin/server?vs=x&rs=y").want(t, http.StatusSeeOther)
	cookie := []string{"Cookie", s.logIn("ann")}
	s.get("/", cookie...).want(t, http.StatusOK, "http:ann", "/admin/server?rs=10.0.0.1%3A8080&amp;vs=%5B192.0.0.0%5D%3Atcp%3A80")
	at := "/admin/server?rs=10.0.0.1:8080&vs=[192.0.0.0]:tcp:80"
	page := s.get(at, cookie...)
	page.want(t, http.StatusOK, `action="/admin/drain"`, `name="reason"`, `name="until"`)
	page.without(t, "Undrain")
	s.get("/admin/server?rs=10.0.0.9:1&vs=[192.0.0.0]:tcp:80", cookie...).want(t, http.StatusNotFound)
	body := "vs=[192.0.0.0]:tcp:80&rs=10.0.0.1:8080&reason=disk&until=2099-01-02+03:04"
	done := s.do(http.MethodPost, "/admin/drain", body, cookie...)
	done.want(t, http.StatusSeeOther)
	if c := s.commands[0]; c.Who != "http:ann" || c.Reason != "disk" || c.Until.Year() != 2099 || done.Header.Get("Location") != "/?vs=%5B192.0.0.0%5D%3Atcp%3A80" {
		t.Errorf("%+v, %v", c, done.Header)
	}
	// A refusal stands on the form that asked, with what was written there.
	s.refusal = &engine.CommandError{Code: engine.CodeRefused, Message: "it would cost the pool its quorum"}
	s.do(http.MethodPost, "/admin/drain", body, cookie...).want(t, http.StatusConflict, "it would cost the pool its quorum", `value="disk"`)
	with := *snap
	with.Overrides = []engine.Override{{VS: "[192.0.0.0]:tcp:80", Server: "10.0.0.1:8080", Kind: engine.VerbDrain, Who: "http:ann", Reason: "disk"}}
	s.set(&with)
	s.get(at, cookie...).want(t, http.StatusOK, "Undrain", "by http:ann: disk")
	// Another site may not.
	for _, h := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "http://evil.example"}} {
		s.do(http.MethodPost, "/admin/drain", body, append(h, cookie...)...).want(t, http.StatusForbidden)
	}
	if len(s.commands) != 2 {
		t.Errorf("%d commands", len(s.commands))
	}
	s.do(http.MethodPost, "/admin/logout", "", cookie...).want(t, http.StatusSeeOther)
	s.do(http.MethodPost, "/admin/drain", body, cookie...).want(t, http.StatusUnauthorized)
	// Another token ends every session, the same one does not.
	cookie = []string{"Cookie", s.logIn("")}
	s.ConfigureAdmin(file)
	s.get("/", cookie...).want(t, http.StatusOK, "http:192.0.2.1 may")
	if err := os.WriteFile(file, []byte("another-token-than-before"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.ConfigureAdmin(file)
	s.get("/", cookie...).want(t, http.StatusOK, "log in to drain")
	if strings.Contains(s.log.b.String(), token) {
		t.Error("the token stands in the log")
	}
}

// TestWrongTokensAreSlowed by address, and forgiven with time.
func TestWrongTokensAreSlowed(t *testing.T) {
	s := newSite(t, farm(1, 1))
	s.adminOn()
	synctest.Test(t, func(t *testing.T) {
		one, other := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:0:1::1")
		var a admin
		a.token = s.admin.token
		for range failBurst {
			if err := a.check(one, "wrong"); !errors.Is(err, errBadToken) {
				t.Fatal(err)
			}
		}
		for _, from := range []netip.Addr{one, one.Next()} {
			if err := a.check(from, token); !errors.Is(err, errTooMany) {
				t.Errorf("%v: %v", from, err)
			}
		}
		if err := a.check(other, token); err != nil {
			t.Errorf("another network: %v", err)
		}
		time.Sleep(failEvery)
		if err := a.check(one, token); err != nil {
			t.Errorf("after a while: %v", err)
		}
		// However many addresses fail, few are remembered.
		for i := range 3 * maxFailing {
			_ = a.check(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), "wrong")
		}
		if len(a.failing) > maxFailing {
			t.Errorf("%d are remembered", len(a.failing))
		}
		// A session ends by time, and there are not many.
		r, err := http.NewRequest(http.MethodGet, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.AddCookie(a.begin("http:ann"))
		if a.who(r) != "http:ann" {
			t.Error("no session")
		}
		time.Sleep(sessionFor)
		if a.who(r) != "" {
			t.Error("a session without end")
		}
		for range 2 * maxSessions {
			a.begin("http:x")
		}
		if len(a.sessions) > maxSessions {
			t.Errorf("%d sessions", len(a.sessions))
		}
	})
	for range failBurst {
		s.do(http.MethodPost, "/admin/login", "token=x").want(t, http.StatusUnauthorized)
	}
	if a := s.do(http.MethodPost, "/admin/login", "token="+token); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v", a.StatusCode, a.Header)
	}
	s.do(http.MethodPost, "/admin/drain", "vs=a", "Authorization", "Bearer "+token).want(t, http.StatusTooManyRequests)
}

func TestUntil(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]string{
		"": "0001-01-01T00:00:00Z", "90m": "2026-01-02T04:34:05Z", "2026-01-03 08:00": "2026-01-03T08:00:00Z",
		"2026-01-03T08:00": "2026-01-03T08:00:00Z", "2026-01-03T08:00:00+02:00": "2026-01-03T08:00:00+02:00", "-3h": "", "soon": "",
	} {
		got, err := parseUntil(in, now)
		if text, _ := json.Marshal(got); (err == nil) != (want != "") || err == nil && string(text) != `"`+want+`"` {
			t.Errorf("%q: %s %v, want %q", in, text, err, want)
		}
	}
}
