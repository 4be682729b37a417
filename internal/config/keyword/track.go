package keyword

import (
	"fmt"
	"strconv"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

func openTrack(f *frame, n *syntax.Node, child *frame) bool {
	f.surplus(n, 1)
	child.trk = &rawTrack{f: child, track: config.TrackFile{Pos: n.Pos, Name: n.Words[1].Text, Weight: 1}}
	return true
}

// closeTrack keeps the block if it names a file and its name is new.
func closeTrack(child *frame) {
	t := child.trk
	switch old := child.b.raw.tracks[t.track.Name]; {
	case t.track.Path == "":
		child.reportBlock(codeTrackFile, fmt.Sprintf("track_file %s names no file", t.track.Name), "the block is dropped, as keepalived does; write file PATH in it")
		return
	case old != nil:
		child.reportBlock(codeDuplicate, fmt.Sprintf("track_file %s is defined twice", t.track.Name), "the first one is used, as keepalived does in silence",
			"the first one is on "+lineOf(old.track.Pos, t.track.Pos))
		return
	}
	child.b.raw.tracks[t.track.Name] = t
	child.b.raw.trackOrder, child.b.raw.trackNames = append(child.b.raw.trackOrder, t), append(child.b.raw.trackNames, t.track.Name)
}

// setTrackWeight allows one weight; a second one only after 1.
func setTrackWeight(f *frame, v *value) {
	args := v.n.Args()
	f.surplus(v.n, 2)
	if f.trk.weightSet && f.trk.track.Weight != 1 {
		f.report(codeDuplicate, v.n, &v.n.Words[0], "weight is already given", "the first one is used, as keepalived does")
		return
	}
	num, ok := f.number(v.n, &args[0], number(-254, 254), "weight", f.ignored(v.kw))
	if !ok {
		return
	}
	f.trk.track.Weight, f.trk.weightSet = num, true
	if len(args) > 1 {
		if f.trk.track.Reverse = args[1].Text == "reverse"; !f.trk.track.Reverse {
			f.report(codeWord, v.n, &args[1], fmt.Sprintf("weight: %q is not \"reverse\"", args[1].Text), didYouMean(args[1].Text, []string{"reverse"}, "it is ignored"))
		}
	}
}

func setTrackInit(f *frame, v *value) {
	t := &f.trk.track
	t.InitSet = true
	args := v.n.Args()
	for i := range args {
		if args[i].Text == "overwrite" {
			t.InitOverwrite = true
			continue
		}
		num, ok := f.number(v.n, &args[i], strictNumber(-1<<31, maxInt32), "init_file", "it is ignored; 0 is written")
		if !ok {
			continue
		}
		if num < -254 || num > 254 {
			f.report(codeInitRange, v.n, &args[i], "init_file "+strconv.FormatInt(num, 10)+" is outside -254..254", "it is written as it is")
		}
		t.Init = num
	}
}

// setTrackUse is the extension track_file of a real server.
func setTrackUse(f *frame, v *value) {
	args := v.n.Args()
	u := &rawTrackUse{n: v.n, name: args[0].Text}
	switch {
	case len(args) == 1:
	case args[1].Text != "weight":
		f.report(codeWord, v.n, &args[1], fmt.Sprintf("track_file: %q is not \"weight\"", args[1].Text), didYouMean(args[1].Text, []string{"weight"}, "it is ignored; the track_file's weight is used"))
	case len(args) == 2:
		f.report(codeMissing, v.n, &args[1], "track_file: weight needs a number", "write it after the word")
		return
	default:
		f.useWeight(u, v.n, args[2:])
		f.surplus(v.n, 4)
	}
	f.rs.trackUses = append(f.rs.trackUses, u)
}
