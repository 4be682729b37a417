package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/host"
)

const groupSync = "more than one director"

var syncRules = []rule{
	{
		id: "sync_device", group: groupSync, title: "connection synchronisation has its network", when: "lvs_sync_daemon is configured",
		why:  "The kernel tells connections by multicast on this device. Without it the other director knows none of them: all end with a failover.",
		help: "Name a device of the network that both directors share, up and able to send multicast.",
		find: syncDevice,
	},
	{
		id: "sync_daemon", group: groupSync, title: "connection synchronisation runs", when: "lvs_sync_daemon is configured and sluiced runs",
		why:  "A director without the master half tells nobody of its connections; one without the backup half takes in none. Both directors need the same id, or 0 at the backup, which takes in all.",
		help: "sluiced starts it, and puts it back: its log says what failed. Two that differ by id ignore each other without a word.",
		find: syncDaemon,
	},
}

func syncDevice(x *exam) []Finding {
	s := x.use.global.Sync
	if s == nil {
		return nil
	}
	if x.Facts.DevicesUnknown != "" {
		return unknown("the devices of this machine: %s", x.Facts.DevicesUnknown)
	}
	f := Finding{Status: Fail, Wanted: "a device that is up and has multicast", Do: x.now.help}
	i := slices.IndexFunc(x.Facts.Devices, func(d host.Device) bool { return d.Name == s.Interface })
	switch {
	case i < 0:
		f.Found = "there is no device " + s.Interface
	case !x.Facts.Devices[i].Up:
		f.Found = s.Interface + " is down"
		f.Mend = []string{"ip link set dev " + s.Interface + " up"}
	case !x.Facts.Devices[i].Multicast:
		f.Found = s.Interface + " is without multicast"
		f.Mend = []string{"ip link set dev " + s.Interface + " multicast on"}
	default:
		return ok("%s is up and has multicast", s.Interface)
	}
	return []Finding{f.about(x.use.every())}
}

func syncDaemon(x *exam) (found []Finding) {
	s := x.use.global.Sync
	if s == nil || !x.writing() || !x.Facts.Table.Present {
		return nil
	}
	if x.SyncUnknown != "" {
		return unknown("what of connection synchronisation runs: %s", x.SyncUnknown)
	}

	switch wanted := wantedHalves(s); {
	case s.File != nil && len(x.Sync) == 0:

		found = append(found, Finding{Status: Fail, Found: "neither half runs", Wanted: "one, by track_file " + s.File.Name, Do: x.now.help}.about(x.use.every()))
	case s.File != nil:
	default:
		for _, half := range wanted {
			if !slices.ContainsFunc(x.Sync, func(h SyncHalf) bool { return h.State == half }) {
				found = append(found, Finding{Status: Fail, Found: "the " + half + " half does not run", Wanted: "lvs_sync_daemon " + s.Interface + " as " + half, Do: x.now.help}.about(x.use.every()))
			}
		}
	}
	var runs []string
	for _, h := range x.Sync {
		runs = append(runs, fmt.Sprintf("%s on %s with id %d", h.State, h.Interface, h.ID))
		if h.Interface != s.Interface || h.ID != uint32(s.ID) {
			found = append(found, Finding{Status: Warn, Found: fmt.Sprintf("the %s half runs on %s with id %d", h.State, h.Interface, h.ID), Wanted: fmt.Sprintf("%s and id %d", s.Interface, s.ID), Do: x.now.help})
		}
	}
	if found == nil && runs != nil {
		return ok("%s; the other director needs the same id", strings.Join(runs, ", "))
	}
	return found
}

// wantedHalves are what should run.
func wantedHalves(s *config.SyncDaemon) []string {
	switch s.State {
	case config.SyncMaster:
		return []string{"master"}
	case config.SyncBackup:
		return []string{"backup"}
	case config.SyncBoth:
		return []string{"master", "backup"}
	}
	return nil
}
