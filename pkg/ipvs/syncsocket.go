package ipvs

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// SyncSocket is one of the kernel's own sockets that a synchronisation daemon sends or
// receives by.
type SyncSocket struct {
	Port uint16
	// Queue are the octets that wait: a master's to be sent, a backup's to be taken in.
	Queue uint64
	// Drops are the messages that a backup's socket had no room for, each with several
	// connections. A master's is always 0: what it cannot queue is not counted anywhere.
	Drops uint64
}

// maxSyncPorts is the most that net.ipv4.vs.sync_ports can be.
const maxSyncPorts = 64

// SyncSockets returns the sockets of a daemon that runs, from a folder like
// /proc/thread-self/net, which is the calling thread's network namespace. Netlink tells
// nothing of the messages; the list of UDP sockets is all that the kernel has, and only
// the address tells whose a socket is: a backup's is bound to the group, a master's
// connected to it. It is read as a whole, which takes time in proportion to the UDP
// sockets of the namespace.
func SyncSockets(procNet string, d SyncDaemon) ([]SyncSocket, error) {
	d = d.Canonical()
	name := "udp"
	if d.Group.Is6() {
		name = "udp6"
	}
	f, err := os.Open(filepath.Join(procNet, name))
	if errors.Is(err, fs.ErrNotExist) && d.Group.Is6() {
		return nil, nil // a kernel without IPv6
	}
	if err != nil {
		return nil, fmt.Errorf("list UDP sockets: %w", err)
	}
	defer f.Close()
	return readSyncSockets(f, d)
}

func readSyncSockets(r io.Reader, d SyncDaemon) ([]SyncSocket, error) {
	found := []SyncSocket{}
	in := bufio.NewScanner(r)
	for in.Scan() {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode ref pointer drops
		f := strings.Fields(in.Text())
		if len(f) < 13 {
			continue
		}
		column := f[1]
		if d.State == SyncMaster {
			column = f[2]
		}
		at, ok := procAddress(column)
		if !ok || at.Addr() != d.Group || at.Port() < d.Port || at.Port()-d.Port >= maxSyncPorts {
			continue
		}
		tx, rx, _ := strings.Cut(f[4], ":")
		if d.State == SyncBackup {
			tx = rx
		}
		queue, err := strconv.ParseUint(tx, 16, 64)
		if err != nil {
			continue
		}
		drops, err := strconv.ParseUint(f[12], 10, 64)
		if err != nil {
			continue
		}
		found = append(found, SyncSocket{Port: at.Port(), Queue: queue, Drops: drops})
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("list UDP sockets: %w", err)
	}
	return found, nil
}

// procAddress reads "510000E0:2290": words of 32 bits in network order, each written as
// a number of this machine's, and the port.
func procAddress(s string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(s, ":")
	p, err := strconv.ParseUint(port, 16, 16)
	b, herr := hex.DecodeString(host)
	if err != nil || herr != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		w := binary.BigEndian.Uint32(b[i:])
		if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
			w = bits.ReverseBytes32(w)
		}
		binary.BigEndian.PutUint32(b[i:], w)
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, uint16(p)), true
}
