// Refreshes the page in place: it asks for the same address again and changes what
// differs. Without it the page is whole, only not fresh.
"use strict";
(() => {
  const every = 2000, timeout = 5000, lateAfter = 6000;
  const $ = (id) => document.getElementById(id);
  const banner = $("banner"), bannerText = $("banner-text"), bannerOK = $("banner-ok"), fresh = $("fresh"), pause = $("pause");
  let started = $("live").dataset.started, last = Date.now(), restarted = "", failed = "", paused = false, busy = false, timer = 0;

  const key = (n) => n.nodeType === 1 ? n.id || n.dataset.key || "" : "";
  const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);

  // morph makes a what b is and keeps the nodes: focus, scrolling and open details stay.
  function morph(a, b) {
    if (a.nodeType !== 1) {
      if (a.nodeValue !== b.nodeValue) a.nodeValue = b.nodeValue;
      return;
    }
    const before = a.dataset.state;
    for (const { name } of [...a.attributes]) {
      if (!b.hasAttribute(name) && !(name === "open" && a.nodeName === "DETAILS")) a.removeAttribute(name);
    }
    for (const { name, value } of b.attributes) {
      if (a.getAttribute(name) !== value) a.setAttribute(name, value);
    }
    if (a.nodeName === "INPUT") return; // what is typed stays
    if (a.nodeName === "SELECT" && a === document.activeElement) return;
    children(a, b);
    if (before !== undefined && before !== a.dataset.state) flash(a);
  }

  function children(a, b) {
    const keyed = new Map(), stays = new Set();
    for (const c of b.childNodes) if (key(c)) stays.add(c.nodeName + key(c));
    for (const c of [...a.childNodes]) {
      if (!key(c)) continue;
      if (stays.has(c.nodeName + key(c))) keyed.set(c.nodeName + key(c), c); else c.remove();
    }
    let at = a.firstChild;
    for (const want of [...b.childNodes]) {
      const k = key(want), known = k && keyed.get(want.nodeName + k);
      if (known) {
        keyed.delete(want.nodeName + k);
        while (at && at !== known && !key(at)) { // what lies before it is white space
          const next = at.nextSibling;
          at.remove();
          at = next;
        }
        if (known === at) at = at.nextSibling;
        else if (a.moveBefore) a.moveBefore(known, at); // keeps the focus
        else a.insertBefore(known, at);
        morph(known, want);
      } else if (at && !k && same(at, want)) {
        const next = at.nextSibling;
        morph(at, want);
        at = next;
      } else {
        a.insertBefore(document.importNode(want, true), at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function flash(row) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches || !row.animate) return;
    const color = getComputedStyle(document.documentElement).getPropertyValue("--flash");
    row.animate([{ backgroundColor: color }, { backgroundColor: "transparent" }], { duration: 4000 });
  }

  async function refresh() {
    if (busy) return;
    busy = true;
    const asked = location.href;
    try {
      const r = await fetch(asked, { headers: { "Sluice-Fragment": "1" }, cache: "no-store", signal: AbortSignal.timeout(timeout) });
      if (!r.ok) throw new Error("status " + r.status);
      const doc = new DOMParser().parseFromString(await r.text(), "text/html");
      const live = doc.getElementById("live");
      if (!live) throw new Error("an answer that is no page of it");
      if (asked !== location.href) return;
      if (live.dataset.started !== started) {
        started = live.dataset.started;
        restarted = "sluiced was restarted at " + new Date(started).toLocaleString() + ". What is counted since the start begins anew.";
      }
      last = Date.now();
      failed = "";
      document.title = live.dataset.title;
      morph($("live"), live);
    } catch (e) {
      failed = e.name === "TimeoutError" ? "it takes longer than " + timeout / 1000 + " s" : e.message;
    } finally {
      busy = false;
      say();
    }
  }

  function say() {
    const age = Math.round((Date.now() - last) / 1000);
    const gone = failed !== "" && Date.now() - last > lateAfter;
    document.documentElement.classList.toggle("stale", gone);
    const text = gone ? "sluiced does not answer: what you see is from " + new Date(last).toLocaleTimeString() + "." : restarted;
    if (bannerText.textContent !== text) bannerText.textContent = text;
    banner.hidden = text === "";
    banner.className = gone ? "gone" : "";
    bannerOK.hidden = gone;
    fresh.textContent = "Last update " + (age < 1 ? "now" : age + " s ago") + (paused ? ", paused" : "") + (failed && !gone ? ", trying again" : "");
  }

  function loop() {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (!document.hidden && !paused) await refresh();
      loop();
    }, every);
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !paused) refresh();
  });
  bannerOK.addEventListener("click", () => { restarted = ""; say(); });
  pause.hidden = false;
  $("keys").hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on updating" : "Pause updates";
    if (!paused) refresh();
    say();
  });

  // Search and filter as they are typed; the address follows, so that it can be passed on.
  let typing = 0;
  document.addEventListener("input", (e) => {
    const form = e.target.closest("form.find");
    if (!form) return;
    clearTimeout(typing);
    typing = setTimeout(() => {
      const to = new URLSearchParams();
      for (const [k, v] of new FormData(form)) if (v && !(k === "sort" && v === "trouble")) to.set(k, v);
      history.replaceState(null, "", to.size ? "/?" + to : "/");
      busy = false;
      refresh();
    }, e.target.type === "search" ? 250 : 0);
  });

  function step(by) {
    const pools = [...document.querySelectorAll(".pool")];
    if (!pools.length) return;
    let at = pools.indexOf(document.activeElement && document.activeElement.closest(".pool"));
    at = at < 0 ? (by > 0 ? 0 : pools.length - 1) : Math.min(Math.max(at + by, 0), pools.length - 1);
    pools[at].focus({ preventScroll: true });
    pools[at].scrollIntoView({ block: "start" });
  }

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    if (e.target.closest("input, select, textarea")) {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    if (e.key === "/") {
      e.preventDefault();
      $("q").focus();
      $("q").select();
    } else if (e.key === "j" || e.key === "k") {
      step(e.key === "j" ? 1 : -1);
    }
  });

  setInterval(say, 1000);
  say();
  loop();
})();
