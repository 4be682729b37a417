package keyword

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// closeMail reads the recipients of a notification_email block.
func closeMail(child *frame) {
	m := &child.b.raw.global.Mail
	for _, n := range child.n.Children {
		if n.Extension {
			child.report(codeNotExtension, n, &n.Words[0], "notification_email has no extensions", "the comment is ignored")
			continue
		}
		for i := range n.Words {
			w := &n.Words[i]
			if w.Text == "" {
				child.report(codeWord, n, w, "notification_email: an empty recipient", "it is ignored; write an address such as ops@example.com")
				continue
			}
			if i > 0 && strings.HasPrefix(w.Text, "<") {
				child.report(codeRecipient, n, w, fmt.Sprintf("notification_email: %q and %q are two recipients", n.Words[i-1].Text, w.Text),
					fmt.Sprintf("mail goes to both, as with keepalived; write \"%s %s\" in quotes", n.Words[i-1].Text, w.Text))
			}
			m.To = append(m.To, w.Text)
		}
		if n.Block {
			child.report(codeBlock, n, &n.Words[0], "a recipient takes no block", blockSkipped(n))
		}
	}
}

func setMailServer(f *frame, v *value) {
	args := v.n.Args()
	f.surplus(v.n, 2)
	if args[0].Text == "" {
		f.report(codeWord, v.n, &v.n.Words[1], "smtp_server names no host", "the line is ignored; write HOST [PORT]")
		return
	}
	port := uint16(25)
	if len(args) > 1 {
		var ok bool
		if port, ok = f.port(v.n, &v.n.Words[2], "smtp_server", false, then("the line is ignored, and without a server no mail is sent, as with keepalived")); !ok {
			return
		}
	}
	f.b.raw.global.Mail.Server, f.b.raw.global.Mail.Port = args[0].Text, port
}

func setMailTimeout(f *frame, v *value) {
	if v.num == 0 {
		f.report(codeRange, v.n, &v.n.Words[1], "smtp_connect_timeout 0 is outside 1-4294", "1 is used, as keepalived does")
		v.num = 1
	}
	f.b.raw.global.Mail.Timeout = time.Duration(v.num) * time.Second
}

// The FIFOs that messages go to, in the order of the model.
const (
	lvsFIFO = iota
	globalFIFO
	fifoKinds
)

// rawFIFO is a FIFO as written.
type rawFIFO struct {
	fifo         config.FIFO
	at, scriptAt *syntax.Node
	frame        *frame
	vrrpPath     string
	vrrpScript   bool
}

// setFIFO reads PATH [USER [GROUP]]; the default owner is resolved here, as for
// scripts.
func setFIFO(kind int) func(*frame, *value) {
	return func(f *frame, v *value) {
		args := v.n.Args()
		f.surplus(v.n, 3)
		switch {
		case args[0].Text == "":
			f.report(codeWord, v.n, &v.n.Words[1], v.kw.name+" names no path", "the line is ignored, and there is no FIFO; write PATH [USER [GROUP]]")
			return
		case args[0].Text[0] != '/':
			f.report(codeFIFO, v.n, &v.n.Words[1], fmt.Sprintf("%s: %q is not a path from /", v.kw.name, args[0].Text), "it is used; where it leads depends on how the daemon is started")
		}
		r := &f.b.raw.fifos[kind]
		r.at, r.frame = v.n, f
		r.fifo.Pos, r.fifo.Path = v.n.Pos, args[0].Text
		r.fifo.User, r.fifo.Group = f.b.raw.scriptUsers[0], f.b.raw.scriptUsers[1]
		if len(args) > 1 {
			r.fifo.User, r.fifo.Group = args[1].Text, ""
		}
		if len(args) > 2 {
			r.fifo.Group = args[2].Text
		}
	}
}

func setFIFOScript(kind int) func(*frame, *value) {
	return func(f *frame, v *value) {
		r := &f.b.raw.fifos[kind]
		r.fifo.Script, r.scriptAt, r.frame = f.newScript(v), v.n, f
	}
}

// setVRRPFIFO remembers the FIFO of the other half: where both halves write to
// one path, only one script may read it.
func setVRRPFIFO(f *frame, v *value) {
	r := &f.b.raw.fifos[lvsFIFO]
	switch args := v.n.Args(); {
	case len(args) == 0:
	case v.kw.name == "vrrp_notify_fifo":
		r.vrrpPath = args[0].Text
	default:
		r.vrrpScript = true
	}
}

