package metrics

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

const dashboardFile = "../../configs/grafana-dashboard.json"

// object is one of JSON's.
type object = map[string]any

// board lays panels out in rows, from the left and then down.
type board struct {
	panels  []object
	x, y, h int
}

const wide = 24 // of Grafana's grid

var source = object{"type": "prometheus", "uid": "${datasource}"}

func (b *board) place(p object, w, h int) {
	if b.x+w > wide {
		b.x, b.y = 0, b.y+b.h
	}
	p["id"], p["gridPos"] = len(b.panels)+1, object{"x": b.x, "y": b.y, "w": w, "h": h}
	b.x, b.h = b.x+w, h
	b.panels = append(b.panels, p)
}

func (b *board) row(title string) {
	if b.x > 0 {
		b.x, b.y = 0, b.y+b.h
	}
	b.place(object{"type": "row", "title": title, "collapsed": false, "panels": []object{}}, wide, 1)
	b.x, b.y = 0, b.y+1
}

// query is one series of a panel. Instances and virtual servers are filled in: I and VS
// stand for their matchers.
type query struct{ expr, legend string }

func (q query) target(i int, format string, instant bool) object {
	expr := strings.NewReplacer("{VS", `{instance=~"$instance",virtual_server=~"$virtual_server"`, "{I", `{instance=~"$instance"`).Replace(q.expr)
	return object{"refId": string(rune('A' + i)), "datasource": source, "expr": expr, "legendFormat": q.legend,
		"format": format, "instant": instant, "range": !instant, "editorMode": "code"}
}

func targets(format string, instant bool, qs []query) (all []object) {
	for i, q := range qs {
		all = append(all, q.target(i, format, instant))
	}
	return all
}

func panel(kind, title, help, unit string, ts []object) object {
	return object{"type": kind, "title": title, "description": help, "datasource": source, "targets": ts,
		"fieldConfig": object{"defaults": object{"unit": unit}, "overrides": []object{}}, "options": object{}}
}

