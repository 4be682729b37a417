package config

// Drift is what is done about a change that somebody else made in our services.
type Drift int

// What to do about drift.
const (
	DriftRepair Drift = iota
	DriftReport
)

// String returns the keyword's value.
func (d Drift) String() string {
	if d == DriftReport {
		return "report"
	}
	return "repair"
}

// OnFailure is how a server whose check failed leaves the table.
type OnFailure int

// How a failed server leaves: deleted at once, as keepalived does, or drained as if
// it had been removed from the configuration.
const (
	OnFailureRemove OnFailure = iota
	OnFailureDrain
)

// String returns the keyword's value.
func (o OnFailure) String() string {
	if o == OnFailureDrain {
		return "drain"
	}
	return "remove"
}
