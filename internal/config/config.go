// Package config is the typed model of the LVS half of a keepalived.conf: what
// an operator wants, with every default and inheritance already resolved.
//
// It decides what a valid configuration is (Validate) and how the things in it
// are identified over a reload. It deliberately knows nothing of the language
// (config/syntax), of keywords (config/keyword) or of the kernel: there are no
// files, sockets and clocks in here. Of the project it imports config/diag
// alone, since a model without positions could not say where a mistake is.
//
// Decisions worth knowing:
//
//   - A configuration is not changed once it is read: several goroutines look at
//     it. So equal parts of its real servers and checkers (Handed, HTTP and the
//     like) are one value, whose positions are those of the first.
//
//   - There may be 30,000 real servers, which all stay in memory, and during a
//     reload twice. What few of them have is behind a pointer, and no part of the
//     file's text or of its tree is kept.
package config

import (
	"net/netip"
	"time"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// Config is one whole configuration.
type Config struct {
	Global Global
	// SSL is the client side of every SSL_GET; nil when there is no block.
	SSL *SSL
	// VirtualServers are in file order. Those that were rejected are not here.
	VirtualServers []*VirtualServer
	// TrackFiles are those that a real server, lvs_sync_state or passive uses, in file order.
	TrackFiles []*TrackFile
	// Files are all files that were read, in the order they were opened.
	Files []string
}

// OnStop is what becomes of our services when the daemon is told to stop.
type OnStop int

// What on_stop can say.
const (
	// OnStopRemove deletes our services, as keepalived does.
	OnStopRemove OnStop = iota
	// OnStopKeep leaves the table as it is.
	OnStopKeep
	// OnStopDrain waits for the connections to end, at most StopTimeout, then
	// removes.
	OnStopDrain
)

// String returns the keyword's argument.
func (o OnStop) String() string {
	switch o {
	case OnStopKeep:
		return "keep"
	case OnStopDrain:
		return "drain"
	}
	return "remove"
}

// Global holds what global_defs and the top level say.
type Global struct {
	RouterID string
	// CheckerLogAllFailures logs each failing attempt of every checker.
	CheckerLogAllFailures bool
	// RSInitNotifies runs notify_up also for servers in service from the start.
	RSInitNotifies bool
	// LVSTimeouts are in seconds; 0 leaves the kernel's value.
	LVSTimeouts struct{ TCP, TCPFin, UDP uint32 }
	// LVSFlush empties the whole IPVS table at start.
	LVSFlush bool
	// LVSFlushOnStop is "", "all" (the whole table) or "vs" (services only).
	LVSFlushOnStop string
	// ScriptUser and ScriptGroup are the default identity of scripts.
	ScriptUser, ScriptGroup string
	// ScriptUserPos is where script_user stands.
	ScriptUserPos        diag.Pos
	EnableScriptSecurity bool
	// SupplementaryGroups gives scripts their user's other groups too.
	SupplementaryGroups bool
	// UseSymlinkPaths runs scripts by the path as written and not the resolved one.
	UseSymlinkPaths bool
	// StartupScript runs before the services are set up and ShutdownScript after
	// they are gone; each is given its timeout, then killed.
	StartupScript, ShutdownScript   *Script
	StartupTimeout, ShutdownTimeout time.Duration

	Mail Mail
	// FIFOs are lvs_notify_fifo and notify_fifo, at most one of each, never two of
	// the same path.
	FIFOs []FIFO
	// Sync is lvs_sync_daemon; nil for none.
	Sync    *SyncDaemon
	Process Process
	// NetNamespace and NetNamespaceIPVS are names under /run/netns. The second
	// is only meaningful when NetNamespaceIPVSSet; empty is the default one.
	NetNamespace        string
	NetNamespaceIPVS    string
	NetNamespaceIPVSSet bool
	Instance            string
	Paths               Paths

	// Extensions of sluice.

	// DrainInterval is how often parked destinations are looked at.
	DrainInterval time.Duration
	// DrainTimeout bounds a drain; 0 is no bound.
	DrainTimeout time.Duration
	OnStop       OnStop
	// StopTimeout bounds the wait of OnStopDrain.
	StopTimeout time.Duration
	// ManageSysctls lets the daemon set expire_nodest_conn and
	// expire_quiescent_template.
	ManageSysctls bool
	// Conntrack sets net.ipv4.vs.conntrack to 1.
	Conntrack bool
	// TrustNew installs a server that a reload adds before its first good check,
	// as keepalived does.
	TrustNew bool
	// DepartureHold bounds how long the servers that a reload takes away go on
	// serving while those that replace them are unproven; 0 is no such hold.
	DepartureHold time.Duration
	// UDPDrainTimeout bounds the drains of UDP and SCTP services; 0 is no drain.
	UDPDrainTimeout time.Duration
	// ReconcileInterval is how often the whole of our services is compared with the
	// kernel; 0 is only on events.
	ReconcileInterval time.Duration
	Drift             Drift
	// HTTPListen is where the dashboard, metrics and health are served over HTTP;
	// invalid for nowhere.
	HTTPListen    netip.AddrPort
	MetricsDetail MetricsDetail
	// ControlGroup may ask and change over the control socket, ControlReadGroup ask; a
	// name or a number, "" for nobody but root.
	ControlGroup, ControlReadGroup Group
	// HTTPAdmin is the file with the token that lets operators change something over
	// HTTP; "" for nobody.
	HTTPAdmin string
	// WithdrawDelay is how long a planned stop answers 503 before it touches anything.
	WithdrawDelay time.Duration
	// ShareChecks has equal checks of several virtual servers run once.
	ShareChecks bool
	// VIPDelay is how long the services behind a withdrawn address go on untouched.
	VIPDelay time.Duration
	// NFTables is nftables_ipvs; nil for none.
	NFTables *NFTables
	// Passive withholds all services.
	Passive Passive
	// ViaMark is where the marks of check_via begin (its low 16 bits are 0).
	ViaMark uint32
	// CheckerThreads is how many threads lead the checks that need no goroutine; 0 is
	// the default.
	CheckerThreads int
}

// Group names a group of this machine's users.
type Group struct {
	Name string
	Pos  diag.Pos
}

// Mail is how and to whom alerts are mailed. Nothing is mailed without both To and
// Server.
type Mail struct {
	// To are the recipients, From the sender, in the form a@b or "Name <a@b>".
	To   []string
	From string
	// Server is a host name or an address, with its port (25 by default).
	Server string
	Port   uint16
	// Helo is the argument of HELO, "" for the host's name.
	Helo string
	// Timeout bounds the connection and each answer.
	Timeout time.Duration
	// NoCheckerEmails leaves out checks that did not change their real server.
	NoCheckerEmails bool
}

// FIFO is a named pipe that gets a line for each change.
type FIFO struct {
	Pos  diag.Pos
	Path string
	// User and Group own it; "" for the daemon's.
	User, Group string
	// Script is started with the FIFO and gets its path as last argument; nil for
	// none.
	Script *Script
}

// SyncState says which halves of the kernel's connection synchronisation run.
type SyncState int

// Sync states.
const (
	// SyncOff: neither; an instance of VRRP would decide, and there is none here.
	SyncOff SyncState = iota
	SyncMaster
	SyncBackup
	// SyncBoth is what keepalived's checker starts when no instance is named.
	SyncBoth
)

// String returns the argument of lvs_sync_state.
func (s SyncState) String() string {
	switch s {
	case SyncMaster:
		return "master"
	case SyncBackup:
		return "backup"
	case SyncBoth:
		return "both"
	}
	return "off"
}

// SyncDaemon is lvs_sync_daemon.
type SyncDaemon struct {
	Pos       diag.Pos
	Interface string
	// Instance is the VRRP instance that keepalived would follow.
	Instance string
	// ID is the syncid, 0..255.
	ID uint8
	// MaxLen is the longest message in octets, Port the UDP port, TTL the hop
	// limit; 0 is the kernel's default. Group is invalid for the kernel's default.
	MaxLen uint16
	Port   uint16
	TTL    uint8
	Group  netip.Addr
	// State is what runs: lvs_sync_state (an extension), else SyncOff with an
	// instance and SyncBoth without.
	State SyncState
	// File is the track file that says which half runs, in place of State, which is
	// SyncOff then: master unless its value is 0, then backup. nil for none.
	File *TrackFileUse
}

// Process is what is asked of the process itself.
type Process struct {
	// Name is checker_process_name or process_name, "" for none.
	Name string
	// Nice is checker_priority, -20..19, when NiceSet.
	Nice    int
	NiceSet bool
	// NoSwap locks the process in memory.
	NoSwap bool
	// RealTime is checker_rt_priority, 1..99; 0 for none. RealTimeLimit is
	// RLIMIT_RTTIME, which counts only with it.
	RealTime      int
	RealTimeLimit time.Duration
	// CPUs are those it may run on; nil for all.
	CPUs []int
	// Umask is the mask for new files when UmaskSet.
	Umask    uint32
	UmaskSet bool
}

// Paths are the files by which others follow and steer the daemon; "" is none.
type Paths struct {
	// ReloadFile exists while a reload goes on.
	ReloadFile string
	// ReloadTimeFile holds the time of a reload. It is deleted then, except with
	// ReloadRepeat and a time of day.
	ReloadTimeFile string
	ReloadRepeat   bool
	// StateDump is what the name of the state's file is made of.
	StateDump string
	// InstanceInNames puts net_namespace and instance into that name.
	InstanceInNames bool
	// SaveDir takes the configurations before and after each reload.
	SaveDir string
}

// Defaults of the extensions.
const (
	DefaultDrainInterval     = time.Minute
	DefaultUDPDrainTimeout   = 10 * time.Second
	DefaultReconcileInterval = time.Minute
	DefaultDepartureHold     = time.Minute
	DefaultStopTimeout       = 30 * time.Second
)

// SSL is the SSL block: the client side of SSL_GET.
type SSL struct {
	Pos                            diag.Pos
	Certificate, Key, Password, CA string
}

// Protocol is a virtual server's transport protocol. None is only for firewall
// marks.
type Protocol int

// Protocols.
const (
	None Protocol = iota
	TCP
	UDP
	SCTP
)

// String returns the keyword's argument in upper case, "none" for a mark.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return "none"
}

