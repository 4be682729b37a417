package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
)

// maxWho bounds an operator's name.
const maxWho = 64

// adminPaths adds what changes something. All of it is 404 without http_admin.
func (s *Server) adminPaths(mux *http.ServeMux) {
	origin := http.NewCrossOriginProtection()
	handle := func(pattern string, serve http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !s.admin.on() {
				http.NotFound(w, r)
				return
			}
			if err := origin.Check(r); err != nil {
				s.Log.Warn("A request from another site is refused", event.Key, event.HTTPRefused, "path", r.URL.Path, "remote", client(r), "origin", clip(r.Header.Get("Origin")))
				s.refuse(w, r, http.StatusForbidden, "this must be asked for from sluice's own page: "+err.Error())
				return
			}
			serve(w, r)
		})
	}
	mux.HandleFunc("/admin/", http.NotFound)
	handle("GET /admin/login", func(w http.ResponseWriter, r *http.Request) {
		s.write(w, http.StatusOK, "login", s.form(r))
	})
	handle("POST /admin/login", s.login)
	handle("POST /admin/logout", func(w http.ResponseWriter, r *http.Request) {
		s.admin.end(r)
		http.SetCookie(w, &http.Cookie{Name: cookieName, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: -1})
		http.Redirect(w, r, "/", http.StatusSeeOther)
	})
	handle("GET /admin/server", func(w http.ResponseWriter, r *http.Request) {
		if s.admin.who(r) == "" {
			http.Redirect(w, r, "/admin/login", http.StatusSeeOther)
			return
		}
		s.server(w, r, http.StatusOK, "")
	})
	for _, verb := range []engine.Verb{engine.VerbDrain, engine.VerbUndrain, engine.VerbWeight} {
		handle("POST /admin/"+string(verb), func(w http.ResponseWriter, r *http.Request) { s.operate(w, r, verb) })
	}
}

// form is what the admin's pages get.
type form struct {
	Style, Icon, Host, Title, Who string
	// Bad is what went wrong.
	Bad string
	// VS and RS are whom it is about, Row how it does.
	VS, RS string
	Row    *rowView
	Orders []orderView
	Back   string
	// Reason and Until are what was sent.
	Reason, Until, Weight string
	Drained, Weighed      bool
}

func (s *Server) form(r *http.Request) *form {
	return &form{Style: assets()["/static/style.css"].Address, Icon: assets()["/static/icon.svg"].Address, Host: s.host(), Title: "Log in", Who: s.admin.who(r), Back: "/"}
}

// login makes a session of a token. Whoever has it may give a name of their own: it
// says whom to ask, and proves nothing.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	f := s.form(r)
	name := strings.TrimSpace(r.PostFormValue("name"))
	code := http.StatusUnauthorized
	var err error
	if !isName(name) {
		code, err = http.StatusBadRequest, fmt.Errorf("a name has letters, digits and .-_@, %d at most", maxWho)
	} else {
		err = s.admin.check(client(r), r.PostFormValue("token"))
	}
	if err != nil {
		code = s.failed(w, r, code, err)
		f.Bad = err.Error()
		s.write(w, code, "login", f)
		return
	}
	if name == "" {
		name = client(r).String()
	}
	s.Log.Info("An operator logs in over HTTP", event.Key, event.HTTPLogin, "who", "http:"+name, "remote", client(r))
	http.SetCookie(w, s.admin.begin("http:"+name))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func isName(s string) bool {
	return len(s) <= maxWho && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_@", r))
	})
}

// failed logs a wrong token and returns the status of the answer.
func (s *Server) failed(w http.ResponseWriter, r *http.Request, code int, err error) int {
	switch {
	case errors.Is(err, errTooMany):
		w.Header().Set("Retry-After", strconv.Itoa(int(failEvery/time.Second)))
		return http.StatusTooManyRequests
	case errors.Is(err, errBadToken):
		s.Log.Warn("A wrong token for http_admin", event.Key, event.HTTPRefused, "remote", client(r), "path", r.URL.Path)
	}
	return code
}

