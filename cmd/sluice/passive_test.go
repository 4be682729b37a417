package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
)

// switched answers as a daemon whose switch is turned.
func switched(t *testing.T, is control.Passive, keyword bool, failure error) (socket string, now *control.Passive) {
	t.Helper()
	srv, socket, serve := listening(t)
	now = &is
	srv.OfferPassive(func(context.Context) control.Passive { return *now },
		func(_ context.Context, on bool, _, reason string) error {
			if failure != nil {
				return failure
			}
			now.Passive, now.Sources = on || keyword, []engine.PassiveSource{}
			if keyword {
				now.Sources = append(now.Sources, engine.PassiveSource{Source: engine.PassiveByConfiguration, Who: "the configuration", Why: "passive on"})
			}
			if on {
				now.Sources = append(now.Sources, byRoot(reason)...)
			}
			return failure
		})
	serve()
	return socket, now
}

func byRoot(why string) []engine.PassiveSource {
	return []engine.PassiveSource{{Source: engine.PassiveByCommand, Who: "root", Why: why}}
}

func TestPassive(t *testing.T) {
	busy := control.Passive{VirtualServers: 3, Services: 3, Connections: 12, Addresses: 2, Delay: time.Second}
	for name, tt := range map[string]struct {
		args    []string
		is      control.Passive
		keyword bool
		failure error
		status  int
		says    string
	}{
		"shown":               {args: nil, is: busy, says: "not passive: 3 virtual servers served"},
		"shown while it is":   {args: nil, is: control.Passive{Passive: true, Sources: byRoot("disk"), Services: 1, Connections: 1}, says: "passive by root: disk; 1 connection on 1 service left"},
		"on":                  {args: []string{"on", "--reason", "disk"}, is: busy, says: "passive by root: disk\n3 virtual servers withheld: addresses are withdrawn now, services drain after 1s; 12 connections on 3 services left, addresses still announced: 2"},
		"on with nothing":     {args: []string{"on"}, is: control.Passive{}, says: "nothing of it is in the table"},
		"off":                 {args: []string{"off"}, is: control.Passive{Passive: true, VirtualServers: 3}, says: "passive no longer: 3 virtual servers come back"},
		"off by half":         {args: []string{"off"}, is: control.Passive{Passive: true}, keyword: true, status: exitRefused, says: "still passive by the configuration: passive on"},
		"on by two":           {args: []string{"on"}, is: busy, keyword: true, says: "passive by the configuration: passive on, and by root"},
		"refused":             {args: []string{"on"}, failure: &engine.CommandError{Code: engine.CodeRefused, Message: "observe mode"}, status: exitRefused, says: "observe mode"},
		"broken":              {args: []string{"on"}, failure: errors.New("loop"), status: exitUnreachable, says: "loop"},
		"waited":              {args: []string{"on", "--wait"}, is: control.Passive{VirtualServers: 3}, says: "drained, nothing of it is in the table"},
		"time over":           {args: []string{"on", "--wait", "--timeout", "5ms"}, is: busy, status: exitTimeout, says: "not drained within 5ms, 12 connections on 3 services left"},
		"another word":        {args: []string{"yes"}, status: exitUsage, says: `"yes" is neither on nor off`},
		"two words":           {args: []string{"on", "off"}, status: exitUsage, says: "unexpected"},
		"wait for off":        {args: []string{"off", "--wait"}, status: exitUsage, says: "--wait goes with on"},
		"timeout for nothing": {args: []string{"on", "--timeout", "5s"}, status: exitUsage, says: "--timeout bounds --wait"},
		"reason for nothing":  {args: []string{"--reason", "x"}, status: exitUsage, says: "--reason"},
		"help":                {args: []string{"--help"}, says: "Exit statuses"},
	} {
		t.Run(name, func(t *testing.T) {
			socket, now := switched(t, tt.is, tt.keyword, tt.failure)
			before := now.Passive
			status, stdout, stderr := typed(append(append([]string{"passive"}, tt.args...), "--socket", socket)...)
			if status != tt.status || !strings.Contains(stdout+stderr, tt.says) {
				t.Errorf("status %d, want %d and %q\nstdout %s\nstderr %s", status, tt.status, tt.says, stdout, stderr)
			}
			if status == exitUsage && now.Passive != before {
				t.Errorf("done all the same: %+v", *now)
			}
		})
	}
	if status, _, _ := typed("passive", "--socket", "/nonexistent/s.sock"); status != exitUnreachable {
		t.Errorf("without a daemon: %d", status)
	}
}