// Family is an address family; FamilyUnknown until something tells.
type Family uint8

// Families.
const (
	FamilyUnknown Family = iota
	IPv4
	IPv6
)

// String returns the argument of ip_family.
func (f Family) String() string {
	switch f {
	case IPv4:
		return "inet"
	case IPv6:
		return "inet6"
	}
	return "unknown"
}

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	switch {
	case !a.IsValid():
		return FamilyUnknown
	case a.Is4(), a.Is4In6():
		return IPv4
	}
	return IPv6
}

// Method is lvs_method, how packets reach a real server.
type Method uint8

// Forwarding methods. MethodUnset is never in a validated configuration.
const (
	MethodUnset Method = iota
	NAT
	DR
	TUN
)

// String returns the keyword's argument.
func (m Method) String() string {
	switch m {
	case NAT:
		return "NAT"
	case DR:
		return "DR"
	case TUN:
		return "TUN"
	}
	return "unset"
}

// Tunnel is the encapsulation of TUN.
type Tunnel uint8

// Tunnel types.
const (
	IPIP Tunnel = iota
	GUE
	GRE
)

// Checksum is the checksum option of a gue or gre tunnel.
type Checksum uint8

// Checksum options.
const (
	NoCsum Checksum = iota
	Csum
	RemCsum
)

