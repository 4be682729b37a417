package browser

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// pool is a virtual server of the test.
func pool(label, vip, more string, servers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "virtual_server %s {\n #sluice label %s\n delay_loop 1\n lvs_sched wlc\n lvs_method NAT\n protocol TCP\n%s\n", vip, label, more)
	for i, at := range servers {
		host, port, _ := net.SplitHostPort(at)
		fmt.Fprintf(&b, " real_server %s %s {\n #sluice label %s-%d\n weight 10\n HTTP_GET {\n url {\n path /health\n }\n connect_timeout 1\n retry 0\n warmup 0\n }\n", host, port, label, i+1)
		if i == 0 {
			b.WriteString(" TCP_CHECK {\n connect_timeout 1\n warmup 0\n }\n")
		}
		b.WriteString(" }\n")
	}
	return b.String() + "}\n"
}

// shop starts a director with four pools, in which two servers are down.
func shop(t *testing.T) (*daemon, map[string]*backend) {
	t.Helper()
	conf := "global_defs {\n #sluice http_listen LISTEN\n #sluice http_admin TOKEN\n}\n"
	all := map[string]*backend{}
	add := func(label, vip, more string, servers ...string) {
		for _, at := range servers {
			all[at] = serve(t, at)
		}
		conf += pool(label, vip, more, servers...)
	}
	add("shop", "192.0.2.10 443", " quorum 20", "127.0.10.11:18443", "127.0.10.12:18443", "127.0.10.13:18443", "127.0.10.14:18443")
	add("api", "192.0.2.11 80", " #sluice min_alive 50%", "127.0.11.11:18080", "127.0.11.12:18080")
	add("images", "192.0.2.12 80", " sorry_server 127.0.12.99 18080", "127.0.12.11:18080", "127.0.12.12:18080")
	add("search", "192.0.2.13 9200", "", "127.0.13.11:19200", "127.0.13.12:19200", "127.0.13.13:19200")
	return start(t, conf), all
}

const row = `document.querySelector('tr[data-key="%s"]')`

func state(at string) string { return fmt.Sprintf(row, at) + ".dataset.state" }

