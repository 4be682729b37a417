package keyword

import (
	"slices"

	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// Status says what this daemon does with a keyword that keepalived knows.
type Status int

// Statuses.
const (
	// Built: it has its effect.
	Built Status = iota
	// Accepted: it is read in silence and has no effect here, because what it
	// asks for is always so or concerns a part of keepalived that is not here. Its
	// argument is judged if it has a grammar.
	Accepted
	// NotServed: it is read and checked, and a warning says what is missing.
	NotServed
	// Skipped: its whole block is passed over, with one notice for the file.
	Skipped
)

// String returns the word in the documentation.
func (s Status) String() string {
	switch s {
	case Built:
		return "yes"
	case Accepted:
		return "no effect"
	case NotServed:
		return "not yet"
	}
	return "skipped"
}

// Block names. A url of SSL_GET knows a keyword more than one of HTTP_GET.
const (
	blockTop       = ""
	blockGlobal    = "global_defs"
	blockMail      = "notification_email"
	blockSSL       = "SSL"
	blockGroup     = "virtual_server_group"
	blockVirtual   = "virtual_server"
	blockReal      = "real_server"
	blockTrackFile = "track_file"
	blockTCP       = "TCP_CHECK"
	blockHTTP      = "HTTP_GET"
	blockTLS       = "SSL_GET"
	blockSMTP      = "SMTP_CHECK"
	blockDNS       = "DNS_CHECK"
	blockUDP       = "UDP_CHECK"
	blockPing      = "PING_CHECK"
	blockMisc      = "MISC_CHECK"
	blockFile      = "FILE_CHECK"
	blockBFD       = "BFD_CHECK"

	blockBFDInstance = "bfd_instance"
	blockURL         = "HTTP_GET url"
	blockTLSURL      = "SSL_GET url"
	blockHost        = "SMTP_CHECK host"
)

// dup says what a second use of a keyword in one block means.
type dup int

const (
	// The last wins in silence.
	_ dup = iota
	// lastReported: the last wins with an error.
	lastReported
	// firstWins with an error.
	firstWins
	// cumulative keywords add up.
	cumulative
)

// keyword is one row of the table: a word in one kind of block.
type keyword struct {
	block string
	name  string
	arg   arg
	// def is the default in words, for messages and the documentation.
	def string
	// doc is one line for the documentation.
	doc    string
	status Status
	// feature names what is missing when NotServed; one warning each.
	feature string
	// extension marks what keepalived does not know.
	extension bool
	// old marks a deprecated spelling; it holds the new one.
	old string
	dup dup
	// soft tells that keepalived goes on when the parameter is missing.
	soft bool

	// set stores the value; nil stores nothing.
	set func(*frame, *value)
	// opens is the kind of block that follows; "" for none.
	opens string
	// open prepares the block's frame and tells whether to read the block.
	open func(f *frame, n *syntax.Node, child *frame) bool
	// close ends the block.
	close func(child *frame)

	// inside are the words of the block that it opens.
	inside map[string]*keyword
	// ignored is made when it is needed.
	ignored string
}

// free are the blocks that hold lines and no keywords.
func free(block string) bool { return block == blockGroup || block == blockMail }

// index finds rows.
type index struct {
	rows   []keyword
	blocks map[string]map[string]*keyword
}

// newIndex builds the table. It is a value and not a package variable because
// its functions refer to it.
func newIndex() *index {
	x := &index{blocks: map[string]map[string]*keyword{}}
	for _, part := range [][]keyword{
		topRows(), globalRows(), mailRows(), daemonRows(), processRows(), pathRows(), silentGlobalRows(), ignoredGlobalRows(),
		sslRows(), trackFileRows(), virtualRows(), realRows(), checkerRows(), httpRows(), otherCheckerRows(), hostRows(),
	} {
		x.rows = append(x.rows, part...)
	}
	for i := range x.rows {
		k := &x.rows[i]
		m := x.blocks[k.block]
		if m == nil {
			m = map[string]*keyword{}
			x.blocks[k.block] = m
		}
		m[k.name] = k
	}
	for i := range x.rows {
		if k := &x.rows[i]; k.opens != "" {
			k.inside = x.blocks[k.opens]
		}
	}
	return x
}

// lookup finds a word in a kind of block, nil if it is not known there.
func (x *index) lookup(block, name string) *keyword { return x.blocks[block][name] }

// names lists the words of a kind of block in order.
func (x *index) names(block string) []string {
	var names []string
	for name := range x.blocks[block] {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// homes lists the blocks, in the table's order, in which a word is known.
func (x *index) homes(name string) []string {
	var homes []string
	for i := range x.rows {
		if x.rows[i].name == name && !slices.Contains(homes, x.rows[i].block) {
			homes = append(homes, x.rows[i].block)
		}
	}
	return homes
}

// opensBlock is syntax.Options.OpensBlock: whether the last word of the path,
// standing inside the blocks before it, is followed by a block.
func (x *index) opensBlock(path []string) bool {
	words := x.blocks[blockTop]
	for i, word := range path {
		k := words[word]
		if k == nil {
			return false
		}
		if i == len(path)-1 {
			return k.opens != "" || k.status == Skipped
		}
		words = k.inside
	}
	return false
}

// each makes a row for each of several blocks.
func each(blocks []string, rows ...keyword) []keyword {
	var out []keyword
	for _, b := range blocks {
		for _, k := range rows {
			k.block = b
			out = append(out, k)
		}
	}
	return out
}