// Forwarding is lvs_method with its options.
type Forwarding struct {
	Method   Method
	Tunnel   Tunnel
	Checksum Checksum
	Port     uint16
}

// SchedFlags are a scheduler's flags; several keywords share one bit of the
// kernel's (flag-1 = sh-fallback = mh-fallback, flag-2 = sh-port = mh-port).
type SchedFlags struct {
	Flag1, Flag2, Flag3 bool
	OnePacket           bool
}

// VSKey identifies a virtual server over reloads: protocol, address and port;
// or mark and family; or group, protocol and the ordinal among the virtual
// servers that name it. It is comparable.
type VSKey struct {
	Protocol Protocol
	Addr     netip.AddrPort
	FWMark   uint32
	Family   Family
	Group    string
	Ordinal  int
}

// RSKey identifies a real server within its virtual server: its address and
// port as they stand after validation. It is comparable.
type RSKey struct{ netip.AddrPort }

// Entry is one service of the kernel that a virtual server stands for: its own
// address or mark, or one of its group's after ranges were expanded.
type Entry struct {
	// Addr has port 0 for "every port"; invalid for a mark.
	Addr   netip.AddrPort
	FWMark uint32
	// Family is never unknown.
	Family Family
}

// VirtualServer is one virtual_server block.
type VirtualServer struct {
	Key VSKey
	Pos diag.Pos
	// Entries has one element except for a group.
	Entries []Entry

	Protocol  Protocol
	Scheduler string
	Flags     SchedFlags
	// Persistence is persistence_timeout in seconds, 0 for none.
	Persistence uint32
	// Granularity is a dotted IPv4 mask as 32 bits, or an IPv6 prefix length;
	// 0 is none.
	Granularity uint32
	Engine      string

	Quorum      uint32
	Hysteresis  uint32
	QuorumUp    *Script
	QuorumDown  *Script
	Omega       bool
	HASuspend   bool
	SMTPAlert   bool
	VirtualHost string
	SNMPName    string
	// Label is a name for people, "" for none (an extension).
	Label string

	// Sorry is nil without a sorry server.
	Sorry *SorryServer
	// RealServers are in file order, without duplicates, at least one.
	RealServers []*RealServer

	// DrainTimeout bounds the drains of this service; 0 is no bound.
	DrainTimeout time.Duration
	// UDPDrainTimeout is that of a UDP or SCTP service; 0 is no drain.
	UDPDrainTimeout time.Duration
	// OnFailure is what becomes of a server that failed, unless it is inhibited.
	OnFailure OnFailure
	// MinAlive is the floor that failures do not go below.
	MinAlive Floor
	// FlapDamping lengthens the way back of a real server that flaps.
	FlapDamping Damping
	// VIP is what becomes of its addresses on this host.
	VIP VIP
	// VIPAddresses are those that its marks stand for (vip_address), sorted: a mark does
	// not tell.
	VIPAddresses []netip.Addr
	// Mark carries its addresses with nftables_ipvs, 0 for a service of each. It is
	// Assign's.
	Mark uint32
}