// operate carries out a command of a form or of JSON.
func (s *Server) operate(w http.ResponseWriter, r *http.Request, verb engine.Verb) {
	who, err := s.admin.authorize(r)
	if err != nil {
		code := s.failed(w, r, http.StatusUnauthorized, err)
		w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
		s.refuse(w, r, code, err.Error())
		return
	}
	c, err := command(r, verb, time.Now())
	if err != nil {
		s.refuse(w, r, http.StatusBadRequest, err.Error())
		return
	}
	c.Verb, c.Who = verb, who
	done, err := s.Operate(r.Context(), c)
	s.sights.forget()
	var refusal *engine.CommandError
	switch {
	case errors.As(err, &refusal):
		code := map[engine.Code]int{engine.CodeInvalid: http.StatusBadRequest, engine.CodeUnknown: http.StatusUnprocessableEntity,
			engine.CodeAmbiguous: http.StatusUnprocessableEntity, engine.CodeRefused: http.StatusConflict}[refusal.Code]
		if wantsPage(r) {
			s.refuse(w, r, code, refusal.Message)
			return
		}
		answerJSON(w, code, refusal)
	case err != nil:
		s.refuse(w, r, http.StatusServiceUnavailable, err.Error())
	case wantsPage(r):
		http.Redirect(w, r, query{VS: c.VS}.url(), http.StatusSeeOther)
	default:
		answerJSON(w, http.StatusOK, done)
	}
}

// wantsPage tells a browser's form from a program.
func wantsPage(r *http.Request) bool {
	return r.Header.Get("Authorization") == "" && !wantsJSON(r)
}

// refuse says why nothing was done: on the form that asked, or as JSON.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, code int, text string) {
	switch {
	case !wantsPage(r):
		answerJSON(w, code, map[string]string{"error": text})
	case code != http.StatusForbidden && s.admin.who(r) != "":
		s.server(w, r, code, text)
	default:
		answerText(w, code, text)
	}
}

// server is the page with the forms for one real server.
func (s *Server) server(w http.ResponseWriter, r *http.Request, code int, bad string) {
	f := s.form(r)
	f.VS, f.RS, f.Bad = r.FormValue("vs"), r.FormValue("rs"), bad
	f.Reason, f.Until, f.Weight = r.PostFormValue("reason"), r.PostFormValue("until"), r.PostFormValue("weight")
	f.Title, f.Back = "Drain or weigh "+f.RS, query{VS: f.VS}.url()
	if s.Status != nil {
		see, v := s.sights.look(r.Context(), s.Status, s.Pace), viewer{time.Now()}
		for _, p := range see.pools {
			for i := range p.rows {
				if p.name == f.VS && p.rows[i].rs != nil && p.rows[i].address == f.RS {
					row := v.row(&p.rows[i])
					f.Row = &row
				}
			}
		}
		for i := range see.Overrides {
			o := &see.Overrides[i]
			if o.VS == f.VS && o.Server == f.RS {
				f.Orders = append(f.Orders, v.order(o))
				f.Drained = f.Drained || o.Kind == engine.VerbDrain
				f.Weighed = f.Weighed || o.Kind == engine.VerbWeight
			}
		}
	}
	if f.Row == nil && len(f.Orders) == 0 && bad == "" {
		http.NotFound(w, r)
		return
	}
	s.write(w, code, "server", f)
}

// command reads what is asked for, from JSON as the control socket takes it, or from a
// form.
func command(r *http.Request, verb engine.Verb, now time.Time) (c engine.Command, err error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "application/json" {
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields() // a limit that is not understood must not be left out
		if err := dec.Decode(&c); err != nil {
			return c, fmt.Errorf("the command cannot be read: %w", err)
		}
		return c, nil
	}
	if err := r.ParseForm(); err != nil {
		return c, fmt.Errorf("the form cannot be read: %w", err)
	}
	for name := range r.PostForm {
		switch name {
		case "vs", "rs", "server", "reason", "until", "force", "weight":
		default:
			return c, fmt.Errorf("there is no field %q; there are vs, rs, server, reason, until, force and weight", name)
		}
	}
	c.VS, c.RS, c.Server, c.Reason = r.PostFormValue("vs"), r.PostFormValue("rs"), r.PostFormValue("server"), r.PostFormValue("reason")
	if c.Until, err = parseUntil(r.PostFormValue("until"), now); err != nil {
		return c, err
	}
	if f := r.PostFormValue("force"); f != "" {
		if c.Force, err = strconv.ParseBool(f); err != nil {
			return c, fmt.Errorf("force is true or false, not %q", f)
		}
	}
	switch text := strings.TrimSpace(r.PostFormValue("weight")); {
	case verb != engine.VerbWeight, text == "default":
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return c, fmt.Errorf("weight is a number or default, not %q", text)
		}
		c.Weight = &n
	}
	return c, nil
}

// parseUntil reads a duration from now, or a time; "" is for ever.
func parseUntil(text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a duration like 2h30m nor a time like %s", text, now.Add(time.Hour).Format("2006-01-02 15:04"))
}
