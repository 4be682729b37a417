package config

import (
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
	return a.Key == b.Key && a.Label == b.Label && slices.Equal(a.Entries, b.Entries) &&
		a.Protocol == b.Protocol && a.Scheduler == b.Scheduler && a.Flags == b.Flags &&
		a.Persistence == b.Persistence && a.Granularity == b.Granularity && a.Engine == b.Engine &&
		a.Quorum == b.Quorum && a.Hysteresis == b.Hysteresis &&
		SameScript(a.QuorumUp, b.QuorumUp) && SameScript(a.QuorumDown, b.QuorumDown) &&
		a.Omega == b.Omega && a.HASuspend == b.HASuspend && a.SMTPAlert == b.SMTPAlert &&
		a.VirtualHost == b.VirtualHost && a.SNMPName == b.SNMPName &&
		sameSorry(a.Sorry, b.Sorry) &&
		a.DrainTimeout == b.DrainTimeout && a.UDPDrainTimeout == b.UDPDrainTimeout &&
		a.OnFailure == b.OnFailure && a.MinAlive == b.MinAlive && a.FlapDamping == b.FlapDamping &&
		a.VIP == b.VIP && slices.Equal(a.VIPAddresses, b.VIPAddresses) && a.Mark == b.Mark &&
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
	return a.Key == b.Key && a.Label == b.Label && a.Weight == b.Weight && a.Forward == b.Forward &&
		a.UpperThreshold == b.UpperThreshold && a.LowerThreshold == b.LowerThreshold &&
		a.Inhibit == b.Inhibit && a.HandedOn() == b.HandedOn() && a.SMTPAlert == b.SMTPAlert &&
		SameScript(a.NotifyUp, b.NotifyUp) && SameScript(a.NotifyDown, b.NotifyDown) &&
		a.DrainTimeout == b.DrainTimeout && a.SlowStart == b.SlowStart &&
		slices.Equal(a.TrackFiles, b.TrackFiles) &&
		slices.EqualFunc(a.Checkers, b.Checkers, SameChecker)
}

// SameChecker reports whether two blocks say the same.
func SameChecker(a, b *Checker) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.SameAs(b)
}

// SameScript reports whether two scripts are the same command under the same
// identity.
func SameScript(a, b *Script) bool { return a.same(b) }

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
