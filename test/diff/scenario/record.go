package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Run is what one daemon did in one scenario. Texts hold $DIR and $RUN in place
// of what was put in for them.
type Run struct {
	Scenario string `json:"scenario"`
	Daemon   string `json:"daemon"`
	// Records holds canonical texts by record name.
	Records map[string]string `json:"records"`
	Steps   []Step            `json:"steps,omitempty"`
	Changes []Change          `json:"changes,omitempty"`
	// Problems are what makes the run worthless: a crash, a command that failed.
	Problems []string `json:"problems,omitempty"`
	Log      []string `json:"log,omitempty"`
	Took     float64  `json:"took"`
}

// Canonical brings what was recorded into the form that is compared.
func Canonical(record, text string) (string, error) {
	switch kind, _, _ := strings.Cut(record, ":"); kind {
	case kindTable:
		return canonicalTable(text)
	case kindEvents:
		return canonicalEvents(text), nil
	}
	return strings.TrimRight(text, "\n") + "\n", nil
}

// canonicalTable sorts what `ipvsadm -Sn` printed by service and destination, and
// adds the thresholds that `ipvsadm -Ln --thresholds`, behind it, shows.
func canonicalTable(text string) (string, error) {
	services := map[string]string{}
	dests := map[string]map[string]string{}
	saved, listing, _ := strings.Cut(text, "IP Virtual Server version")
	for line := range strings.Lines(saved) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		key, rest := cutService(words[1:])
		switch {
		case key == "":
			return "", fmt.Errorf("ipvsadm -Sn: %q names no service", strings.TrimSpace(line))
		case words[0] == "-A":
			services[key] = strings.Join(words, " ")
		case words[0] == "-a" && len(rest) > 1 && rest[0] == "-r":
			if dests[key] == nil {
				dests[key] = map[string]string{}
			}
			dests[key][rest[1]] = strings.Join(words, " ")
		default:
			return "", fmt.Errorf("ipvsadm -Sn: %q is neither a service nor a destination", strings.TrimSpace(line))
		}
	}
	addThresholds(dests, listing)
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(services)) {
		fmt.Fprintln(&out, services[key])
		for _, addr := range slices.Sorted(maps.Keys(dests[key])) {
			fmt.Fprintln(&out, dests[key][addr])
		}
		delete(dests, key)
	}
	for key := range dests {
		return "", fmt.Errorf("ipvsadm -Sn: destinations of %s, which is not listed", key)
	}
	return out.String(), nil
}

// cutService takes the words that name the service off the front.
func cutService(words []string) (key string, rest []string) {
	if len(words) < 2 {
		return "", nil
	}
	n := 2
	if words[0] == "-f" && len(words) > 2 && words[2] == "-6" {
		n = 3
	}
	return strings.Join(words[:n], " "), words[n:]
}

var listed = map[string]string{"TCP": "-t ", "UDP": "-u ", "SCTP": "--sctp-service ", "FWM": "-f "}

// addThresholds adds those that are not 0 to the lines of their destinations, as
// the options that would set them.
func addThresholds(dests map[string]map[string]string, listing string) {
	key := ""
	for line := range strings.Lines(listing) {
		words := strings.Fields(line)
		switch {
		case len(words) >= 2 && listed[words[0]] != "":
			key = listed[words[0]] + words[1]
			if words[0] == "FWM" && len(words) > 2 && words[2] == "IPv6" {
				key += " -6"
			}
		case len(words) >= 4 && words[0] == "->" && dests[key][words[1]] != "":
			if words[2] != "0" {
				dests[key][words[1]] += " -x " + words[2]
			}
			if words[3] != "0" {
				dests[key][words[1]] += " -y " + words[3]
			}
		}
	}
}

// canonicalEvents puts the lines of one subject together, in their order, and
// sorts by subject. The subject is all of a line but its last word.
func canonicalEvents(text string) string {
	states := map[string][]string{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		subject := strings.Join(words[:len(words)-1], " ")
		states[subject] = append(states[subject], words[len(words)-1])
	}
	var out strings.Builder
	for _, subject := range slices.Sorted(maps.Keys(states)) {
		for _, state := range states[subject] {
			fmt.Fprintln(&out, strings.TrimSpace(subject+" "+state))
		}
	}
	return out.String()
}
