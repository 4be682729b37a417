// Package browser tests the dashboard in a real browser, headless Chromium, against a
// daemon that observes real backends on loopback. It is a module of its own, so that
// the daemon does not require what drives a browser.
//
// make test-browser runs it. It also takes the pictures in docs/.
package browser
