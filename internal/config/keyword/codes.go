package keyword

import "github.com/sluice-lb/sluice/internal/config/diag"

// code is one kind of finding. The identifiers are stable over versions:
// a retired one is not used again.
type code struct {
	id    string
	class diag.Class
	// title is its line in docs/configuration.md.
	title string
}

func (c code) severity() diag.Severity {
	switch c.id[0] {
	case 'F':
		return diag.Fatal
	case 'E':
		return diag.Error
	case 'W':
		return diag.Warning
	}
	return diag.Notice
}

// Every finding of this package. A warning or notice has keepalived's own class:
// where it is silent, ClassNone. An error always has one, even where keepalived
// is silent, since a configuration test that answers "fine" while a part of the
// file is not served would be useless as a gate.
var (
	codeMissing = code{"F101", diag.ClassMissing, "a required parameter is missing; keepalived exits here"}

	codeUnknown       = code{"E101", diag.ClassConfig, "keepalived does not know this keyword here; the statement is skipped, with its block"}
	codeNumber        = code{"E102", diag.ClassConfig, "not a number"}
	codeRange         = code{"E103", diag.ClassConfig, "a number or a time outside its range"}
	codeTimer         = code{"E104", diag.ClassConfig, "not a time in seconds"}
	codeBool          = code{"E105", diag.ClassConfig, "not one of on, off, true, false, yes, no"}
	codeAddress       = code{"E106", diag.ClassConfig, "not an IP address"}
	codePort          = code{"E107", diag.ClassConfig, "not a port"}
	codeWord          = code{"E108", diag.ClassConfig, "not one of the words that may stand here"}
	codeDuplicate     = code{"E109", diag.ClassConfig, "the keyword stands twice where keepalived wants it once"}
	codeBlock         = code{"E110", diag.ClassConfig, "a block where none belongs, or none where one belongs"}
	codeScheduler     = code{"E111", diag.ClassConfig, "unknown scheduler; the virtual server is not served"}
	codeMethod        = code{"E112", diag.ClassConfig, "unknown forwarding method; the virtual or real server is not served"}
	codeMethodOption  = code{"E113", diag.ClassConfig, "a tunnel option that is wrong or does not fit"}
	codeOrder         = code{"E114", diag.ClassConfig, "the keyword needs another one before it"}
	codeNotExtension  = code{"E115", diag.ClassConfig, "a #sluice comment with a keyword that is not an extension"}
	codeScript        = code{"E116", diag.ClassConfig, "a script that cannot be read"}
	codeLabel         = code{"E160", diag.ClassConfig, "a label that is too long or has characters that cannot stand in it"}
	codeNoScheduler   = code{"E120", diag.ClassConfig, "no lvs_sched; wlc is used"}
	codeNoMethod      = code{"E121", diag.ClassConfig, "no lvs_method; NAT is used"}
	codeNoProtocol    = code{"E122", diag.ClassConfig, "no protocol; UDP is used"}
	codeNoRealServer  = code{"E123", diag.ClassConfig, "a virtual server without real servers; it is not served"}
	codeNoGroup       = code{"E124", diag.ClassConfig, "the virtual server's group does not exist; it is not served"}
	codeEmptyGroup    = code{"E125", diag.ClassConfig, "a group without usable entries"}
	codeGroupEntry    = code{"E126", diag.ClassConfig, "a group entry that cannot be read"}
	codeFamily        = code{"E127", diag.ClassConfig, "address families that do not go together"}
	codePortZero      = code{"E128", diag.ClassConfig, "a service for every port needs persistence; 360 s are used"}
	codeOPS           = code{"E129", diag.ClassConfig, "ops is only for UDP"}
	codeSameReal      = code{"E130", diag.ClassConfig, "the same real server twice; the checkers are merged into the first"}
	codeSameVirtual   = code{"E131", diag.ClassConfig, "the same service twice with different attributes; the first serves it"}
	codeNoCheckPort   = code{"E132", diag.ClassConfig, "a checker without a port to connect to; it is dropped"}
	codeURL           = code{"E133", diag.ClassConfig, "a url without path, or a checker without url; it is dropped"}
	codeTrackFileUse  = code{"E134", diag.ClassConfig, "a track file that does not exist or is not named"}
	codeTrackFile     = code{"E135", diag.ClassConfig, "a track_file block that cannot be used"}
	codeHASuspend     = code{"E136", diag.ClassConfig, "ha_suspend does not go with firewall marks"}
	codeGranularity   = code{"E137", diag.ClassConfig, "persistence_granularity that is not a mask"}
	codeGroupSize     = code{"E138", diag.ClassConfig, "a group with more than 65536 entries"}
	codeLinkLocal     = code{"E139", diag.ClassConfig, "a check of a link-local address without bind_if"}
	codeHashed        = code{"E140", diag.ClassConfig, "hashed has no meaning"}
	codeHex           = code{"E141", diag.ClassConfig, "not a string of hexadecimal digits"}
	codeInSkipped     = code{"E142", diag.ClassConfig, "a virtual server inside a block that is skipped: a closing brace is missing before it"}
	codeTruncated     = code{"E144", diag.ClassConfig, "a name that is too long"}
	codeStatusCode    = code{"E145", diag.ClassConfig, "not a status code, a range or a class of them"}
	codeZeroMark      = code{"E146", diag.ClassConfig, "firewall mark 0 marks nothing; it is rejected"}
	codeGroupFamily   = code{"E148", diag.ClassConfig, "the group's families do not fit the virtual server; it is not served"}
	codeTimerDecimals = code{"E147", diag.ClassConfig, "a time with more than six decimals; it is rounded"}

	codeMissingSoft = code{"E149", diag.ClassConfig, "a parameter is missing, and keepalived goes on without the line"}
	codeMiscPath    = code{"E150", diag.ClassConfig, "a MISC_CHECK without misc_path; it is dropped"}
	codeBFD         = code{"E152", diag.ClassConfig, "a BFD_CHECK whose bfd_instance is missing, unknown or used twice"}
	codeMulticast   = code{"E151", diag.ClassConfig, "a group of lvs_sync_daemon that is not a multicast address"}

	codeNotServed      = code{"W201", diag.ClassNone, "keepalived's keyword is known, what it asks for is not served yet"}
	codeIgnoredArg     = code{"W202", diag.ClassNone, "the keyword takes no argument, so that `no` or `off` switches on"}
	codeQuorum         = code{"W203", diag.ClassConfig, "the quorum cannot be met by the weights; it is reduced"}
	codeHysteresis     = code{"W204", diag.ClassConfig, "hysteresis is not below the quorum; it is reduced"}
	codeAllZero        = code{"W205", diag.ClassNone, "all weights are 0"}
	codePortReplaced   = code{"W206", diag.ClassConfig, "with DR and TUN a real server's port is the service's; it is replaced"}
	codeVirtualMerged  = code{"W207", diag.ClassNone, "the same virtual server twice; the real servers are merged"}
	codeSameEntry      = code{"W208", diag.ClassNone, "a group entry twice"}
	codeDeprecated     = code{"W209", diag.ClassNone, "an old spelling"}
	codeShell          = code{"W210", diag.ClassNone, "a script with signs that only a shell understands"}
	codeMarkProtocol   = code{"W211", diag.ClassConfig, "a firewall mark has no protocol; it is cleared"}
	codeTrackFileOrder = code{"W212", diag.ClassConfig, "a track file is defined after its use; keepalived would not find it"}
	codeSurplus        = code{"W214", diag.ClassNone, "words at the end of the line that mean nothing"}
	codeSecurity       = code{"W215", diag.ClassSecurity, "scripts without enable_script_security"}
	codeNbGetRetry     = code{"W216", diag.ClassConfig, "nb_get_retry is an old spelling of retry"}
	codeAddressTail    = code{"W217", diag.ClassNone, "what follows the address in the same word is cut off"}
	codeRegexOffsets   = code{"W218", diag.ClassConfig, "regex_min_offset is above regex_max_offset; both are ignored"}
	codeRegexParts     = code{"W219", diag.ClassNone, "regex settings without a regex"}
	codeInitRange      = code{"W220", diag.ClassConfig, "init_file is outside -254..254"}
	codeSorryInhibit   = code{"W221", diag.ClassConfig, "the sorry server is a real server too; that one's inhibit_on_failure decides"}
	codeGroupPort      = code{"W222", diag.ClassConfig, "a real server's port differs from the ports of its group"}
	codePersistenceOff = code{"W223", diag.ClassConfig, "persistence_timeout 0 is no persistence"}

	codeOtherFlag   = code{"W224", diag.ClassNone, "a flag of another scheduler; it has no effect"}
	codeBindPort    = code{"W226", diag.ClassNone, "bind_port without bindto has no effect"}
	codeRegexOption = code{"W225", diag.ClassNone, "an unknown word in regex_options"}

	codeTimeoutLate = code{"W227", diag.ClassNone, "a connect_timeout after an SMTP_CHECK that inherits it; keepalived would not see it"}
	codeSyncState   = code{"W228", diag.ClassNone, "which half of lvs_sync_daemon runs is not said, or is said in vain"}
	codeFIFO        = code{"W229", diag.ClassNone, "a FIFO, or the script of one, that is not used"}
	codeRecipient   = code{"W230", diag.ClassNone, "a name and an address that are two recipients without quotes"}
	codeMinAlive    = code{"W235", diag.ClassNone, "min_alive keeps every real server, so that no failed check has an effect"}
	codeSlowStart   = code{"W236", diag.ClassNone, "slow_start with a scheduler that does not look at weights"}

	codeTLSUnverified = code{"W237", diag.ClassNone, "tls_ca without tls_verify, so that nothing is verified"}

	codeVIPDevice   = code{"E161", diag.ClassConfig, "not the name of a network device"}
	codeVIPConflict = code{"E162", diag.ClassConfig, "one virtual address on two devices; the first one's is used"}
	codeVIPAddress  = code{"E163", diag.ClassConfig, "vip_address without a firewall mark, of the other family, or no address; it is left out"}
	codeVIPSuspend  = code{"E164", diag.ClassConfig, "ha_suspend does not go with vip_device"}
	codeCheckVia    = code{"E165", diag.ClassConfig, "check_via that cannot be followed, or a check with words that do not go with it"}

	codeVIPNothing   = code{"W238", diag.ClassNone, "vip_device or vip_guard for a firewall mark without vip_address"}
	codeVIPFollow    = code{"W239", diag.ClassNone, "vip_follow quorum without vip_device has no effect"}
	codeGuardedCheck = code{"W240", diag.ClassNone, "a check by UDP from an address that vip_guard guards"}
	codeNFTables     = code{"W241", diag.ClassNone, "a setting of nftables_ipvs that does not follow it has no effect"}
	codeViaOwn       = code{"N308", diag.ClassNone, "a check with connect_ip keeps that under check_via"}

	codeIgnoredBlocks = code{"N301", diag.ClassNone, "blocks that are not for this daemon"}
	codeExtension     = code{"N302", diag.ClassNone, "an extension outside a #sluice comment; keepalived would reject it"}
	codeStatusClass   = code{"N303", diag.ClassNone, "a class of status codes; keepalived would reject it"}
	codeGranGroup     = code{"N304", diag.ClassNone, "persistence_granularity works for groups here; keepalived loses it"}
	codeCheckPort     = code{"N305", diag.ClassNone, "a checker takes the service's port; keepalived would connect to port 0"}
	codeSilentUDP     = code{"N306", diag.ClassNone, "a UDP_CHECK without require_reply cannot see a dead host"}
	codeHAGroup       = code{"N307", diag.ClassNone, "ha_suspend works for groups here; in keepalived it has no effect on them"}
)