// TestDashboard: what an operator sees and does, in the order of a bad day.
func TestDashboard(t *testing.T) {
	d, all := shop(t)
	b := open(t, d.base)
	b.do(chromedp.Navigate(d.base+"/"), chromedp.WaitVisible("#live"))
	b.until(`document.querySelectorAll('tr[data-state="up"]').length === 11`)
	if got := js[int](b, `document.querySelectorAll(".pool").length`); got != 4 {
		t.Errorf("%d virtual servers", got)
	}
	if got := js[string](b, `document.querySelector("#announce").textContent`); !strings.Contains(got, "All is well") {
		t.Errorf("read out: %q", got)
	}

	// A server fails: its row changes, and the page stays where it was.
	b.do(chromedp.Evaluate[chromedp.Void](`window.here = 1; document.querySelector('tr[data-key="127.0.10.11:18443"] details').open = true; document.querySelector("#q").focus()`))
	all["127.0.10.12:18443"].srv.Close()
	b.until(state("127.0.10.12:18443") + ` === "down"`)
	if !js[bool](b, `window.here === 1 && document.querySelector('tr[data-key="127.0.10.11:18443"] details').open && document.activeElement.id === "q"`) {
		t.Error("the page was loaded again, or lost its focus or an open detail")
	}
	if why := js[string](b, fmt.Sprintf(row, "127.0.10.12:18443")+".textContent"); !strings.Contains(why, "connection refused") || !strings.Contains(why, "attempt 1 of 1") {
		t.Errorf("the row says %s", why)
	}
	b.until(`document.querySelector(".attention") !== null && document.title.startsWith("(!)")`)
	b.until(`/Last update (now|\d s ago)/.test(document.querySelector("#fresh").textContent)`)

	// Pools go down and come back.
	all["127.0.11.11:18080"].status.Store(http.StatusServiceUnavailable)
	all["127.0.11.12:18080"].status.Store(http.StatusInternalServerError)
	all["127.0.12.11:18080"].srv.Close()
	all["127.0.12.12:18080"].status.Store(http.StatusNotFound)
	b.until(`[...document.querySelectorAll(".badge")].some((e) => e.textContent.includes("sorry server serves"))`)
	b.until(state("127.0.11.12:18080") + ` === "kept" || ` + state("127.0.11.11:18080") + ` === "kept"`)

	b.accessible()
	admin(b, d)
	b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('tr[data-key="127.0.10.11:18443"] details').open = false; document.activeElement.blur(); scrollTo(0, 0)`))
	b.until(`matchMedia("(prefers-color-scheme: light)").matches`)
	b.settle()
	b.picture("dashboard.png")
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
	if got := js[int](b, `getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).reduce((a, c) => a + Number(c), 0)`); got > 150 {
		t.Errorf("in the dark the background is as bright as %d of 765", got)
	}
	b.accessible()
	b.settle()
	b.picture("dashboard-dark.png")
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
	filters(b)
	narrow(b, d)
	b.clean()

	// The daemon goes, and comes back as another one.
	d.kill()
	b.until(`!document.querySelector("#banner").hidden && document.querySelector("#banner").textContent.includes("does not answer")`)
	d.run()
	b.until(`document.querySelector("#banner").textContent.includes("was restarted")`)
	b.do(chromedp.Click("#banner-ok", chromedp.NodeVisible))
	b.until(`document.querySelector("#banner").hidden`)
}

// settle waits for what flashes to end.
func (b *tab) settle() {
	b.Helper()
	b.until(`document.getAnimations().length === 0`)
}

// admin drains a server through the forms.
func admin(b *tab, d *daemon) {
	b.Helper()
	b.do(chromedp.Navigate(d.base+"/admin/login"), chromedp.SendKeys("#token", "wrong"), chromedp.Submit("#token"), chromedp.WaitVisible(".said.bad"))
	b.mu.Lock()
	b.errors = nil // the browser tells of the 401
	b.mu.Unlock()
	b.do(chromedp.SendKeys("#token", token), chromedp.SendKeys("#name", "ann"), chromedp.Submit("#token"), chromedp.WaitVisible("#live"))
	b.do(chromedp.Click(`tr[data-key="127.0.10.13:18443"] a.manage`), chromedp.WaitVisible("#reason"))
	b.accessible()
	b.do(chromedp.SendKeys("#reason", "new disk"), chromedp.SendKeys("#until", "2h"), chromedp.Click(`form[action="/admin/drain"] button`), chromedp.WaitVisible("#live"))
	b.until(state("127.0.10.13:18443") + ` === "maintenance"`)
	b.until(`document.querySelector(".orders").textContent.includes("new disk") && document.querySelector(".orders").textContent.includes("http:ann")`)
	b.do(chromedp.Navigate(d.base+"/"), chromedp.WaitVisible("#live"))
}

// filters searches as it is typed, and by a chip.
func filters(b *tab) {
	b.Helper()
	b.do(chromedp.SendKeys("#q", "127.0.13"))
	b.until(`document.querySelectorAll(".pool").length === 1 && document.querySelectorAll('tr[data-key^="127.0.13"]').length === 3`)
	if got := js[string](b, "location.search"); got != "?q=127.0.13" {
		b.Errorf("the address says %s", got)
	}
	b.do(chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`), chromedp.Click(".found a"), chromedp.WaitVisible("#live"))
	b.do(chromedp.Click("a.chip.s-down"), chromedp.WaitVisible("#live"))
	b.until(`location.search === "?state=down"`)
	if !js[bool](b, `[...document.querySelectorAll(".pool tbody tr")].every((r) => r.dataset.state === "down")`) {
		b.Error("a filter by state shows others")
	}
	b.do(chromedp.KeyEvent("/"))
	b.until(`document.activeElement.id === "q"`)
	b.do(chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`), chromedp.KeyEvent("j"))
	b.until(`document.activeElement.classList.contains("pool")`)
}

// narrow holds the page to the width of a telephone.
func narrow(b *tab, d *daemon) {
	b.Helper()
	b.do(chromedp.EmulateViewport(360, 740), chromedp.Navigate(d.base+"/"), chromedp.WaitVisible("#live"))
	b.accessible()
	if got := js[int](b, "document.documentElement.scrollWidth"); got > 360 {
		b.Errorf("the page is %d px wide on 360", got)
	}
	b.do(chromedp.EmulateViewport(1360, 1120))
}

// accessible asks for what a screen reader needs.
func (b *tab) accessible() {
	b.Helper()
	if got := js[[]string](b, `[...document.querySelectorAll("input:not([type=hidden]), select, textarea")].filter((e) => !e.labels.length).map((e) => e.outerHTML)`); len(got) > 0 {
		b.Errorf("without a label: %s", got)
	}
	if got := js[int](b, `document.querySelectorAll("th:not([scope])").length`); got > 0 {
		b.Errorf("%d table headers without a scope", got)
	}
	if got := js[int](b, `document.querySelectorAll("main, header").length`); got < 2 {
		b.Error("no landmarks")
	}
	if *axe == "" {
		return
	}
	src, err := os.ReadFile(*axe)
	if err != nil {
		b.Fatal(err)
	}
	b.script(string(src) + ";0")
	found, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]string](`axe.run().then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html.slice(0, 200) + " " + n.failureSummary)))`, chromedp.EvalAwaitPromise))
	b.must(err)
	for _, f := range found {
		b.Errorf("axe: %s", f)
	}
}

// TestWithoutScripts: the page is whole, and searches by its form.
func TestWithoutScripts(t *testing.T) {
	d, all := shop(t)
	all["127.0.13.12:19200"].srv.Close()
	b := open(t, d.base)
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.do(chromedp.Navigate(d.base+"/"), chromedp.WaitVisible(".pool"))
	b.do(chromedp.SendKeys("#q", "127.0.13"), chromedp.Click("form.find button"), chromedp.WaitVisible(`tr[data-key="127.0.13.11:19200"]`), chromedp.WaitNotPresent(`tr[data-key="127.0.10.11:18443"]`))
	text, err := chromedp.Run(b.ctx, chromedp.Text("footer"))
	b.must(err)
	if !strings.Contains(text, "reload the page") || strings.Contains(text, "Pause") {
		t.Errorf("the foot says %q", text)
	}
	b.clean()
}

// TestTenThousandServersInTheBrowser: a page of them is quick, and any is found.
func TestTenThousandServersInTheBrowser(t *testing.T) {
	l, err := net.Listen("tcp4", "0.0.0.0:18999")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	var conf strings.Builder
	conf.WriteString("global_defs {\n #sluice http_listen LISTEN\n}\n")
	for v := range 1000 {
		fmt.Fprintf(&conf, "virtual_server 192.0.%d.%d 80 {\n delay_loop 600\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n", 2+v/250, 1+v%250)
		for r := range 10 {
			port := 18999
			if v == 700 && r == 3 {
				port = 18998 // nobody there
			}
			fmt.Fprintf(&conf, " real_server 127.%d.%d.%d %d {\n TCP_CHECK {\n connect_timeout 1\n retry 0\n warmup 2\n }\n }\n", 1+v/250, 1+v%250, 1+r, port)
		}
		conf.WriteString("}\n")
	}
	d := start(t, conf.String())
	b := open(t, d.base)
	b.do(chromedp.Navigate(d.base+"/"), chromedp.WaitVisible("#live"))
	b.until(`document.querySelector(".pool tbody tr").dataset.state === "down" && document.querySelector(".pool tbody tr").dataset.key === "127.3.201.4:18998"`)
	if rows := js[int](b, `document.querySelectorAll(".pool tbody tr").length`); rows < 100 || rows > 250 {
		t.Errorf("%d rows", rows)
	}
	ms := js[float64](b, `(() => { const n = performance.getEntriesByType("navigation")[0]; return n.domContentLoadedEventEnd })()`)
	t.Logf("the page was there after %.0f ms", ms)
	b.do(chromedp.SendKeys("#q", "127.4.250.10"))
	b.until(`document.querySelectorAll(".pool").length === 1 && document.querySelector('tr[data-key="127.4.250.10:18999"]') !== null`)
	b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#q").value = ""; document.activeElement.blur()`), chromedp.Navigate(d.base+"/"), chromedp.WaitVisible("#live"))
	b.picture("dashboard-10000.png")
	b.clean()
}
