package ipvs

// All constants here are <linux/ip_vs.h>, <linux/netlink.h> or
// <linux/genetlink.h>; the names are the header's without prefix.

// IPVS_GENL_NAME and IPVS_GENL_VERSION.
const (
	familyName    = "IPVS"
	familyVersion = 1
)

// IPVS_CMD_*.
const (
	cmdNewService = 1
	cmdSetService = 2
	cmdDelService = 3
	cmdGetService = 4
	cmdNewDest    = 5
	cmdSetDest    = 6
	cmdDelDest    = 7
	cmdGetDest    = 8
	cmdNewDaemon  = 9
	cmdDelDaemon  = 10
	cmdGetDaemon  = 11
	cmdSetConfig  = 12
	cmdGetConfig  = 13
	cmdGetInfo    = 15
	cmdZero       = 16
	cmdFlush      = 17
)

// IPVS_CMD_ATTR_*: the first level of a command.
const (
	attrService       = 1
	attrDest          = 2
	attrDaemon        = 3
	attrTimeoutTCP    = 4
	attrTimeoutTCPFin = 5
	attrTimeoutUDP    = 6
)

// IPVS_SVC_ATTR_*: inside attrService.
const (
	svcAF        = 1
	svcProtocol  = 2
	svcAddr      = 3
	svcPort      = 4
	svcFWMark    = 5
	svcSchedName = 6
	svcFlags     = 7
	svcTimeout   = 8
	svcNetmask   = 9
	svcStats     = 10
	svcPEName    = 11
	svcStats64   = 12
)

// IPVS_DEST_ATTR_*: inside attrDest.
const (
	destAddr         = 1
	destPort         = 2
	destFwdMethod    = 3
	destWeight       = 4
	destUThresh      = 5
	destLThresh      = 6
	destActiveConns  = 7
	destInactConns   = 8
	destPersistConns = 9
	destStats        = 10
	destAddrFamily   = 11
	destStats64      = 12
	destTunType      = 13
	destTunPort      = 14
	destTunFlags     = 15
)

// IPVS_DAEMON_ATTR_*: inside attrDaemon.
const (
	daemonState  = 1
	daemonIfName = 2
	daemonSyncID = 3
	daemonMaxLen = 4
	daemonGroup  = 5
	daemonGroup6 = 6
	daemonPort   = 7
	daemonTTL    = 8
)

// IPVS_STATS_ATTR_*: inside the four stats attributes.
const (
	statsConns    = 1
	statsInPkts   = 2
	statsOutPkts  = 3
	statsInBytes  = 4
	statsOutBytes = 5
	statsCPS      = 6
	statsInPPS    = 7
	statsOutPPS   = 8
	statsInBPS    = 9
	statsOutBPS   = 10
)

// IPVS_INFO_ATTR_*: the first level of an answer to cmdGetInfo.
const (
	infoVersion     = 1
	infoConnTabSize = 2
)

// fwdMask is IP_VS_CONN_F_FWD_MASK.
const fwdMask = 0x7

// NLMSG_*, NLM_F_*, NLMSGERR_ATTR_*.
const (
	msgNoop  = 1
	msgError = 2
	msgDone  = 3

	flagRequest  = 0x1
	flagAck      = 0x4
	flagDumpIntr = 0x10
	flagDump     = 0x300
	flagCapped   = 0x100 // on an error
	flagAckTLVs  = 0x200 // on an error

	errAttrMsg = 1

	headerLen     = 16 // struct nlmsghdr
	genlHeaderLen = 4  // struct genlmsghdr
	attrHeaderLen = 4  // struct nlattr
	attrTypeMask  = 0x3fff
)
