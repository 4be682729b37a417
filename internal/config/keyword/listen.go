package keyword

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// setHTTPListen reads http_listen.
func setHTTPListen(f *frame, v *value) {
	f.surplus(v.n, 1)
	w := &v.n.Words[1]
	if at, ok := f.listenAddress(v.n, w); ok {
		f.b.raw.global.HTTPListen = at
	}
}

// listenAddress reads an address with a port to listen on. A name is none: what it
// stands for can change, and every address at once must be asked for.
func (f *frame) listenAddress(n *syntax.Node, w *syntax.Word) (netip.AddrPort, bool) {
	at, err := netip.ParseAddrPort(w.Text)
	if err != nil || at.Port() == 0 {
		f.report(codeAddress, n, w, fmt.Sprintf("%s: %q is not an address with a port", n.Keyword(), w.Text),
			"the line is ignored; write 127.0.0.1:9476 or [::1]:9476, for every address [::]:9476")
		return netip.AddrPort{}, false
	}
	return at, true
}

// groupName reports whether a text is what groupadd(8) takes on all distributions, or a
// number.
func groupName(text string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
	return text != "" && len(text) <= 32 && strings.ContainsAny(text[:1], letters) && strings.Trim(text, letters+".-") == ""
}

// setGroup reads a group of users. Whether there is one is seen by the daemon.
func setGroup(of func(*config.Global) *config.Group) func(*frame, *value) {
	return func(f *frame, v *value) {
		f.surplus(v.n, 1)
		w := &v.n.Words[1]
		if !groupName(w.Text) {
			f.report(codeWord, v.n, w, fmt.Sprintf("%s: %q is not the name of a group", v.n.Keyword(), w.Text),
				"the line is ignored; write a name of /etc/group or a number")
			return
		}
		*of(&f.b.raw.global) = config.Group{Name: w.Text, Pos: w.Pos}
	}
}

// setHTTPAdmin reads http_admin. What is in the file is the daemon's to read.
func setHTTPAdmin(f *frame, v *value) {
	f.surplus(v.n, 1)
	w := &v.n.Words[1]
	if !strings.HasPrefix(w.Text, "/") {
		f.report(codeWord, v.n, w, fmt.Sprintf("http_admin: %q is not a path from /", w.Text),
			"the line is ignored, and nobody may change anything over HTTP")
		return
	}
	f.b.raw.global.HTTPAdmin = w.Text
}
