package keyword

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// setDNSName rejects a name with an empty label, as keepalived does, and one
// that no query can hold, which keepalived sends all the same. One trailing dot
// is fine.
func setDNSName(f *frame, v *value) {
	name := strings.TrimSuffix(v.text, ".")
	bad := func(why string) {
		f.report(codeWord, v.n, v.w, fmt.Sprintf("name: %q %s", v.text, why), "write labels of 1-63 octets with dots between, 253 in all; "+f.ignored(v.kw))
	}
	if name == "" {
		f.ck.dns.Name = v.text
		return
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			bad("has an empty label")
			return
		case len(label) > 63:
			bad("has a label of more than 63 octets")
			return
		}
	}
	if len(name) > 253 {
		bad("is longer than 253 octets")
		return
	}
	f.ck.dns.Name = v.text
}

func setPayload(f *frame, v *value) {
	if octets, _, ok := f.hex(v, false, "the line is ignored; without it the default is "+v.kw.def); ok {
		f.ck.udp.Payload = octets
	}
}

func setRequireReply(f *frame, v *value) {
	f.ck.udp.Require = true
	if len(v.n.Args()) == 0 {
		return
	}
	if octets, mask, ok := f.hex(v, true, "any answer is taken, as keepalived does"); ok {
		f.ck.udp.Reply, f.ck.udp.Mask = octets, mask
	}
}

// hex reads the words of a line as octets and the bits of them that count. A
// digit alone is an octet; wild allows x for a digit that does not count.
func (f *frame) hex(v *value, wild bool, then string) (octets, mask []byte, ok bool) {
	args := v.n.Args()
	for i := range args {
		for group := range strings.FieldsSeq(args[i].Text) {
			for len(group) > 0 {
				pair := group[:min(2, len(group))]
				group = group[len(pair):]
				octet, bits, good := hexOctet(pair, wild)
				if !good {
					allowed := "hexadecimal digits, two for each octet"
					if wild {
						allowed += ", with x for any digit"
					}
					f.report(codeHex, v.n, &args[i], fmt.Sprintf("%s: %q is not hexadecimal", v.kw.name, args[i].Text), "write "+allowed+"; "+then)
					return nil, nil, false
				}
				octets, mask = append(octets, octet), append(mask, bits)
			}
		}
	}
	if len(octets) == 0 {
		f.report(codeHex, v.n, &args[0], v.kw.name+": there are no hexadecimal digits", "write two for each octet; "+then)
		return nil, nil, false
	}
	return octets, mask, true
}

// hexOctet reads one or two digits. A digit alone has 0 before it.
func hexOctet(digits string, wild bool) (octet, bits byte, ok bool) {
	bits = 0xff
	for i := range len(digits) {
		octet <<= 4
		if i > 0 {
			bits = bits<<4 | 0xf
		}
		switch c := digits[i]; {
		case c >= '0' && c <= '9':
			octet |= c - '0'
		case c >= 'a' && c <= 'f':
			octet |= c - 'a' + 10
		case c >= 'A' && c <= 'F':
			octet |= c - 'A' + 10
		case wild && (c == 'x' || c == 'X'):
			bits &= 0xf0
		default:
			return 0, 0, false
		}
	}
	return octet, bits, true
}

func setMiscUser(f *frame, v *value) {
	args := v.n.Args()
	f.surplus(v.n, 2)
	user := [2]string{args[0].Text}
	if len(args) > 1 {
		user[1] = args[1].Text
	}
	f.ck.miscUser.set(user)
}

// inherited is the first of a chain that is given.
func inherited[T any](chain ...opt[T]) opt[T] {
	for _, o := range chain {
		if o.ok {
			return o
		}
	}
	return opt[T]{}
}

// lateTimeout warns of an SMTP_CHECK whose connect_timeout keepalived would not
// see: it inherits what stands before the end of its block. Here it is one
// chain for every checker.
func (b *builder) lateTimeout(d *draft, r *rawReal, c *rawChecker) {
	const builtin = 5 * time.Second
	now := inherited(r.timeout, d.raw.timeout).or(builtin)
	if before := c.seenTimeout.or(builtin); c.kind == config.SMTPCheck && !c.timeout.ok && now != before {
		c.f.reportBlock(codeTimeoutLate, fmt.Sprintf("SMTP_CHECK of %s inherits a connect_timeout that stands after it", title(r.f.n)),
			fmt.Sprintf("%s s is used; keepalived would use %s s, so write connect_timeout before the check, or in it", seconds(now), seconds(before)))
	}
}

// misc resolves what MISC_CHECK has of its own; nil if there is no script.
func (b *builder) misc(d *draft, c *rawChecker) *config.Misc {
	if c.misc == nil {
		c.f.reportBlock(codeMiscPath, "MISC_CHECK without a usable misc_path", "it is dropped, as keepalived does, and the real server is not checked by it; write misc_path SCRIPT in it")
		return nil
	}
	if u := c.miscUser; u.ok {
		c.misc.User, c.misc.Group = u.v[0], u.v[1]
	}
	// The check's and the real server's delay_loop do not count here.
	loop := d.raw.delayLoop.or(defaultDelayLoop)
	return &config.Misc{Script: c.misc, Timeout: cmp.Or(c.miscTimeout, loop), Dynamic: c.miscDynamic}
}

// own resolves what a kind of checker has of its own.
func (b *builder) own(c *rawChecker, ck *config.Checker) {
	switch c.kind {
	case config.SMTPCheck:
		ck.SMTP = b.pool.smtp.of(config.SMTP{Helo: b.pool.text(cmp.Or(c.helo, config.DefaultHelo))})
	case config.DNSCheck:
		ck.DNS = b.pool.dns.of(config.DNS{Type: b.pool.text(cmp.Or(c.dns.Type, "SOA")), Name: b.pool.text(c.dns.Name)})
	case config.UDPCheck:
		u := c.udp
		u.Min, u.Max = c.minReply.or(0), c.maxReply.or(255)
		ck.UDP = &u
	}
}

// noteSilent remembers UDP checks that take silence for success on a real server
// that no other check looks at.
func (b *builder) noteSilent(checkers []*rawChecker) {
	var silent []*rawChecker
	for _, c := range checkers {
		switch {
		case c.kind == config.UDPCheck && !c.udp.Require:
			silent = append(silent, c)
		case c.kind != config.FileCheck:
			return
		}
	}
	b.silent = append(b.silent, silent...)
}

// silentNotice is said once for a file.
func (b *builder) silentNotice() {
	if len(b.silent) == 0 {
		return
	}
	var notes []string
	if n := len(b.silent); n > 1 {
		notes = append(notes, fmt.Sprintf("and %d more in this configuration", n-1))
	}
	b.silent[0].f.reportBlock(codeSilentUDP, "UDP_CHECK without require_reply cannot see a dead host: silence is success",
		"write require_reply, or add a PING_CHECK; only an ICMP error fails this check", notes...)
}

// fileTest tells whether a script is the test of a file: "<" and a path. The two
// may stand apart; they are joined.
func fileTest(argv []string) ([]string, bool) {
	if len(argv) > 1 && argv[0] == "<" && strings.HasPrefix(argv[1], "/") {
		argv = append([]string{"<" + argv[1]}, argv[2:]...)
	}
	return argv, len(argv) > 0 && strings.HasPrefix(argv[0], "</")
}