// TestPassiveJSON: what a program gets is as docs/schema says, whatever the argument.
func TestPassiveJSON(t *testing.T) {
	for _, args := range [][]string{{}, {"on", "--reason", "x"}, {"on", "--wait"}, {"off"}} {
		socket, _ := switched(t, control.Passive{Sources: byRoot("x")}, false, nil)
		status, stdout, stderr := typed(append(append([]string{"passive"}, args...), "--json", "--socket", socket)...)
		var p control.Passive
		if n, err := holds("passive", stdout); status != exitOK || n != 1 || err != nil || json.Unmarshal([]byte(stdout), &p) != nil || p.Passive != (len(args) > 0 && args[0] == "on") {
			t.Errorf("%v: status %d, %d values, %v: %s%s", args, status, n, err, stdout, stderr)
		}
	}
}

func TestPassiveWait(t *testing.T) {
	gone := errors.New("sluiced is not running")
	full := control.Passive{Passive: true, Services: 2, Connections: 5, Addresses: 1}
	quiet := control.Passive{Passive: true, Services: 2} // vip_delay: in the table, though idle
	done := control.Passive{Passive: true}
	for name, tt := range map[string]struct {
		answers  []any
		terminal bool
		limit    time.Duration
		status   int
		took     time.Duration
		says     string
	}{
		"until it is out of the table": {answers: []any{full, quiet, done}, took: 2 * time.Second, says: "5 connections on 2 services left, addresses still announced: 1 after 0s\ndrained, nothing of it is in the table; it took 2s\n"},
		"on a terminal":                {answers: []any{full, quiet, done}, terminal: true, took: 2 * time.Second, says: "\r\x1b[K0 connections on 2 services left after 1s\r\x1b[Kdrained"},
		"the time is over":             {answers: []any{full}, limit: 2500 * time.Millisecond, status: exitTimeout, took: 2500 * time.Millisecond, says: "not drained within 2.5s"},
		"of what was taken over":       {answers: []any{control.Passive{Passive: true, Services: 1, Connections: 5}}, limit: time.Second, status: exitTimeout, took: time.Second, says: "5 connections on 1 service left; it stays passive\n  connections that another director has taken over count"},
		"what is around the table":     {answers: []any{control.Passive{Passive: true, Pending: true}, done}, took: time.Second, says: "its addresses, guard and marks are not reported gone yet after 0s\ndrained"},
		"an address that stays":        {answers: []any{control.Passive{Passive: true, Addresses: 1, Failures: []engine.EdgeFailure{{Feature: "vip_device", Reason: "vip_device: no permission"}}}}, limit: time.Second, status: exitTimeout, took: time.Second, says: "addresses still announced: 1; vip_device: no permission; it stays passive"},
		"somebody ends it":             {answers: []any{full, control.Passive{}}, status: exitEnded, took: time.Second, says: "somebody else has ended it"},
		"a restart of the daemon":      {answers: []any{full, gone, gone, done}, took: 3 * time.Second, says: "drained"},
		"the daemon is gone":           {answers: []any{full, gone}, status: exitUnreachable, took: 30 * time.Second, says: "not running"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				i := 0
				w := withdrawal{limit: tt.limit, terminal: tt.terminal, switching: &switching{app: &app{stdout: &out, stderr: &out}}}
				w.state = func(context.Context) (control.Passive, error) {
					a := tt.answers[min(i, len(tt.answers)-1)]
					i++
					if err, bad := a.(error); bad {
						return control.Passive{}, err
					}
					return a.(control.Passive), nil
				}
				begun := time.Now()
				status := w.watch(t.Context())
				if took := time.Since(begun); status != tt.status || took != tt.took || !strings.Contains(out.String(), tt.says) {
					t.Errorf("status %d after %v, want %d after %v and %q:\n%q", status, took, tt.status, tt.took, tt.says, out.String())
				}
			})
		})
	}
}
