package checker

import (
	"math/bits"
	"syscall"
	"time"
)

// Spread returns a delay in [0, warmup) that looks random and depends on key
// alone: the same checker keeps its phase over reloads and restarts, and
// checkers that start together do not ask together. Two directors that check the
// same servers should put their own name into the key.
//
// keepalived adds a fixed second to a random number drawn anew at each reload;
// neither is wanted here.
func Spread[K ID | string](key K, warmup time.Duration) time.Duration {
	if warmup <= 0 {
		return 0
	}
	// FNV-1a, then the finaliser of splitmix64: keys differ in few bytes, and
	// FNV alone leaves the high bits, which decide here, nearly the same.
	h := uint64(14695981039346656037)
	switch k := any(key).(type) {
	case string:
		for i := range len(k) {
			h = (h ^ uint64(k[i])) * 1099511628211
		}
	case ID:
		h = (h ^ uint64(k)) * 1099511628211
	}
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	h ^= h >> 31
	hi, _ := bits.Mul64(h, uint64(warmup))
	return time.Duration(hi)
}

// Bounds of DefaultLimit.
const (
	minLimit = 16
	maxLimit = 4096
	// maxDescriptors is more than anybody has.
	maxDescriptors = 1 << 30
)

// DefaultLimit is three quarters of the soft RLIMIT_NOFILE (which the Go runtime
// has raised to the hard limit), at least 16 and at most 4096: a probe has one
// descriptor, the rest is for the daemon, and more running probes than that are
// more stacks than speed.
func DefaultLimit() int { return limitFor(descriptors()) }

func descriptors() uint64 {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0
	}
	return r.Cur
}

// Limits shares the same three quarters out: half to probes on goroutines, at most
// 4096, and the rest in equal parts to loops, each of which has at least 16. They
// are apart so that a thousand connections that nobody answers keep no script from
// its turn.
func Limits(loops int) (goroutines, loop int) { return limitsFor(descriptors(), loops) }

func limitsFor(nofile uint64, loops int) (goroutines, loop int) {
	if loops <= 0 {
		return limitFor(nofile), 0
	}
	n := min(nofile-nofile/4, maxDescriptors)
	goroutines = int(min(max(n/2, minLimit), maxLimit))
	return goroutines, max((int(n)-goroutines)/loops, minLimit)
}

func limitFor(nofile uint64) int {
	return int(min(max(nofile-nofile/4, minLimit), maxLimit))
}
