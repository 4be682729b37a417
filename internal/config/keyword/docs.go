package keyword

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Doc writes docs/configuration.md, the reference that is made from the table.
func Doc(w io.Writer) error {
	b := bufio.NewWriter(w)
	x := newIndex()
	b.WriteString(docHead)
	seen := map[string]bool{}
	for i := range x.rows {
		if block := x.rows[i].block; !seen[block] {
			seen[block] = true
			docBlock(b, x, block)
		}
	}
	b.WriteString(docGroup)
	b.WriteString(docProtection)
	b.WriteString(docClose)
	b.WriteString(docTLS)
	b.WriteString(docVIP)
	b.WriteString("\n## Checkers: defaults\n\n")
	b.WriteString(docCheckers)
	b.WriteString("\n## Findings\n\nF: the configuration cannot be used. E: keepalived would go on with a changed meaning, and so does\n" +
		"sluice at start; a reload and `--strict` refuse it. W: a warning. N: a notice. The last column is the exit\n" +
		"status of a configuration test that finds it alone. Codes below 100 are of the language (quotes, braces,\n" +
		"includes, definitions); the texts say what they mean.\n\n| code | finding | status |\n|---|---|---|\n")
	for _, c := range codes() {
		fmt.Fprintf(b, "| %s | %s | %d |\n", c.id, cell(c.title), c.status())
	}
	return b.Flush()
}

// docBlock writes one block's table.
func docBlock(b *bufio.Writer, x *index, block string) {
	name := block
	if block == blockTop {
		name = "Top level"
	}
	fmt.Fprintf(b, "\n## %s\n\n| keyword | arguments | default | here | meaning |\n|---|---|---|---|---|\n", name)
	var quiet []string
	for i := range x.rows {
		k := &x.rows[i]
		if k.block != block {
			continue
		}
		if k.status == Accepted && k.doc == "of VRRP or BFD" {
			quiet = append(quiet, "`"+k.name+"`")
			continue
		}
		args := cell(k.arg.String())
		if k.opens != "" {
			args = strings.TrimSpace(args + " { }")
		}
		if args != "" {
			args = "`" + args + "`"
		}
		here := k.status.String()
		if k.extension {
			here = "extension"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", k.name, args, cell(k.def), here, cell(k.doc))
	}
	if len(quiet) > 0 {
		fmt.Fprintf(b, "\nRead in silence, since they are of VRRP or BFD: %s.\n", strings.Join(quiet, " "))
	}
}

// cell makes a text fit into a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

const docHead = `# Configuration

<!-- Made from the keyword table by internal/config/keyword; "go test ./internal/config/keyword -update" writes it. -->

sluice reads the LVS half of a keepalived.conf. This page lists every keyword it knows, what it may be
given, and what is used without it.

Column *here*: **yes** has its effect; **no effect** is read in silence; **not yet** is read and checked, and
one warning says what is missing; **skipped** blocks are passed over with one notice; an **extension** is a
word of sluice that keepalived does not know. A word without effect is judged all the same if its arguments are
given here. In a file that keepalived reads as well, write an extension as a
comment: ` + "`#sluice drain_interval 30`" + `.

BOOL is one of on, off, true, false, yes, no; without it the keyword means yes. TIMER is a number of seconds
with up to six decimals and no unit: keepalived takes ` + "`5s`" + ` for five microseconds, sluice refuses it. SCRIPT is a
command with its parameters inside one pair of quotes; it is not run by a shell. IP is an address without a
prefix or a zone. A port of only zeros is no port.

A value that cannot be read is reported and its line ignored, so that the default is used. (keepalived takes
the digits in front, or 0: its ` + "`weight x`" + ` drains the server.) A word that keepalived does not know is reported
and skipped, with its whole block.

What differs from keepalived on purpose:

- an unknown scheduler or forwarding method rejects the virtual server, or the real server if it stands there;
- the same real server twice: the second one's checkers are added to the first;
- the same virtual server twice: the real servers are merged if the two agree on everything else, otherwise the
  first one serves;
- ranges of a group are expanded by arithmetic, over any boundary, to 65536 addresses for each group;
- ` + "`persistence_granularity`" + ` works for groups;
- a checker of a real server without a port takes the service's port, and is an error if there is none;
- if all weights are 0 the quorum stays 1;
- a track file may be defined after its use;
- ` + "`ha_suspend`" + ` works for groups without firewall marks;
- an ` + "`SMTP_CHECK`" + ` inherits ` + "`connect_timeout`" + ` as every checker does, wherever it stands; keepalived's takes what stands
  before the end of its block, and a warning tells where the two differ;
- ` + "`lvs_sync_daemon`" + ` with a VRRP instance: no VRRP runs here, so that ` + "`lvs_sync_state`" + ` says which half runs;
- ` + "`set_supplementary_groups`" + ` is for every script, not for those after it alone;
- ` + "`state_dump_file`" + ` must be given for a dump to be written, and ` + "`config_save_dir`" + ` saves nothing of a reload that was
  refused;
- ` + "`--observe`" + ` makes no ` + "`reload_file`" + ` and deletes no ` + "`reload_time_file`" + `: they are the other daemon's.

What is taken where it stands, as in keepalived: ` + "`script_user`" + ` is for the scripts and FIFOs after it, a real or sorry
server takes the ` + "`lvs_method`" + ` that its virtual server has at that line, and ` + "`sh-port`" + ` and its like need ` + "`lvs_sched`" + ` before
them.
`

// docCheckers is the table of what checkers inherit.
const docCheckers = `What a checker does not say itself it takes from its real server, then from its virtual server, then from this table.

| | retry | delay_before_retry | rise | delay_loop | warmup | connect_timeout | port |
|---|---|---|---|---|---|---|---|
| TCP_CHECK | 1 | 1 s | 1 | 60 s | its delay_loop | 5 s | the real server's |
| HTTP_GET, SSL_GET | 1 | 3 s | 2; 1 with fast_recovery | 60 s | its delay_loop | 5 s | the real server's |
| SMTP_CHECK | 1 | 1 s | 1 | 60 s | its delay_loop | 5 s | the real server's |
| DNS_CHECK | 3 | its delay_loop | 1 | 60 s | its delay_loop | 5 s | the real server's |
| UDP_CHECK | 1 | 1 s | 1 | 60 s | its delay_loop | 5 s | the real server's |
| PING_CHECK | 1 | 1 s | 1 | 60 s | its delay_loop | 5 s | none |
| MISC_CHECK | 0 | 1 s | 1 | 60 s | its delay_loop | none; misc_timeout, else the virtual server's delay_loop | none |
| FILE_CHECK | acts at once on each change of the file | | | | | | |

A real server's port is the one that is written. Without one a checker takes the service's port, where keepalived
would connect to port 0. ` + "`smtp_alert`" + ` is inherited too: a virtual or real server that does not say it takes
` + "`smtp_alert_checker`" + `, then the ` + "`smtp_alert`" + ` of global_defs, then off for a virtual and on for a real server.
`

const docGroup = `
## virtual_server_group

Each line is one entry: ` + "`IP [PORT]`, `A.B.C.D-N [PORT]` (last octet, decimal), `v6-N [PORT]` (last 16 bits,\nhexadecimal), `A-B [PORT]` (full end address), `A/M [PORT]` (all addresses of a network), `fwmark N\n[inet|inet6]`" + `. An entry that cannot be read is skipped with an error.
`