// SorryServer is what serves while the quorum is lost. Its weight is always 1.
type SorryServer struct {
	Pos diag.Pos
	Key RSKey
	// Inhibit keeps it in the table at weight 0 while it is not needed.
	Inhibit bool
	Forward Forwarding
}

// RealServer is one real_server block.
type RealServer struct {
	Key RSKey
	Pos diag.Pos
	// Weight is 0..2147483647.
	Weight  int64
	Forward Forwarding
	// Inhibit sets the weight to 0 on failure instead of removing the server.
	Inhibit        bool
	SMTPAlert      bool
	UpperThreshold uint32
	LowerThreshold uint32
	NotifyUp       *Script
	NotifyDown     *Script
	// Handed is nil for nothing handed on.
	Handed *Handed

	Checkers []*Checker
	// TrackFiles move the weight without a checker (an extension).
	TrackFiles []TrackFileUse
	// Label is a name for people, "" for none (an extension).
	Label string
	// DrainTimeout bounds this server's drains; 0 is no bound (an extension).
	DrainTimeout time.Duration
	// SlowStart is how long its weight grows after it came back; 0 is not at all
	// (an extension).
	SlowStart time.Duration
}

// Handed is what a real server hands on to its checkers, and what nobody acts on.
// It is here for Print.
type Handed struct {
	Alpha       bool
	VirtualHost string
	SNMPName    string
}

// HandedOn returns what is handed on.
func (rs *RealServer) HandedOn() Handed {
	if rs.Handed == nil {
		return Handed{}
	}
	return *rs.Handed
}

// TrackFileUse is "track_file NAME [weight N]" in a real server.
type TrackFileUse struct {
	Name   string
	Weight int64
	// Reverse multiplies by -1.
	Reverse bool
}

// TrackFile is a track_file block.
type TrackFile struct {
	Pos     diag.Pos
	Name    string
	Path    string
	Weight  int64
	Reverse bool
	// Init is written at first start when InitSet: if the file is missing, or
	// always with InitOverwrite.
	Init          int64
	InitSet       bool
	InitOverwrite bool
}

// Script is a command as keepalived splits it, with the identity it runs under.
type Script struct {
	Pos         diag.Pos
	Argv        []string
	User, Group string
}