// fifoList decides which FIFOs there are.
func (b *builder) fifoList() []config.FIFO {
	lvs, global := &b.raw.fifos[lvsFIFO], &b.raw.fifos[globalFIFO]
	for _, r := range []*rawFIFO{lvs, global} {
		if r.at == nil && r.scriptAt != nil {
			fifo := strings.TrimSuffix(r.scriptAt.Keyword(), "_script")
			r.frame.report(codeFIFO, r.scriptAt, &r.scriptAt.Words[0], fmt.Sprintf("%s without %s", r.scriptAt.Keyword(), fifo), "it is not started; write "+fifo+" PATH")
		}
	}
	switch {
	case lvs.at == nil:
	case global.at != nil && lvs.fifo.Path == global.fifo.Path:
		lvs.frame.report(codeFIFO, lvs.at, &lvs.at.Words[1], fmt.Sprintf("lvs_notify_fifo and notify_fifo have the same path %s", lvs.fifo.Path), "lvs_notify_fifo is dropped with its script, as keepalived does, so that nothing is written twice")
		lvs.at = nil
	case lvs.vrrpPath == lvs.fifo.Path && lvs.vrrpScript && lvs.fifo.Script != nil:
		lvs.frame.report(codeFIFO, lvs.scriptAt, &lvs.scriptAt.Words[0], fmt.Sprintf("lvs_notify_fifo and vrrp_notify_fifo have the same path %s and a script each", lvs.fifo.Path), "this one is not started, as keepalived does; that of VRRP reads both")
		lvs.fifo.Script = nil
	}
	var list []config.FIFO
	for _, r := range []*rawFIFO{lvs, global} {
		if r.at != nil {
			list = append(list, r.fifo)
		}
	}
	return list
}

// reloadFile is keepalived's reload_file without a path; pidDir is where it is for
// one of several daemons.
const (
	pidDir     = "/run/keepalived"
	reloadFile = pidDir + ".reload"
)

func defaultReloadFile(instance string, inPIDDir bool) string {
	switch {
	case instance != "":
		return pidDir + "/keepalived_" + instance + ".reload"
	case inPIDDir:
		return pidDir + "/keepalived.reload"
	}
	return reloadFile
}

// processNames are the words that name the process; keepalived has several.
type processNames struct {
	parent, checker string
	standard        bool
}

// name is what keepalived's checker would be called.
func (n processNames) name() string {
	switch {
	case n.checker != "":
		return n.checker
	case n.standard:
		return "keepalived_lvs"
	}
	return n.parent
}

func setNice(f *frame, v *value) {
	f.surplus(v.n, 1)
	p := &f.b.raw.global.Process
	num, _ := f.number(v.n, &v.n.Words[1], number(-20, 19), "checker_priority", "0 is used")
	p.Nice, p.NiceSet = int(num), true
}

func setRealTime(f *frame, v *value) {
	f.surplus(v.n, 1)
	w := &v.n.Words[1]
	num, err := strconv.ParseInt(strings.TrimLeft(w.Text, " \t"), 10, 64)
	if err != nil && !isRange(err) {
		f.number(v.n, w, strictNumber(1, 99), "checker_rt_priority", f.ignored(v.kw))
		return
	}
	used := min(max(num, 1), 99)
	if used != num {
		f.report(codeRange, v.n, w, fmt.Sprintf("checker_rt_priority %s is outside 1-99", w.Text), fmt.Sprintf("%d is used, as keepalived does", used))
	}
	f.b.raw.global.Process.RealTime = int(used)
}

// maxCPU bounds CPU numbers; which ones there are is seen when they are used.
const maxCPU = 1023

func setCPUs(f *frame, v *value) {
	args := v.n.Args()
	var cpus []int
	for i := range args {
		if num, ok := f.number(v.n, &args[i], number(0, maxCPU), "checker_cpu_affinity", "this one is ignored"); ok {
			cpus = append(cpus, int(num))
		}
	}
	slices.Sort(cpus)
	f.b.raw.global.Process.CPUs = slices.Compact(cpus)
}