// graph is a panel over time.
func (b *board) graph(w int, title, help, unit string, qs ...query) {
	p := panel("timeseries", title, help, unit, targets("time_series", false, qs))
	defaults := p["fieldConfig"].(object)["defaults"].(object)
	defaults["min"] = 0
	defaults["custom"] = object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": false}
	p["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	b.place(p, w, 8)
}

// stat is one number; bad is what makes it red, 0 for nothing.
func (b *board) stat(title, help, unit string, bad float64, q query) {
	p := panel("stat", title, help, unit, targets("time_series", true, []query{q}))
	steps := []object{{"color": "green", "value": nil}}
	if bad > 0 {
		steps = append(steps, object{"color": "red", "value": bad})
	}
	p["fieldConfig"].(object)["defaults"].(object)["thresholds"] = object{"mode": "absolute", "steps": steps}
	p["options"] = object{"colorMode": "value", "graphMode": "none", "textMode": "value_and_name",
		"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}}
	b.place(p, 4, 4)
}

func (b *board) heatmap(w int, title, help string, q query) {
	p := panel("heatmap", title, help, "s", targets("heatmap", false, []query{q}))
	p["options"] = object{"calculate": false, "cellGap": 1, "color": object{"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
		"yAxis": object{"unit": "s", "axisPlacement": "left"}, "tooltip": object{"show": true, "yHistogram": true}, "legend": object{"show": true}}
	b.place(p, w, 8)
}

// table is a line for each series, with the columns that are named.
func (b *board) table(w int, title, help string, hide []string, q query) {
	p := panel("table", title, help, "short", targets("table", true, []query{q}))
	hidden := object{"Time": true, "__name__": true, "job": true}
	for _, h := range hide {
		hidden[h] = true
	}
	p["transformations"] = []object{{"id": "organize", "options": object{"excludeByName": hidden}}}
	p["options"] = object{"showHeader": true, "sortBy": []object{{"displayName": "Value", "desc": true}}}
	b.place(p, w, 8)
}

// dashboard is all of it.
func dashboard() object {
	b := &board{}
	overview(b)
	pools(b)
	checkPanels(b)
	drainPanels(b)
	edgePanels(b)
	kernelPanels(b)
	processPanels(b)
	choice := func(name, label, q string) object {
		return object{"type": "query", "name": name, "label": label, "datasource": source, "definition": q,
			"query": object{"query": q, "refId": name}, "refresh": 2, "sort": 1, "multi": true, "includeAll": true,
			"allValue": ".*", "current": object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}}
	}
	return object{
		"id": nil, "uid": "sluice", "title": "sluice", "tags": []string{"sluice", "ipvs"}, "schemaVersion": 38, "version": 1,
		"editable": true, "graphTooltip": 1, "refresh": "30s", "timezone": "browser", "time": object{"from": "now-3h", "to": "now"},
		"description": "What a health-checking IPVS daemon does: pools, checks, drains, the kernel's table and the process.",
		"annotations": object{"list": []object{{
			"name": "Reloads", "datasource": source, "enable": true, "iconColor": "blue", "titleFormat": "Reload", "textFormat": "{{instance}}",
			"expr": `changes(sluice_config_generation{instance=~"$instance"}[$__interval]) > 0`,
		}}},
		"templating": object{"list": []object{
			{"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1, "multi": false, "includeAll": false, "current": object{}},
			choice("instance", "Instance", `label_values(sluice_build_info, instance)`),
			choice("virtual_server", "Virtual server", `label_values(sluice_virtual_server_quorum{instance=~"$instance"}, virtual_server)`),
		}},
		"panels": b.panels,
	}
}

func overview(b *board) {
	b.row("Overview")
	b.stat("Virtual servers", "", "short", 0, query{`sum(sluice_virtual_servers{I})`, "configured"})
	b.stat("Without quorum", "Too few of their real servers are up.", "short", 1, query{`count(sluice_virtual_server_quorum_up{VS} == 0) or vector(0)`, "virtual servers"})
	b.stat("Sorry servers that serve", "", "short", 1, query{`sum(sluice_virtual_server_sorry_serving{VS}) or vector(0)`, "virtual servers"})
	b.stat("Real servers down", "Their checks failed.", "short", 1, query{`sum(sluice_virtual_server_real_servers{VS,state="down"})`, "real servers"})
	b.stat("At their floor", "min_alive keeps failed servers in service.", "short", 1, query{`sum(sluice_virtual_server_at_floor{VS}) or vector(0)`, "virtual servers"})
	b.stat("Kernel", "Daemons that cannot read or write the IPVS table.", "short", 1, query{`count(sluice_kernel_up{I} == 0) or vector(0)`, "not writable"})
	b.stat("Reload refused", "Daemons that run an older configuration than their file.", "short", 1, query{`count(sluice_config_last_reload_successful{I} == 0) or vector(0)`, "daemons"})
	b.stat("Drains", "Destinations that drain before they are deleted.", "short", 0, query{`sum(sluice_drains{I})`, "destinations"})
	b.stat("Commands in force", "What operators asked for: sluice drain and weight.", "short", 0, query{`sum(sluice_overrides{I})`, "commands"})
	b.stat("Drift", "Changes by others that are not put back.", "short", 1, query{`sum(sluice_kernel_drift{I})`, "differences"})
	b.stat("Most overdue check", "", "s", 10, query{`max(sluice_checks_overdue_seconds{I})`, "late"})
	b.stat("Suspended", "Their address is on another host (ha_suspend).", "short", 0, query{`sum(sluice_virtual_servers_suspended{I})`, "virtual servers"})
	b.stat("Passive", "Directors that check and withhold their services.", "short", 0, query{`sum(sluice_passive{I})`, "directors"})
	b.stat("Addresses announced", "On a vip_device.", "short", 0, query{`sum(sluice_addresses_announced{I}) or vector(0)`, "addresses"})
	b.stat("Addresses missing", "They should be on their vip_device and are not.", "short", 1, query{`sum(sluice_virtual_server_addresses_missing{VS}) or vector(0)`, "addresses"})
	b.stat("Features that fail", "vip_device, vip_guard or nftables_ipvs does not work.", "short", 1, query{`count(sluice_feature_up{I} == 0) or vector(0)`, "features"})
	b.stat("Sync daemons not running", "Halves of lvs_sync_daemon that are wanted.", "short", 1, query{`count(sluice_sync_daemon_wanted{I} == 1 and sluice_sync_daemon_up{I} == 0) or vector(0)`, "halves"})
}

func pools(b *board) {
	b.row("Pools")
	b.graph(12, "Real servers by state", "", "short", query{`sum by (state) (sluice_virtual_server_real_servers{VS})`, "{{state}}"})
	b.graph(12, "Weight that is up", "The line that is drawn with it is the quorum.", "short",
		query{`sluice_virtual_server_alive_weight{VS}`, "{{virtual_server}}"}, query{`sluice_virtual_server_quorum{VS}`, "{{virtual_server}} quorum"})
	b.table(12, "Without quorum", "", []string{"family"}, query{`sluice_virtual_server_quorum_up{VS} == 0`, ""})
	b.table(12, "Fewest servers up", "The part of each pool that is up.", []string{"family"}, query{`bottomk(20, sum without (state) (sluice_virtual_server_real_servers{VS,state="up"}) / (sum without (state) (sluice_virtual_server_real_servers{VS}) > 0))`, ""})
	b.graph(12, "Sorry servers and floors", "", "short",
		query{`sum by (virtual_server) (sluice_virtual_server_sorry_serving{VS}) > 0`, "{{virtual_server}} sorry server"},
		query{`sum by (virtual_server) (sluice_virtual_server_at_floor{VS}) > 0`, "{{virtual_server}} at min_alive"})
	b.graph(12, "Weights that differ", "Destinations whose weight in the kernel is not the wanted one.", "short", query{`sluice_virtual_server_destinations_mismatched{VS} > 0`, "{{virtual_server}}"})
	b.table(24, "Real servers that are not up", "Only with metrics_detail server.", []string{"family"}, query{`sluice_real_server_state{VS,state!="up"}`, ""})
}

func checkPanels(b *board) {
	b.row("Checks")
	b.heatmap(12, "How long checks take", "All kinds; those that failed at their timeout are at the top.", query{`sum by (le) (increase(sluice_check_duration_seconds_bucket{I}[$__rate_interval]))`, "{{le}}"})
	b.graph(12, "99th percentile by kind", "", "s", query{`histogram_quantile(0.99, sum by (checker, le) (rate(sluice_check_duration_seconds_bucket{I}[$__rate_interval])))`, "{{checker}}"})
	b.graph(8, "Checks a second", "", "short", query{`sum by (checker, result) (rate(sluice_checks_total{I}[$__rate_interval]))`, "{{checker}} {{result}}"})
	b.graph(8, "Failures by stage", "How far the checks came that failed.", "short", query{`sum by (checker, stage) (rate(sluice_check_failures_total{I}[$__rate_interval]))`, "{{checker}} {{stage}}"})
	b.table(12, "Certificates that end first", "Days left of what checks over TLS saw.", []string{"family"}, query{`bottomk(20, (sluice_virtual_server_certificate_expiry_timestamp_seconds{VS} - time()) / 86400)`, ""})
	b.graph(12, "Late checks", "How late the most overdue one is.", "s", query{`sluice_checks_overdue_seconds{I}`, "{{instance}}"})
	b.graph(12, "Slowest last runs", "Only with metrics_detail server.", "s", query{`topk(10, sluice_check_last_duration_seconds{VS})`, "{{virtual_server}} {{remote_address}} {{checker}}"})
	b.table(12, "Failing now", "Only with metrics_detail server: attempts in a row, of which the limit is a verdict.", []string{"family"}, query{`sluice_check_failed_attempts{VS} > 0`, ""})
}

func drainPanels(b *board) {
	b.row("Drains and commands")
	b.graph(8, "Destinations that drain", "", "short", query{`sluice_virtual_server_drains{VS} > 0`, "{{virtual_server}}"}, query{`sluice_drains{I}`, "{{instance}} all"})
	b.graph(8, "Connections that are waited for", "", "short", query{`sluice_drain_connections{I}`, "{{instance}} {{state}}"})
	b.graph(8, "Oldest", "", "s", query{`sluice_drain_oldest_seconds{I}`, "{{instance}} drain"}, query{`sluice_override_oldest_seconds{I}`, "{{instance}} command"})
}

func edgePanels(b *board) {
	b.row("Addresses and other directors")
	b.graph(12, "Addresses announced", "Those on a vip_device: clients come to the directors that have them.", "short", query{`sluice_addresses_announced{I}`, "{{instance}}"})
	b.graph(12, "Passive", "1: the director checks and withholds its services.", "short", query{`sluice_passive{I}`, "{{instance}}"})
	b.table(12, "Not announced", "Virtual servers whose addresses are not to be on their device now: without quorum (vip_follow quorum), or of a passive director.", []string{"family"}, query{`sluice_virtual_server_addresses_announced{VS} == 0`, ""})
	b.table(12, "Addresses missing", "", []string{"family"}, query{`sluice_virtual_server_addresses_missing{VS} > 0`, ""})
	b.graph(12, "Put back", "Addresses and parts of tables of nftables that somebody else took away.", "short", query{`increase(sluice_host_repaired_total{I}[$__rate_interval])`, "{{instance}}"})
	b.graph(12, "Features", "1: vip_device, vip_guard or nftables_ipvs works.", "short", query{`sluice_feature_up{I}`, "{{instance}} {{feature}}"})
	b.graph(8, "Sync daemons", "1: the kernel runs this half of lvs_sync_daemon.", "short", query{`sluice_sync_daemon_up{I}`, "{{instance}} {{state}}"})
	b.graph(8, "Messages that wait", "In the sockets of the sync daemons.", "bytes", query{`sluice_sync_daemon_queue_bytes{I}`, "{{instance}} {{state}}"})
	b.graph(8, "Messages dropped", "Connections that this director does not know of.", "short", query{`increase(sluice_sync_daemon_receive_drops_total{I}[$__rate_interval])`, "{{instance}} {{state}}"})
}

func kernelPanels(b *board) {
	b.row("Kernel")
	b.heatmap(12, "From verdict to kernel", "From a check's verdict until the kernel acknowledged what it changed.", query{`sum by (le) (increase(sluice_verdict_to_kernel_seconds_bucket{I}[$__rate_interval]))`, "{{le}}"})
	b.graph(12, "99th percentiles", "", "s",
		query{`histogram_quantile(0.99, sum by (instance, le) (rate(sluice_verdict_to_kernel_seconds_bucket{I}[$__rate_interval])))`, "{{instance}} verdict to kernel"},
		query{`histogram_quantile(0.99, sum by (instance, le) (rate(sluice_engine_lag_seconds_bucket{I}[$__rate_interval])))`, "{{instance}} lag of the loop"},
		query{`histogram_quantile(0.99, sum by (instance, le) (rate(sluice_engine_turn_duration_seconds_bucket{I}[$__rate_interval])))`, "{{instance}} turn of the loop"})
	b.graph(8, "Changes a second", "", "short", query{`sum by (operation) (rate(sluice_kernel_operations_total{I}[$__rate_interval]))`, "{{operation}}"})
	b.graph(8, "Errors a second", "", "short",
		query{`sum by (operation) (rate(sluice_kernel_operation_errors_total{I}[$__rate_interval])) > 0`, "{{operation}}"},
		query{`sum by (call) (rate(sluice_kernel_call_errors_total{I,call=~"list_.*"}[$__rate_interval])) > 0`, "{{call}}"})
	b.graph(8, "Average time of calls", "", "s", query{`sum by (call) (rate(sluice_kernel_call_duration_seconds_sum{I}[$__rate_interval])) / sum by (call) (rate(sluice_kernel_call_duration_seconds_count{I}[$__rate_interval]))`, "{{call}}"})
	b.graph(12, "Time since the last success", "It is read every reconcile_interval.", "s", query{`time() - sluice_kernel_last_success_timestamp_seconds{I}`, "{{instance}}"})
	b.graph(12, "Drift", "What others changed in our services.", "short", query{`increase(sluice_kernel_drift_repaired_total{I}[$__rate_interval])`, "{{instance}} put back"}, query{`sluice_kernel_drift{I}`, "{{instance}} left"})
}

func processPanels(b *board) {
	b.row("Process")
	b.table(12, "Versions", "", nil, query{`sluice_build_info{I}`, ""})
	b.graph(12, "Uptime", "", "s", query{`time() - process_start_time_seconds{I} and on (instance) sluice_build_info`, "{{instance}}"})
	b.graph(6, "Processor time", "Seconds of it in a second.", "short", query{`rate(process_cpu_seconds_total{I}[$__rate_interval]) and on (instance) sluice_build_info`, "{{instance}}"})
	b.graph(6, "Memory", "", "bytes", query{`process_resident_memory_bytes{I} and on (instance) sluice_build_info`, "{{instance}} resident"}, query{`go_memstats_heap_alloc_bytes{I} and on (instance) sluice_build_info`, "{{instance}} heap"})
	b.graph(6, "Descriptors", "", "short", query{`process_open_fds{I} and on (instance) sluice_build_info`, "{{instance}}"})
	b.graph(6, "Goroutines", "", "short", query{`go_goroutines{I} and on (instance) sluice_build_info`, "{{instance}}"})
	b.graph(12, "Reloads", "", "s", query{`sluice_config_last_reload_duration_seconds{I}`, "{{instance}} the last one took"})
	b.graph(12, "Notify", "Scripts, mails and messages to FIFOs a second.", "short",
		query{`sum by (result) (rate(sluice_notify_scripts_total{I}[$__rate_interval]))`, "scripts {{result}}"},
		query{`sum by (result) (rate(sluice_notify_mails_total{I}[$__rate_interval]))`, "mails {{result}}"},
		query{`sum by (result) (rate(sluice_notify_fifo_messages_total{I}[$__rate_interval]))`, "messages {{result}}"})
}

// TestTheDashboardIsRight: configs/grafana-dashboard.json is what is made here, its
// panels do not overlap, and each query has balanced brackets.
func TestTheDashboardIsRight(t *testing.T) {
	d := dashboard()
	var want bytes.Buffer
	out := json.NewEncoder(&want)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(d); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(dashboardFile, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := readFile(t, dashboardFile); got != want.String() {
		t.Errorf("%s is not what is made here; -update rewrites it", dashboardFile)
	}
	taken := map[[2]int]any{}
	for _, p := range d["panels"].([]object) {
		at := p["gridPos"].(object)
		for x := at["x"].(int); x < at["x"].(int)+at["w"].(int); x++ {
			for y := at["y"].(int); y < at["y"].(int)+at["h"].(int); y++ {
				if other := taken[[2]int{x, y}]; other != nil || x >= wide {
					t.Fatalf("%v stands where %v does", p["title"], other)
				}
				taken[[2]int{x, y}] = p["title"]
			}
		}
		if p["type"] == "row" {
			continue
		}
		for _, q := range p["targets"].([]object) {
			expr := q["expr"].(string)
			for _, pair := range []string{"()", "{}", "[]"} {
				if strings.Count(expr, pair[:1]) != strings.Count(expr, pair[1:]) {
					t.Errorf("%v: %s", p["title"], expr)
				}
			}
			if strings.Contains(expr, "{I") || strings.Contains(expr, "{VS") || !strings.Contains(expr, "$instance") {
				t.Errorf("%v: %s", p["title"], expr)
			}
		}
	}
	if n := len(d["panels"].([]object)); n < 40 {
		t.Errorf("only %d panels", n)
	}
}
