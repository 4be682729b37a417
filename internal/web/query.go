package web

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// What is shown at most. A pool with more rows than poolRows shows fewRows of them and
// leads to a page of its own.
const (
	pageRows = 200
	poolRows = 12
	fewRows  = 8
	oneRows  = 100
	// poolCost is what a pool takes beside its rows, in rows.
	poolCost = 2
)

// stateProblems selects what somebody should look at, whatever its state.
const stateProblems = "problems"

// query is what a client asks to see; its zero value is everything.
type query struct {
	Q, State, Sort, VS string
	Page               int
}

// Orders of virtual servers.
const (
	sortTrouble = "trouble"
	sortName    = "name"
	sortFile    = "file"
)

func parseQuery(v url.Values) query {
	q := query{Q: strings.TrimSpace(v.Get("q")), State: v.Get("state"), Sort: v.Get("sort"), VS: v.Get("vs"), Page: 1}
	if _, ok := trouble[q.State]; !ok && q.State != stateProblems {
		q.State = ""
	}
	if q.Sort != sortName && q.Sort != sortFile {
		q.Sort = sortTrouble
	}
	if n, err := strconv.Atoi(v.Get("page")); err == nil && n > 1 {
		q.Page = n
	}
	return q
}

// url is the page for a query.
func (q query) url() string {
	v := url.Values{}
	for key, text := range map[string]string{"q": q.Q, "state": q.State, "vs": q.VS} {
		if text != "" {
			v.Set(key, text)
		}
	}
	if q.Sort != sortTrouble && q.Sort != "" {
		v.Set("sort", q.Sort)
	}
	if q.Page > 1 {
		v.Set("page", strconv.Itoa(q.Page))
	}
	if len(v) == 0 {
		return "/"
	}
	return "/?" + v.Encode()
}

// shown is a pool with the rows that a query selects.
type shown struct {
	*pool
	rows []*row
	// matching is how many there are.
	matching int
	alone    bool
}

// selection is what a query selects, one page of it.
type selection struct {
	pools []shown
	// Rows are those that match at all.
	Rows int
	// Page is the page of so many Pages.
	Page, Pages int
	// First and Last are the places of what is shown of so many, among the pools, or
	// among the rows of one that is Alone.
	First, Last, Of int
	Alone           bool
}

// find selects what is to be shown.
func (s *sight) find(q query) selection {
	var sel selection
	var all []shown
	text := strings.ToLower(q.Q)
	for _, p := range s.pools {
		if q.VS != "" && p.name != q.VS {
			continue
		}
		sh := shown{pool: p}
		whole := text == "" || strings.Contains(p.text, text)
		for i := range p.rows {
			if r := &p.rows[i]; (whole || strings.Contains(r.text, text)) && r.is(q.State) {
				sh.rows = append(sh.rows, r)
			}
		}
		if len(sh.rows) == 0 && (!whole || q.State != "" && (q.State != stateProblems || p.trouble == 0)) {
			continue
		}
		sh.matching = len(sh.rows)
		sel.Rows += sh.matching
		all = append(all, sh)
	}
	switch q.Sort {
	case sortName:
		slices.SortStableFunc(all, func(a, b shown) int { return cmp.Compare(a.title(), b.title()) })
	case sortTrouble:
		slices.SortStableFunc(all, func(a, b shown) int { return cmp.Compare(b.weigh(), a.weigh()) })
	}
	if len(all) == 1 {
		sel.one(all[0], q)
		return sel
	}
	sel.many(all, q)
	return sel
}

// one shows the only pool, and pages through its rows.
func (sel *selection) one(sh shown, q query) {
	sh.alone, sel.Alone = true, true
	sh.arrange(q.Sort)
	sel.Of = len(sh.rows)
	sel.Pages = max(1, (sel.Of+oneRows-1)/oneRows)
	sel.Page = min(max(q.Page, 1), sel.Pages)
	from := (sel.Page - 1) * oneRows
	to := min(from+oneRows, sel.Of)
	sh.rows = sh.rows[from:to]
	sel.First, sel.Last = min(from+1, sel.Of), to
	sel.pools = []shown{sh}
}

// many fills pages with pools, each with some of its rows.
func (sel *selection) many(all []shown, q query) {
	sel.Of = len(all)
	starts := []int{0}
	used := 0
	for i := range all {
		cost := poolCost + min(len(all[i].rows), poolRows)
		if used > 0 && used+cost > pageRows {
			starts, used = append(starts, i), 0
		}
		used += cost
	}
	sel.Pages = len(starts)
	sel.Page = min(max(q.Page, 1), sel.Pages)
	from, to := starts[sel.Page-1], len(all)
	if sel.Page < sel.Pages {
		to = starts[sel.Page]
	}
	for _, sh := range all[from:to] {
		sh.arrange(q.Sort)
		if len(sh.rows) > poolRows {
			sh.rows = sh.rows[:fewRows]
		}
		sel.pools = append(sel.pools, sh)
	}
	sel.First, sel.Last = min(from+1, sel.Of), to
}

// arrange puts the worst rows first.
func (sh *shown) arrange(order string) {
	if order != sortTrouble {
		return
	}
	sh.rows = slices.Clone(sh.rows)
	slices.SortStableFunc(sh.rows, func(a, b *row) int { return cmp.Compare(b.trouble, a.trouble) })
}

// weigh is the trouble of a pool: its own first, then that of its worst row.
func (p *pool) weigh() int { return p.trouble*100 + p.worst }

// is reports whether a row is of a state that a query may ask for.
func (r *row) is(state string) bool {
	switch state {
	case "":
		return true
	case stateProblems:
		return r.problem()
	case stateDraining:
		return r.drain != nil || r.state == stateDraining
	}
	return r.state == state
}

// title is what people call it.
func (p *pool) title() string {
	if p.vs != nil && p.vs.Label != "" {
		return p.vs.Label
	}
	return p.name
}
