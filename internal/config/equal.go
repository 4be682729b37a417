package config

import (
	"bytes"
	"slices"
)

// What follows compares what an operator configured, so that a reload can tell what
// it changes. Where something stands in the file is no part of it. A test changes
// every field of the model and expects to be seen, so that a new one is not forgotten
// here.

// SameVirtualServer reports whether two blocks say the same.
func SameVirtualServer(a, b *VirtualServer) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	return a.Key == b.Key && slices.Equal(a.Entries, b.Entries) &&
		a.Protocol == b.Protocol && a.Scheduler == b.Scheduler && a.Flags == b.Flags &&
		a.Persistence == b.Persistence && a.Granularity == b.Granularity && a.Engine == b.Engine &&
		a.Quorum == b.Quorum && a.Hysteresis == b.Hysteresis &&
		SameScript(a.QuorumUp, b.QuorumUp) && SameScript(a.QuorumDown, b.QuorumDown) &&
		a.Omega == b.Omega && a.HASuspend == b.HASuspend && a.SMTPAlert == b.SMTPAlert &&
		a.VirtualHost == b.VirtualHost && a.SNMPName == b.SNMPName &&
		sameSorry(a.Sorry, b.Sorry) &&
		a.DrainTimeout == b.DrainTimeout && a.UDPDrainTimeout == b.UDPDrainTimeout &&
		a.OnFailure == b.OnFailure && a.MinAlive == b.MinAlive && a.FlapDamping == b.FlapDamping &&
		slices.EqualFunc(a.RealServers, b.RealServers, SameRealServer)
}

func sameSorry(a, b *SorryServer) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Key == b.Key && a.Inhibit == b.Inhibit && a.Forward == b.Forward
}

// SameRealServer reports whether two blocks say the same.
func SameRealServer(a, b *RealServer) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	return a.Key == b.Key && a.Weight == b.Weight && a.Forward == b.Forward &&
		a.UpperThreshold == b.UpperThreshold && a.LowerThreshold == b.LowerThreshold &&
		a.Inhibit == b.Inhibit && a.Alpha == b.Alpha && a.SMTPAlert == b.SMTPAlert &&
		SameScript(a.NotifyUp, b.NotifyUp) && SameScript(a.NotifyDown, b.NotifyDown) &&
		a.VirtualHost == b.VirtualHost && a.SNMPName == b.SNMPName &&
		a.DrainTimeout == b.DrainTimeout && a.SlowStart == b.SlowStart &&
		slices.Equal(a.TrackFiles, b.TrackFiles) &&
		slices.EqualFunc(a.Checkers, b.Checkers, SameChecker)
}

// SameChecker reports whether two blocks say the same.
func SameChecker(a, b *Checker) bool {
	if a == b {
		return true
	}
	return SameProbe(a, b) && a.Schedule == b.Schedule &&
		(a.File == nil || *a.File == *b.File) &&
		(a.HTTP == nil || a.HTTP.FastRecovery == b.HTTP.FastRecovery)
}

// SameProbe reports whether two checkers ask the same question of the same target.
// When they ask, and what they make of the answers, is no part of it.
func SameProbe(a, b *Checker) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	return a.Kind == b.Kind && a.Conn == b.Conn &&
		sameHTTP(a.HTTP, b.HTTP) && sameDatagram(a.UDP, b.UDP) && sameMisc(a.Misc, b.Misc) &&
		equal(a.SMTP, b.SMTP) && equal(a.DNS, b.DNS) &&
		(a.File == nil) == (b.File == nil) && (a.File == nil || a.File.Name == b.File.Name)
}

func equal[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func sameHTTP(a, b *HTTP) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	return a.Protocol == b.Protocol && a.VirtualHost == b.VirtualHost && a.SNI == b.SNI &&
		a.SNIName == b.SNIName && a.SNIVirtualHost == b.SNIVirtualHost &&
		a.TLSCompliant == b.TLSCompliant && slices.EqualFunc(a.URLs, b.URLs, sameURL)
}

func sameURL(a, b URL) bool {
	return a.Path == b.Path && a.VirtualHost == b.VirtualHost && a.HasDigest == b.HasDigest && a.Digest == b.Digest &&
		a.TLSCompliant == b.TLSCompliant && slices.Equal(a.Status, b.Status) && sameRegex(a.Regex, b.Regex)
}

func sameRegex(a, b *Regex) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	return a.Pattern == b.Pattern && a.NoMatch == b.NoMatch && a.MinOffset == b.MinOffset && a.MaxOffset == b.MaxOffset &&
		a.HasMax == b.HasMax && slices.Equal(a.Options, b.Options)
}

func sameDatagram(a, b *Datagram) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	return (a.Payload == nil) == (b.Payload == nil) && bytes.Equal(a.Payload, b.Payload) && a.Require == b.Require &&
		(a.Reply == nil) == (b.Reply == nil) && bytes.Equal(a.Reply, b.Reply) && bytes.Equal(a.Mask, b.Mask) &&
		a.Min == b.Min && a.Max == b.Max
}

func sameMisc(a, b *Misc) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	return a.Timeout == b.Timeout && a.Dynamic == b.Dynamic && SameScript(a.Script, b.Script)
}

// SameScript reports whether two scripts are the same command under the same
// identity.
func SameScript(a, b *Script) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	return a.User == b.User && a.Group == b.Group && slices.Equal(a.Argv, b.Argv)
}

// SameTrackFile reports whether two blocks say the same.
func SameTrackFile(a, b *TrackFile) bool {
	if a == b {
		return true
	}
	return a.Name == b.Name && a.Path == b.Path && a.Weight == b.Weight && a.Reverse == b.Reverse &&
		a.Init == b.Init && a.InitSet == b.InitSet && a.InitOverwrite == b.InitOverwrite
}

// SameSSL reports whether two blocks say the same.
func SameSSL(a, b *SSL) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Certificate == b.Certificate && a.Key == b.Key && a.Password == b.Password && a.CA == b.CA
}
