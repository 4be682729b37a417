package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/sluice-lb/sluice/test/diff/scenario"
)

// candidate is a scenario to run, and the archive that it was read from.
type candidate struct {
	s       *scenario.Scenario
	archive []byte
	// number is that of a configuration from a folder, "" for a scenario.
	number string
}

// load reads the scenarios and configurations that the options choose. All that is
// wrong with them is reported.
func (o *options) load() ([]candidate, error) {
	files, err := filepath.Glob(filepath.Join(o.scenarios, "*.txtar"))
	if err != nil {
		return nil, err
	}
	var all []candidate
	var errs []error
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txtar")
		if !o.Run.MatchString(name) {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		s, err := scenario.Parse(name, b)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if s.Quick || !o.Quick {
			all = append(all, candidate{s: s, archive: b})
		}
	}
	configs, err := o.loadConfigs()
	errs = append(errs, err)
	if all = append(all, configs...); len(all) == 0 {
		errs = append(errs, fmt.Errorf("no scenario in %s matches", o.scenarios))
	}
	return all, errors.Join(errs...)
}

// configScript is what is done with each configuration of a folder. Nothing answers
// there, and the tables are read before the first check can have failed.
const configScript = `title configuration %s
%stest run.conf
start run.conf
table start
reload run.conf
table reload
stop
table stop
%s`

// interfaces matches the words that name a network interface; keepalived -t misses
// those that are not there, also when it runs without VRRP.
var interfaces = regexp.MustCompile(`(?m)\b(?:interface|dev|lvs_sync_daemon(?:_interface)?)\s+([A-Za-z][A-Za-z0-9._-]{0,14})(?:\s|$)`)

// deviceCommands makes the interfaces that a configuration names.
func deviceCommands(config []byte) string {
	var names []string
	for _, m := range interfaces.FindAllSubmatch(config, -1) {
		if name := string(m[1]); name != "lo" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	commands := ""
	for _, name := range names {
		commands += fmt.Sprintf("kernel ip link add name %s up multicast on type dummy\n", name)
	}
	return commands
}

// loadConfigs makes a scenario of each configuration; there are none without the
// folder. What is known to differ stands in a file beside the scenarios.
func (o *options) loadConfigs() ([]candidate, error) {
	if o.configs == "" || o.Quick {
		return nil, nil
	}
	if _, err := os.Stat(o.configs); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(o.configs, "*.conf"))
	if err != nil {
		return nil, err
	}
	excuses, err := readExcuses(filepath.Join(o.scenarios, "configs.differs"))
	if err != nil {
		return nil, err
	}
	var all []candidate
	var errs []error
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		number, _, _ := strings.Cut(filepath.Base(f), "-")
		if strings.Contains("\n"+string(b), "\n-- ") {
			errs = append(errs, fmt.Errorf("configuration %s: a line begins with \"-- \", which an archive cannot hold", number))
			continue
		}
		archive := txtar.Format(&txtar.Archive{
			Comment: fmt.Appendf(nil, configScript, number, deviceCommands(b), strings.Join(excuses[number], "\n")),
			Files:   []txtar.File{{Name: "run.conf", Data: b}},
		})
		s, err := scenario.Parse("config-"+number, archive)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if o.Run.MatchString(s.Name) {
			all = append(all, candidate{s: s, archive: archive, number: number})
		}
	}
	return all, errors.Join(errs...)
}

// readExcuses reads lines of NUMBER RECORD REASON and returns the commands that
// they stand for, by number.
func readExcuses(file string) (map[string][]string, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	excuses := map[string][]string{}
	for i, line := range strings.Split(string(b), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.SplitN(line, " ", 3)
		if len(words) < 3 {
			return nil, fmt.Errorf("%s:%d: want NUMBER RECORD REASON", file, i+1)
		}
		excuses[words[0]] = append(excuses[words[0]], "differs "+words[1]+" "+words[2])
	}
	return excuses, err
}
