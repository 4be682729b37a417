package keyword

import (
	"net/netip"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// opt is a value that may not have been given.
type opt[T any] struct {
	v  T
	ok bool
}

func (o *opt[T]) set(v T) { o.v, o.ok = v, true }

// or returns the value, or d without one.
func (o opt[T]) or(d T) T {
	if o.ok {
		return o.v
	}
	return d
}

// first returns the first value that is given in a chain of inheritance.
func first[T any](d T, chain ...opt[T]) T {
	for _, o := range chain {
		if o.ok {
			return o.v
		}
	}
	return d
}

// checkDefaults is what virtual server, real server and checker may each say of
// how checks run.
type checkDefaults struct {
	delayLoop, beforeRetry, warmup, timeout opt[time.Duration]
	retry, rise                             opt[uint32]
	alpha                                   opt[bool]
	close                                   opt[config.Close]
}

// raw is a finished configuration before anything was resolved.
type raw struct {
	global config.Global
	ssl    *config.SSL

	virtuals   []*rawVirtual
	groups     map[string]*rawGroup
	groupNames []string
	tracks     map[string]*rawTrack
	trackOrder []*rawTrack
	trackNames []string

	// syncAt, syncStateAt and the like are where it was said.
	sync        *config.SyncDaemon
	syncAt      *syntax.Node
	syncState   opt[config.SyncState]
	syncFile    string
	syncStateAt *syntax.Node
	globalAt    *frame
	fifos       [fifoKinds]rawFIFO
	names       processNames
	// pidDir is use_pid_dir; defaultReloadFile is reload_file without a path.
	pidDir, defaultReloadFile bool

	// vip are the defaults of virtual servers; passiveFile is a track file's name.
	vip         rawVIP
	passiveFile string
	passiveAt   said
	nftCounters bool

	// close is the default of checker_close.
	close       opt[config.Close]
	security    bool
	scriptUsers [2]string
	// smtpAlert and smtpAlertChecker are the defaults of smtp_alert.
	smtpAlert, smtpAlertChecker opt[bool]
}

// methodWord is an lvs_method with where it was said.
type methodWord struct {
	fwd config.Forwarding
	bad bool
}

type virtualKind int

const (
	byAddress virtualKind = iota
	byMark
	byGroup
)

// rawVirtual is a virtual_server block as written.
type rawVirtual struct {
	f    *frame // of its block
	kind virtualKind
	addr netip.Addr
	port uint16
	mark uint32
	// group is a name.
	group string

	family   config.Family
	protocol opt[config.Protocol]
	protoAt  *syntax.Node
	sched    opt[string]
	schedBad bool
	method   opt[methodWord]

	flags       config.SchedFlags
	opsAt       *syntax.Node
	persistence uint32
	granularity uint32
	granAt      *syntax.Node
	engine      string

	checkDefaults
	inhibit    bool
	weight     int64
	quorum     uint32
	quorumAt   *syntax.Node
	hysteresis uint32
	hystAt     *syntax.Node

	quorumUp, quorumDown *config.Script
	omega, haSuspend     bool
	haAt                 *syntax.Node
	smtpAlert            opt[bool]
	virtualHost          string
	snmpName             string

	sorry        *rawSorry
	reals        []*rawReal
	drainTimeout opt[time.Duration]

	udpDrainTimeout opt[time.Duration]
	onFailure       config.OnFailure
	minAlive        config.Floor
	minAliveAt      *syntax.Node
	flapDamping     config.Damping
	slowStart       opt[time.Duration]
	label           string
	vip             rawVIP
	via             viaWord
}

// rawSorry is a sorry_server as written.
type rawSorry struct {
	n       *syntax.Node
	addr    netip.Addr
	port    uint16
	method  opt[methodWord]
	inhibit bool
}

// rawReal is a real_server block as written.
type rawReal struct {
	f    *frame
	addr netip.Addr
	port uint16
	// method is its own, else its virtual server's at that line, else none.
	method opt[methodWord]
	own    bool

	checkDefaults
	weight       opt[int64]
	upper, lower uint32
	inhibit      opt[bool]
	up, down     *config.Script
	smtpAlert    opt[bool]
	virtualHost  string
	snmpName     string
	checkers     []*rawChecker
	trackUses    []*rawTrackUse
	slowStart    opt[time.Duration]
	label        string
	via          viaWord
	// bfds are the instances of its BFD_CHECKs.
	bfds         []string
	drainTimeout opt[time.Duration]
}

// rawTrackUse is a track_file of a real server or of a FILE_CHECK.
type rawTrackUse struct {
	n       *syntax.Node
	name    string
	weight  opt[int64]
	reverse bool
	// late tells that the track_file was not yet defined at the use.
	late bool
}

// rawChecker is a checker block as written.
type rawChecker struct {
	f    *frame
	kind config.CheckerKind

	ip, bind       netip.Addr
	port, bindPort uint16
	bindIf         string
	mark           uint32
	checkDefaults
	logAll bool

	// seenTimeout is what its connect_timeout would inherit at the end of its
	// block: keepalived's SMTP_CHECK looks no further.
	seenTimeout opt[time.Duration]

	// file is set for FILE_CHECK, rawHTTP for HTTP_GET and SSL_GET, rawOther for
	// the other kinds that have words of their own.
	file *rawTrackUse
	*rawHTTP
	*rawOther
}

// rawHTTP is what HTTP_GET and SSL_GET have of their own.
type rawHTTP struct {
	protocol     config.HTTPProtocol
	virtualHost  string
	sni          bool
	sniName      string
	fastRecovery bool
	tlsCompliant bool
	tls          config.TLS
	tlsCA        *syntax.Node // nil without tls_ca
	urls         []*rawURL
}

// rawOther is what the other kinds have of their own.
type rawOther struct {
	helo        string
	dns         config.DNS
	udp         config.Datagram
	minReply    opt[int]
	maxReply    opt[int]
	misc        *config.Script
	miscTimeout time.Duration
	miscDynamic bool
	miscUser    opt[[2]string]

	// bfd is the name of a BFD_CHECK.
	bfd   string
	bfdAt *syntax.Node
}

// rawURL is a url block as written.
type rawURL struct {
	f            *frame
	url          config.URL
	regex        *config.Regex
	noMatch      bool
	options      []string
	min          int
	max          opt[int]
	offsetsAt    *syntax.Node
	settingsAt   *syntax.Node
	regexInvalid bool
}

// rawGroup is a virtual_server_group block, already expanded.
type rawGroup struct {
	f     *frame
	name  string
	addrs []rawEntry
	marks []rawEntry
	// ports are the first two different ports of its addresses, or fewer.
	ports []uint16
	seen  map[config.Entry]diag.Pos
	// again is the last line that repeats an entry.
	again *syntax.Node
	// noPort tells that an entry stands for every port.
	noPort *syntax.Node
}

// rawEntry is an entry with the line it came from.
type rawEntry struct {
	config.Entry
	n *syntax.Node
}

// rawTrack is a track_file block.
type rawTrack struct {
	f         *frame
	track     config.TrackFile
	weightSet bool
}
