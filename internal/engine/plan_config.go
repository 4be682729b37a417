package engine

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
)

// configuration tells what the file says otherwise.
func (r *rehearsal) configuration(out *Plan) {
	p := r.plan
	for _, vc := range p.gone {
		out.Removed = append(out.Removed, vsName(vc))
	}
	for _, s := range p.steps {
		switch {
		case s.was == nil:
			out.Added = append(out.Added, vsName(s.vc))
		case s.was != s.vc:
			out.Changed = append(out.Changed, changedVS(s.was, s.vc))
		}
	}
	was, is := *p.from, *p.to
	was.VirtualServers, is.VirtualServers = nil, nil
	out.Settings = append(out.Settings, settings(&was, &is)...)
}

// changedVS compares two virtual servers of one key. Real servers that stay are the
// very same in both.
func changedVS(was, is *config.VirtualServer) PlanVirtualServer {
	c := PlanVirtualServer{VS: vsName(is)}
	bare := func(vc *config.VirtualServer, rs ...*config.RealServer) *config.Config {
		with := *vc
		with.RealServers = rs
		return &config.Config{VirtualServers: []*config.VirtualServer{&with}}
	}
	c.Settings = settings(bare(was), bare(is))
	old := placesOf(was)
	for i, rc := range is.RealServers {
		j := old.of(rc.Key, i)
		switch {
		case j < 0:
			c.Added = append(c.Added, rc.Key.String())
		case was.RealServers[j] != rc:
			c.Changed = append(c.Changed, PlanRealServer{rc.Key.String(), append([]PlanSetting{}, settings(bare(is, was.RealServers[j]), bare(is, rc))...)})
		}
	}
	now := placesOf(is)
	for i, rc := range was.RealServers {
		if now.of(rc.Key, i) < 0 {
			c.Removed = append(c.Removed, rc.Key.String())
		}
	}
	return c
}

// settings finds the keywords by which two configurations differ, in the language in
// which they are written: what may differ is then what may be written, and nothing is
// forgotten. Of a block that comes or goes the keywords in it are not told.
func settings(was, is *config.Config) (out []PlanSetting) {
	a, b := statements(was), statements(is)
	var names []statement
	for name := range a {
		names = append(names, name)
	}
	for name := range b {
		if a[name] == nil {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(x, y statement) int {
		return cmp.Or(cmp.Compare(x.block, y.block), cmp.Compare(x.keyword, y.keyword))
	})
	for _, name := range names {
		block := statement{keyword: name.block}
		if slices.Equal(a[name], b[name]) || name.block != "" && len(a[block]) != len(b[block]) {
			continue
		}
		s := PlanSetting{Keyword: name.keyword}
		if name.block != "" {
			s.Keyword = name.block + " " + name.keyword
		}
		x, y := without(a[name], b[name]), without(b[name], a[name])
		if len(x) <= 1 && len(y) <= 1 && presentable(name.keyword, x) && presentable(name.keyword, y) {
			s.From, s.To = strings.Join(x, ""), strings.Join(y, "")
		}
		out = append(out, s)
	}
	return out
}

// statement is a keyword in a kind of block, "" for those that everything is in.
type statement struct{ block, keyword string }

var structure = []string{"global_defs", "virtual_server_group", "virtual_server", "real_server"}

// statements are the arguments of each keyword of a printed configuration.
func statements(c *config.Config) map[statement][]string {
	var text bytes.Buffer
	_ = config.Print(&text, c) // a buffer takes everything
	all := map[statement][]string{}
	var blocks []string
	for line := range strings.Lines(text.String()) {
		words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "#sluice "))
		switch {
		case len(words) == 0:
			continue
		case words[0] == "}":
			blocks = blocks[:max(len(blocks)-1, 0)]
			continue
		}
		at := statement{keyword: words[0]}
		if n := len(blocks); n > 0 && !slices.Contains(structure, blocks[n-1]) {
			at.block = blocks[n-1]
		}
		args := words[1:]
		if last := len(words) - 1; words[last] == "{" {
			blocks, args = append(blocks, words[0]), words[1:last]
		}
		all[at] = append(all[at], strings.Join(args, " "))
	}
	return all
}

// without are the elements of a list that another lacks.
func without(list, other []string) (left []string) {
	rest := map[string]int{}
	for _, s := range other {
		rest[s]++
	}
	for _, s := range list {
		if rest[s]--; rest[s] < 0 {
			left = append(left, s)
		}
	}
	return left
}

// choosing are the keywords that take one of a few words.
var choosing = []string{"lvs_sched", "lvs_method", "protocol", "ip_family", "on_stop", "on_failure", "drift", "metrics_detail", "persistence_engine", "connect_close"}

// presentable reports whether values can be shown: numbers, switches, and words that choose. A
// path, an address of mail, a password, an argument of a script is none of them.
func presentable(keyword string, values []string) bool {
	if strings.Contains(keyword, "pass") || strings.Contains(keyword, "auth") {
		return false
	}
	return slices.Contains(choosing, keyword) || !slices.ContainsFunc(values, func(v string) bool {
		return v != "yes" && v != "no" && (len(v) > 20 || strings.Trim(v, "0123456789. %") != "")
	})
}