// maskBit is what a name of umask stands for, of a set such as IRWXU too.
func maskBit(name string) (uint32, bool) {
	shift := map[string]int{"USR": 6, "GRP": 3, "OTH": 0, "U": 6, "G": 3, "O": 0}
	for letters, bits := range map[string]uint32{"IRWX": 7, "IR": 4, "IW": 2, "IX": 1} {
		who, found := strings.CutPrefix(name, letters)
		by, known := shift[who]
		if found && known && (len(who) == 1) == (bits == 7) {
			return bits << by, true
		}
	}
	return 0, false
}

// setUmask reads a number in C's notation, or names with | between them.
func setUmask(f *frame, v *value) {
	args := v.n.Args()
	w := &v.n.Words[1]
	refuse := func(c code, why string) {
		f.report(c, v.n, w, "umask: "+why, "write 0..0777, or names such as IWGRP|IWOTH; "+f.ignored(v.kw))
	}
	mask := uint32(0)
	if first := args[0].Text; first != "" && first[0] >= '0' && first[0] <= '9' {
		// ParseUint would take Go's 0o17, 0b1 and 1_0 as well.
		num, err := strconv.ParseUint(first, 0, 32)
		switch {
		case strings.ContainsAny(first, "_oObB") && !strings.HasPrefix(strings.ToLower(first), "0x") || err != nil && !isRange(err):
			refuse(codeNumber, fmt.Sprintf("%q is not a number", first))
			return
		case err != nil || num > 0o777:
			refuse(codeRange, fmt.Sprintf("%s is outside 0..0777", first))
			return
		case len(args) > 1:
			w = &v.n.Words[2]
			refuse(codeWord, fmt.Sprintf("%q after a number", args[1].Text))
			return
		}
		mask = uint32(num)
	} else {
		var text []string
		for i := range args {
			text = append(text, args[i].Text)
		}
		for name := range strings.SplitSeq(strings.Join(text, " "), "|") {
			bits, ok := maskBit(strings.TrimSpace(name))
			if !ok {
				refuse(codeWord, fmt.Sprintf("%q is not one of the names of permissions", strings.TrimSpace(name)))
				return
			}
			mask |= bits
		}
	}
	p := &f.b.raw.global.Process
	p.Umask, p.UmaskSet = mask, true
}

// setSync reads lvs_sync_daemon. What follows the interface may stand in any
// order, but for the old form with an instance and an id without their words.
func setSync(f *frame, v *value) {
	args := v.n.Args()
	if name := args[0].Text; name == "" || len(name) > 15 {
		f.report(codeTruncated, v.n, &v.n.Words[1], fmt.Sprintf("lvs_sync_daemon: %q is not the name of an interface, which has 1-15 bytes", name), "the line is ignored, as keepalived does: connections are not synchronised")
		return
	}
	s := &config.SyncDaemon{Pos: v.n.Pos, Interface: args[0].Text}
	f.b.raw.sync, f.b.raw.syncAt, f.b.raw.globalAt = s, v.n, f
	for i := 1; i < len(args); i++ {
		w := &args[i]
		switch {
		case slices.Contains(syncOptions, w.Text):
			if i+1 == len(args) {
				f.report(codeMissingSoft, v.n, w, "lvs_sync_daemon: "+w.Text+" needs a value", "it is ignored; write "+w.Text+" "+syncValues[w.Text])
				return
			}
			i++
			f.syncOption(v.n, s, w.Text, &args[i])
		case i == 1:
			s.Instance = w.Text
		case i == 2 && s.Instance == args[1].Text && w.Text != "" && strings.Trim(w.Text, "0123456789") == "":
			f.report(codeWord, v.n, w, fmt.Sprintf("lvs_sync_daemon: %s without \"id\" before it", w.Text), "it is the id, as in keepalived; write id "+w.Text)
			f.syncOption(v.n, s, "id", w)
		default:
			f.report(codeWord, v.n, w, fmt.Sprintf("lvs_sync_daemon: %q is not one of %s", w.Text, strings.Join(syncOptions, ", ")), didYouMean(w.Text, syncOptions, "it is ignored"))
		}
	}
}

var (
	syncOptions = []string{"inst", "id", "maxlen", "port", "ttl", "group"}
	syncValues  = map[string]string{"inst": "VRRP_INSTANCE", "id": "0..255", "maxlen": "1..65507", "port": "1..65535", "ttl": "1..255", "group": "MULTICAST_IP"}
)