// codes lists them all for the documentation, in order.
func codes() []code {
	return []code{
		codeMissing,
		codeUnknown, codeNumber, codeRange, codeTimer, codeBool, codeAddress, codePort, codeWord,
		codeDuplicate, codeBlock, codeScheduler, codeMethod, codeMethodOption, codeOrder,
		codeNotExtension, codeScript, codeLabel, codeNoScheduler, codeNoMethod, codeNoProtocol,
		codeNoRealServer, codeNoGroup, codeEmptyGroup, codeGroupEntry, codeFamily, codePortZero,
		codeOPS, codeSameReal, codeSameVirtual, codeNoCheckPort, codeURL, codeTrackFileUse,
		codeTrackFile, codeHASuspend, codeGranularity, codeGroupSize, codeLinkLocal, codeHashed,
		codeHex, codeInSkipped, codeTruncated, codeStatusCode, codeZeroMark,
		codeTimerDecimals, codeGroupFamily, codeMissingSoft, codeMiscPath, codeMulticast, codeBFD,
		codeVIPDevice, codeVIPConflict, codeVIPAddress, codeVIPSuspend, codeCheckVia,
		codeNotServed, codeIgnoredArg, codeQuorum, codeHysteresis, codeAllZero, codePortReplaced,
		codeVirtualMerged, codeSameEntry, codeDeprecated, codeShell, codeMarkProtocol,
		codeTrackFileOrder, codeSurplus, codeSecurity, codeNbGetRetry, codeAddressTail,
		codeRegexOffsets, codeRegexParts, codeInitRange, codeSorryInhibit, codeGroupPort,
		codePersistenceOff, codeOtherFlag, codeRegexOption, codeBindPort, codeTimeoutLate, codeSyncState, codeFIFO, codeRecipient, codeMinAlive, codeSlowStart, codeTLSUnverified,
		codeVIPNothing, codeVIPFollow, codeGuardedCheck, codeNFTables,
		codeIgnoredBlocks, codeExtension, codeStatusClass, codeGranGroup, codeCheckPort, codeSilentUDP, codeHAGroup, codeViaOwn,
	}
}

// status is what a configuration test ends with that finds only this.
func (c code) status() int { return diag.List{{Class: c.class}}.ExitCode() }
