package ipvs

import (
	"errors"
	"io/fs"
	"math"
	"strings"
	"syscall"
)

var (
	// ErrNoModule: the kernel has no IPVS family, so ip_vs is not loaded (or was
	// unloaded). It does not match fs.ErrNotExist, which is said of table entries.
	ErrNoModule = errors.New("the kernel has no IPVS: load the ip_vs module (modprobe ip_vs)")

	// ErrUnknownResult: an operation was sent and its answer was lost, so that it
	// may or may not have been applied. Read the table to find out.
	ErrUnknownResult = errors.New("answer lost, result unknown")

	// ErrInterrupted: the table changed each time it was read, so that no
	// complete list can be given.
	ErrInterrupted = errors.New("the table kept changing while it was read")
)

// Error is what every method of a Client returns on failure.
type Error struct {
	// Op is what was tried: OpKind.String() for a change, else a phrase such as
	// "list destinations".
	Op string
	// Service is the service concerned, zero where there is none.
	Service ServiceKey
	// Destination is the destination concerned, zero where there is none.
	Destination DestinationKey
	// Object is what is concerned when it is no service, such as "master on eth0".
	Object string
	// Errno is the kernel's answer, 0 if it gave none.
	Errno syscall.Errno
	// Message is the kernel's own explanation, mostly empty.
	Message string
	// Hint is what the errno is likely to mean for this operation, may be empty.
	Hint string
	// Err is the cause where it is not Errno: a sentinel of this package, a
	// deadline, a malformed answer.
	Err error
}

// Error says what failed, on what, and why.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Destination != (DestinationKey{}) {
		b.WriteString(" " + e.Destination.String())
		if e.Service != (ServiceKey{}) {
			b.WriteString(preposition(e.Op))
		}
	}
	if e.Service != (ServiceKey{}) {
		b.WriteString(" " + e.Service.String())
	}
	if e.Object != "" {
		b.WriteString(" " + e.Object)
	}
	b.WriteString(": ")
	switch {
	case e.Err != nil:
		b.WriteString(e.Err.Error())
	default:
		b.WriteString(e.Errno.Error())
	}
	if e.Message != "" {
		b.WriteString(" (" + e.Message + ")")
	}
	if e.Hint != "" {
		b.WriteString(": " + e.Hint)
	}
	return b.String()
}

func preposition(op string) string {
	if op == OpAddDest.String() {
		return " to"
	}
	return " of"
}

// Unwrap returns Err, or Errno without one.
func (e *Error) Unwrap() error {
	switch {
	case e.Err != nil:
		return e.Err
	case e.Errno != 0:
		return e.Errno
	}
	return nil
}

// Is makes ESRCH match fs.ErrNotExist; ENOENT does by itself, as EEXIST matches
// fs.ErrExist and EPERM fs.ErrPermission.
func (e *Error) Is(target error) bool {
	return target == fs.ErrNotExist && e.Err == nil && e.Errno == syscall.ESRCH
}

// NewError returns the error of an operation that the kernel answers with errno,
// with its hint: what the client and the table in memory have in common.
func NewError(op Op, errno syscall.Errno) *Error {
	e := opError(op, nil)
	e.Errno = errno
	e.Hint = hint(op, errno)
	return e
}

// opError returns the error of an operation that failed otherwise.
func opError(op Op, err error) *Error {
	e := &Error{Op: op.Kind.String(), Service: op.Service.ServiceKey.Canonical(), Err: err}
	switch op.Kind {
	case OpAddDest, OpSetDest, OpDelDest:
		e.Destination = op.Destination.DestinationKey.Canonical()
	}
	return e
}

// hint is what the kernel's one number leaves out.
func hint(op Op, errno syscall.Errno) string {
	s, d := op.Service.Canonical(), op.Destination.Canonical()
	write := op.Kind == OpAddDest || op.Kind == OpSetDest
	switch errno {
	case syscall.ENOENT:
		switch op.Kind {
		case OpAddService, OpSetService:
			if s.PersistenceEngine != "" {
				return "unknown scheduler " + s.Scheduler + " or persistence engine " + s.PersistenceEngine +
					" (modules ip_vs_" + s.Scheduler + ", ip_vs_pe_" + s.PersistenceEngine + ")"
			}
			return "unknown scheduler " + s.Scheduler + " (module ip_vs_" + s.Scheduler + ")"
		case OpSetDest, OpDelDest:
			return "the service has no such destination"
		}
	case syscall.ESRCH:
		return "no such service"
	case syscall.EINVAL:
		switch {
		case write && FamilyOf(d.Addr) != s.Family && d.Forward != Tunnel:
			return "a destination of another family than its service must use TUN, not " + d.Forward.String()
		case write && FamilyOf(d.Addr) != s.Family:
			return "IPVS synchronisation and destinations of another family exclude each other"
		case write && d.Forward == Tunnel && d.TunnelType == GUE && d.TunnelPort == 0:
			return "a GUE tunnel needs a port"
		case write && (d.UpperThreshold > math.MaxInt32 || d.LowerThreshold > math.MaxInt32):
			return "a threshold is at most 2147483647"
		case op.Kind == OpAddDest:
			return "the address must be unicast; in a new network namespace the loopback interface must be up first"
		case (op.Kind == OpAddService || op.Kind == OpSetService) && s.Family == INET6 && s.Netmask > 128:
			return "an IPv6 netmask is a prefix length of 1 to 128"
		}
	case syscall.ERANGE:
		if d.Weight > math.MaxInt32 {
			return "a weight is at most 2147483647"
		}
		return "the lower threshold is above the upper one"
	case syscall.EAFNOSUPPORT:
		return "the kernel does not support " + s.Family.String() + " here"
	case syscall.EPERM:
		return "needs CAP_NET_ADMIN"
	}
	return ""
}