// syncOption reads the value of one option.
func (f *frame) syncOption(n *syntax.Node, s *config.SyncDaemon, option string, w *syntax.Word) {
	num := func(lo, hi int64) (int64, bool) {
		then := "the kernel's default is used"
		if option == "id" {
			then = "0 is used"
		}
		return f.number(n, w, strictNumber(lo, hi), "lvs_sync_daemon "+option, then)
	}
	switch option {
	case "inst":
		if s.Instance != "" {
			f.report(codeDuplicate, n, w, fmt.Sprintf("lvs_sync_daemon: inst %s after instance %s", w.Text, s.Instance), "the first one is used, as keepalived does")
			return
		}
		s.Instance = w.Text
	case "id":
		if v, ok := num(0, 255); ok {
			s.ID = uint8(v)
		}
	case "maxlen":
		if v, ok := num(1, 65507); ok {
			s.MaxLen = uint16(v)
		}
	case "port":
		if v, ok := num(1, 65535); ok {
			s.Port = uint16(v)
		}
	case "ttl":
		if v, ok := num(1, 255); ok {
			s.TTL = uint8(v)
		}
	case "group":
		addr, ok := f.address(n, w, "lvs_sync_daemon group", then("the kernel's default is used"))
		switch {
		case !ok:
		case !addr.IsMulticast():
			f.report(codeMulticast, n, w, fmt.Sprintf("lvs_sync_daemon group: %s is not a multicast address", addr), "the kernel's default is used; write one within 224.0.0.0/4 or ff00::/8")
		default:
			s.Group = addr
		}
	}
}

func setSyncState(f *frame, v *value) {
	w := &v.n.Words[1]
	states := []config.SyncState{config.SyncOff, config.SyncMaster, config.SyncBackup, config.SyncBoth}
	i := slices.IndexFunc(states, func(s config.SyncState) bool { return s.String() == w.Text })
	switch {
	case w.Text == "track_file":
		name, ok := f.trackName(v.n)
		if !ok {
			return
		}
		f.b.raw.syncState.set(config.SyncOff)
		f.b.raw.syncFile = name
	case i < 0:
		words := []string{"off", "master", "backup", "both", "track_file"}
		f.report(codeWord, v.n, w, fmt.Sprintf("lvs_sync_state: %q is not one of %s", w.Text, strings.Join(words, ", ")), didYouMean(w.Text, words, f.ignored(v.kw)))
		return
	default:
		f.surplus(v.n, 1)
		f.b.raw.syncState.set(states[i])
		f.b.raw.syncFile = ""
	}
	f.b.raw.syncStateAt, f.b.raw.globalAt = v.n, f
}

// syncDaemon decides which half runs.
func (b *builder) syncDaemon() *config.SyncDaemon {
	s, f := b.raw.sync, b.raw.globalAt
	switch {
	case s == nil:
		if n := b.raw.syncStateAt; n != nil {
			f.report(codeSyncState, n, &n.Words[0], "lvs_sync_state without lvs_sync_daemon", "it has no effect; write lvs_sync_daemon INTERFACE")
		}
		return nil
	case b.raw.syncState.ok:
		s.State = b.raw.syncState.v
		if b.raw.syncFile != "" {
			s.File = b.globalTrack(b.raw.syncFile, said{f, b.raw.syncStateAt}, "connections are not synchronised")
		}
	case s.Instance == "":
		s.State = config.SyncBoth
	default:
		n := b.raw.syncAt
		f.report(codeSyncState, n, &n.Words[0], fmt.Sprintf("lvs_sync_daemon would follow the VRRP instance %s, and no VRRP runs here", s.Instance),
			"connections are not synchronised, as with keepalived -C; write \"#sluice lvs_sync_state master\" (or backup, or both) in global_defs")
	}
	return s
}

// globals finishes what global_defs says.
func (b *builder) globals() config.Global {
	g := b.raw.global
	g.FIFOs, g.Sync = b.fifoList(), b.syncDaemon()
	b.hostGlobals(&g)
	g.Process.Name = b.raw.names.name()
	if b.raw.defaultReloadFile {
		g.Paths.ReloadFile = defaultReloadFile(g.Instance, b.raw.pidDir)
	}
	if g.Process.RealTime != 0 && g.Process.RealTimeLimit == 0 {
		g.Process.RealTimeLimit = 10 * time.Millisecond
	}
	return g
}
