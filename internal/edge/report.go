package edge

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
)

// tally notes which addresses came to a device and which left one, and tells of it.
func (k *Keeper) tally(full bool, delta map[netip.Addr]Place, missing map[netip.Addr]error) {
	came, left := map[string][]netip.Addr{}, map[string][]netip.Addr{}
	look := func(a netip.Addr) {
		p, on := k.placed[a], k.bound[a]
		is := on // an address that could not be moved or removed is where it was
		switch {
		case k.trouble[a] == nil && p.Announce:
			is = p.Device
		case k.trouble[a] == nil || p.Announce:
			is = ""
		}
		if is == on {
			return
		}
		if on != "" {
			left[on] = append(left[on], a)
			delete(k.bound, a)
		}
		if is != "" {
			came[is] = append(came[is], a)
			k.bound[a] = is
		}
	}
	if full {
		for a := range k.placed {
			look(a)
		}
		for a := range k.bound {
			look(a)
		}
	} else {
		for a := range delta {
			look(a)
		}
		for a := range missing {
			look(a)
		}
	}
	for _, device := range slices.Sorted(maps.Keys(came)) {
		list := came[device]
		k.Log.Info("Virtual addresses are on their device", event.Key, event.VIPBound, "vip_device", device, "addresses", some(list), "count", len(list))
	}
	for _, device := range slices.Sorted(maps.Keys(left)) {
		list := left[device]
		k.Log.Info("Virtual addresses are off their device", event.Key, event.VIPWithdrawn, "vip_device", device, "addresses", some(list), "count", len(list))
	}
}

// some names the first addresses of a list.
func some(list []netip.Addr) string {
	const most = 4
	slices.SortFunc(list, netip.Addr.Compare)
	var names []string
	for _, a := range list[:min(most, len(list))] {
		names = append(names, a.String())
	}
	if n := len(list) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(names, " ")
}

// report tells of what fails, in the log when that changes, and of all to who asked.
func (k *Keeper) report() {
	now := map[string]Failure{}
	fails := func(feature, reason, more string) {
		f, known := k.failures[feature]
		if !known {
			f = Failure{Feature: feature, Since: time.Now()}
		}
		if k.told[feature] != reason {
			k.told[feature] = reason
			if feature == featureVIP {
				k.Log.Error("Virtual addresses are not where they belong, will retry", event.Key, event.VIPFailed, "err", reason+more)
			} else {
				k.Log.Error("The guard of virtual addresses or their marks do not work, will retry", event.Key, event.GuardFailed, "feature", feature, "err", reason)
			}
		}
		f.Reason = reason + more
		now[feature] = f
	}
	switch a, n := first(k.trouble), len(k.trouble); {
	case k.broken[featureVIP] != nil:
		fails(featureVIP, k.broken[featureVIP].Error(), "")
	case n > 1:
		fails(featureVIP, k.trouble[a].Error(), fmt.Sprintf(" (and so for %d more addresses)", n-1))
	case n == 1:
		fails(featureVIP, k.trouble[a].Error(), "")
	case len(k.goal.torn) > 0:
		a := first(k.goal.torn)
		var names []string
		for _, u := range k.goal.claims[a].devices {
			if u.announce > 0 {
				names = append(names, u.device)
			}
		}
		fails(featureVIP, fmt.Sprintf("vip_device: virtual servers want %s on %s; it is on %s; say one vip_device for all of them", a, strings.Join(names, " and on "), names[0]), "")
	}
	for _, feature := range []string{featureGuard, featureMarks} {
		if err := k.broken[feature]; err != nil {
			fails(feature, err.Error(), "")
		}
	}
	for feature, f := range k.failures {
		if _, still := now[feature]; still {
			continue
		}
		delete(k.told, feature)
		took := time.Since(f.Since)
		if feature == featureVIP {
			k.Log.Info("Virtual addresses are where they belong again", event.Key, event.VIPMended, "took", took)
		} else {
			k.Log.Info("The guard of virtual addresses and their marks work again", event.Key, event.GuardMended, "feature", feature, "took", took)
		}
	}
	k.failures = now
	if k.Tell == nil {
		return
	}
	r := Report{Turn: k.turn, Announced: len(k.bound), Repaired: k.repaired, Missing: k.missing()}
	r.Failures = slices.SortedFunc(maps.Values(now), func(a, b Failure) int { return cmp.Compare(a.Feature, b.Feature) })
	k.Tell(r)
}

// missing are the addresses that should be on a device and are not known to be.
func (k *Keeper) missing() map[netip.Addr]string {
	list := map[netip.Addr]string{}
	for a, why := range k.trouble {
		if k.placed[a].Announce {
			list[a] = why.Error()
		}
	}
	for a := range k.held {
		list[a] = fmt.Sprintf("not announced before its mark is set: %v", k.broken[featureMarks])
	}
	if err := k.broken[featureVIP]; err != nil && !k.synced {
		for a, p := range k.placed {
			if p.Announce && k.bound[a] == "" {
				list[a] = err.Error()
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// first returns the lowest key, the zero address of an empty map.
func first[V any](m map[netip.Addr]V) (low netip.Addr) {
	for a := range m {
		if !low.IsValid() || a.Less(low) {
			low = a
		}
	}
	return low
}
