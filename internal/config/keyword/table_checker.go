package keyword

import (
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// checkerRows are the words that checkers share.
func checkerRows() []keyword {
	connection := []keyword{
		{name: "connect_ip", arg: address(), def: "the real server's address", doc: "where to connect to", set: setConnectIP},
		{name: "connect_port", arg: port(), def: "the real server's port as written", doc: "the port there", set: func(f *frame, v *value) { f.ck.port = uint16(v.num) }},
		{name: "bindto", arg: address(), def: "none", doc: "source address", set: func(f *frame, v *value) { f.ck.bind = v.addr }},
		{name: "bind_port", arg: port(), def: "any", doc: "source port; only with bindto", set: func(f *frame, v *value) { f.ck.bindPort = uint16(v.num) }},
		{name: "bind_if", arg: textMax(15), def: "any", doc: "interface", set: func(f *frame, v *value) { f.ck.bindIf = v.text }},
		{name: "connect_timeout", arg: timer(time.Microsecond, maxConnect), def: "the real server's", doc: "deadline from connect to the last byte",
			set: func(f *frame, v *value) { f.ck.timeout.set(v.dur) }},
		{name: "fwmark", arg: number(0, maxUint32), def: "0", doc: "mark of the check's packets", set: func(f *frame, v *value) { f.ck.mark = uint32(v.num) }},
	}
	schedule := []keyword{
		{name: "retry", arg: number(0, maxUint32), def: "the real server's", doc: "failures that are forgiven", set: func(f *frame, v *value) { f.ck.retry.set(uint32(v.num)) }},
		{name: "delay_before_retry", arg: timer(0, maxTimer), def: "the real server's", doc: "seconds before a failed check is repeated",
			set: func(f *frame, v *value) { f.ck.beforeRetry.set(v.dur) }},
		{name: "warmup", arg: timer(0, maxTimer), def: "the real server's, else the checker's delay_loop", doc: "the first check comes within this time", set: func(f *frame, v *value) { f.ck.warmup.set(v.dur) }},
		{name: "delay_loop", arg: timer(time.Microsecond, maxTimer), def: "the real server's", doc: "seconds between checks", set: func(f *frame, v *value) { f.ck.delayLoop.set(v.dur) }},
		{name: "alpha", arg: boolean(), def: "the real server's", doc: "down until proven", set: func(f *frame, v *value) { f.ck.alpha.set(v.yes) }},
		{name: "log_all_failures", arg: boolean(), def: "off", doc: "log each failing attempt", set: func(f *frame, v *value) { f.ck.logAll = v.yes }},
		{name: "rise", arg: number(1, maxUint32), extension: true, def: "the real server's", doc: "successes in a row that bring it back",
			set: func(f *frame, v *value) { f.ck.rise.set(uint32(v.num)) }},
	}
	rows := each([]string{blockTCP, blockHTTP, blockTLS, blockSMTP, blockDNS, blockUDP, blockPing}, connection...)
	rows = append(rows, each([]string{blockHost}, connection...)...)
	rows = append(rows, each([]string{blockTCP, blockHTTP, blockTLS, blockSMTP, blockHost},
		closeRow("the real server's", func(f *frame) *opt[config.Close] { return &f.ck.close }))...)
	return append(rows, each([]string{blockTCP, blockHTTP, blockTLS, blockSMTP, blockDNS, blockUDP, blockPing, blockMisc, blockHost}, schedule...)...)
}

// httpRows are the words of HTTP_GET, SSL_GET and their urls, and of FILE_CHECK.
func httpRows() []keyword {
	both := []keyword{
		{name: "nb_get_retry", arg: number(0, maxUint32), doc: "an old spelling of retry", set: func(f *frame, v *value) {
			f.report(codeNbGetRetry, v.n, &v.n.Words[0], "nb_get_retry is an old spelling of retry", "it works as retry; keepalived -t reports it as an error")
			f.ck.retry.set(uint32(v.num))
		}},
		{name: "virtualhost", arg: text(), dup: lastReported, def: "the real server's", doc: "HTTP Host of urls that give none", set: func(f *frame, v *value) { f.ck.virtualHost = v.text }},
		{name: "http_protocol", arg: words("1.0", "1.0C", "1.0c", "1.1"), def: "1.0", doc: "protocol of the request; C sends Connection: close", set: func(f *frame, v *value) {
			f.ck.protocol = map[string]config.HTTPProtocol{"1.0": config.HTTP10, "1.0C": config.HTTP10C, "1.0c": config.HTTP10C, "1.1": config.HTTP11}[v.text]
		}},
		{name: "enable_sni", arg: boolean(), def: "off", doc: "send a server name", set: func(f *frame, v *value) { f.ck.sni = v.yes }},
		{name: "sni_name", arg: arg{kind: argText, optional: true}, dup: lastReported, def: "the virtualhost", doc: "this server name for every url; switches SNI on",
			set: func(f *frame, v *value) { f.ck.sni, f.ck.sniName = true, v.text }},
		{name: "fast_recovery", arg: boolean(), def: "off", doc: "do not look twice at a server that answers again", set: func(f *frame, v *value) { f.ck.fastRecovery = v.yes }},
	}
	url := []keyword{
		{name: "path", arg: text(), dup: lastReported, doc: "sent as written; required", set: func(f *frame, v *value) { f.url.url.Path = v.text }},
		{name: "digest", arg: text(), dup: firstWins, def: "none", doc: "MD5 of the body, 32 hexadecimal digits", set: setDigest},
		{name: "status_code", arg: custom("NNN | NNN-NNN ..., 100..599", 1), dup: cumulative, def: "200-299", doc: "accepted status codes; a class such as 2xx is an extension", set: setStatus},
		{name: "virtualhost", arg: text(), dup: lastReported, def: "the checker's", doc: "HTTP Host", set: func(f *frame, v *value) { f.url.url.VirtualHost = v.text }},
		{name: "regex", arg: custom("PATTERN", 1), doc: "the answer must match", set: setRegex},
		{name: "regex_no_match", arg: flag(), def: "off", doc: "the answer must not match", set: func(f *frame, v *value) { f.url.noMatch, f.url.settingsAt = true, v.n }},
		{name: "regex_options", arg: custom("WORD ...", 1), dup: cumulative, def: "none", doc: "PCRE options by name", set: setRegexOptions},
		{name: "regex_min_offset", arg: number(0, maxInt32), def: "0", doc: "a match must start here or later",
			set: func(f *frame, v *value) { f.url.min, f.url.offsetsAt, f.url.settingsAt = int(v.num), v.n, v.n }},
		{name: "regex_max_offset", arg: number(0, maxInt32), def: "none", doc: "a match must start here or before", set: func(f *frame, v *value) {
			f.url.max.set(int(v.num))
			f.url.offsetsAt, f.url.settingsAt = v.n, v.n
		}},
		{name: "regex_stack", arg: custom("START MAX", 2), doc: "PCRE's stack; there is none here", set: func(f *frame, v *value) { f.surplus(v.n, 2) }},
	}
	rows := each([]string{blockHTTP, blockTLS}, both...)
	rows = append(rows, each([]string{blockTLS}, keyword{name: "tls_compliant", arg: boolean(), def: "off", doc: "exchange close-notify", set: func(f *frame, v *value) { f.ck.tlsCompliant = v.yes }})...)
	rows = append(rows, each([]string{blockTLS}, tlsRows()...)...)
	rows = append(rows,
		keyword{block: blockHTTP, name: "url", opens: blockURL, doc: "what to ask for; several are asked in order", open: openURL, close: closeURL},
		keyword{block: blockTLS, name: "url", opens: blockTLSURL, doc: "what to ask for; several are asked in order", open: openURL, close: closeURL})
	rows = append(rows, each([]string{blockURL, blockTLSURL}, url...)...)
	rows = append(rows, each([]string{blockTLSURL}, keyword{name: "tls_compliant", arg: boolean(), def: "off", doc: "exchange close-notify", set: func(f *frame, v *value) { f.url.url.TLSCompliant = v.yes }})...)
	return append(rows, each([]string{blockFile},
		keyword{name: "track_file", arg: text(), doc: "name of a track_file; required", set: func(f *frame, v *value) {
			f.ck.file.name, f.ck.file.n = v.text, v.n
		}},
		keyword{name: "weight", arg: custom("-2147483647..2147483647 [reverse|noreverse]", 1), def: "the track_file's", doc: "multiplies the number in the file", set: func(f *frame, v *value) {
			f.useWeight(f.ck.file, v.n, v.n.Args())
			f.surplus(v.n, 2)
		}})...)
}

// otherCheckerRows are the words that one kind of checker has of its own.
func otherCheckerRows() []keyword {
	rows := each([]string{blockSMTP},
		keyword{name: "helo_name", arg: text(), dup: lastReported, def: config.DefaultHelo, doc: "name in the greeting", set: func(f *frame, v *value) { f.ck.helo = v.text }},
		keyword{name: "host", opens: blockHost, doc: "an old form; its words are the checker's"})
	rows = append(rows, each([]string{blockDNS},
		keyword{name: "type", arg: foldWords("A", "NS", "CNAME", "SOA", "MX", "TXT", "AAAA", "RRSIG", "DNSKEY"), def: "SOA", doc: "what is asked for; in any case",
			set: func(f *frame, v *value) { f.ck.dns.Type = v.text }},
		keyword{name: "name", arg: text(), dup: firstWins, def: "the root", doc: "the name that is asked for", set: setDNSName})...)
	rows = append(rows, each([]string{blockUDP},
		keyword{name: "payload", arg: custom("HEX", 1), def: "32 octets of text", doc: "what is sent, two digits for each octet", set: setPayload},
		keyword{name: "require_reply", arg: custom("[HEX]", 0), def: "no answer is needed", doc: "an answer must come, and begin so; x is any digit", set: setRequireReply},
		keyword{name: "min_reply_length", arg: strictNumber(0, 65535).in("octets"), def: "0", doc: "shortest answer; counts with require_reply HEX", set: func(f *frame, v *value) { f.ck.minReply.set(int(v.num)) }},
		keyword{name: "max_reply_length", arg: strictNumber(0, 65535).in("octets"), def: "255", doc: "longest answer; counts with require_reply HEX", set: func(f *frame, v *value) { f.ck.maxReply.set(int(v.num)) }})...)
	rows = append(rows, each([]string{blockMisc},
		keyword{name: "misc_path", arg: script(), doc: "the script, parameters inside the quotes; required. It may be a file to be opened: \"</PATH\"", set: func(f *frame, v *value) { f.ck.misc = f.newScript(v) }},
		keyword{name: "misc_timeout", arg: number(0, 4294).in("s"), def: "the virtual server's delay_loop", doc: "longest run; 0 is the default too", set: func(f *frame, v *value) { f.ck.miscTimeout = time.Duration(v.num) * time.Second }},
		keyword{name: "misc_dynamic", arg: flag(), def: "off", doc: "an exit status of 2..255 sets the weight to that minus 2", set: func(f *frame, _ *value) { f.ck.miscDynamic = true }},
		keyword{name: "user", arg: custom("NAME [GROUP]", 1), def: "script_user", doc: "identity", set: setMiscUser})...)
	return append(rows, each([]string{blockBFD},
		keyword{name: "name", arg: text(), status: Accepted, doc: "the bfd_instance, which must stand before; required", set: func(f *frame, v *value) { f.ck.bfd, f.ck.bfdAt = v.text, v.n }},
		keyword{name: "alpha", arg: boolean(), status: Accepted, def: "the real server's", doc: "down until proven"})...)
}
