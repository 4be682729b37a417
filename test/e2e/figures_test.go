package e2e

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-lb/sluice/test/page"
)

var update = flag.Bool("update", false, "write the figures of two directors into the pages")

// What the tests of two directors measure stands in both pages, in the second what must
// not lose anything.
const (
	figuresPart = "two-directors"
	figuresFile = "../../docs/two-directors.md"
	lossesFile  = "../../docs/zero-loss.md"
)

// figureKernels are the columns: everything is measured on each of them.
var figureKernels = []string{"6.1", "6.12"}

// figures are the rows.
var figures = []struct {
	name, title string
	promised    bool
}{
	{"killed", "the first director is killed: connections that the second was told of", true},
	{"killed, removed", "after that a reload of the second removes a real server", true},
	{"sides", "both change sides by their track files, just after connections were opened", true},
	{"young", "the first is killed: connections of two packets, the third is the first to be told of", false},
	{"young, threshold of 2", "the same with `sync_threshold` 2 50", false},
	{"young, sloppy_tcp", "the same with `sloppy_tcp` 1 and `mh` with `mh-port`", false},
	{"server too, vip_device", "the first is killed, the second is passive and a real server too, with `vip_device`", true},
	{"server too, removed", "after that a reload of the second removes a real server", true},
	{"server too, another service", "the first is killed, the second is a real server too; the address comes before the services, but another service is in the table", false},
}

var figuresMu sync.Mutex

// figure logs how many of the connections were lost and, if asked to, writes it down.
func (p *pair) figure(name string, lost, opened int) {
	p.Helper()
	p.Logf("%s: %d of %d connections lost", name, lost, opened)
	if !*update || p.Failed() {
		return
	}
	release := strings.TrimSpace(read(p.T, "/proc/sys/kernel/osrelease"))
	kernel := regexp.MustCompile(`^\d+\.\d+`).FindString(release)
	figuresMu.Lock()
	defer figuresMu.Unlock()
	text := read(p.T, figuresFile)
	old, err := page.Part(text, figuresPart)
	if err != nil {
		p.Fatal(err)
	}
	cell := fmt.Sprintf("%d of %d", lost, opened)
	if lost == 0 {
		cell = fmt.Sprintf("**0** of %d", opened)
	}
	rows, err := withFigure(parseFigures(old), name, kernel, cell)
	if err != nil {
		p.Fatal(err)
	}
	replacePart(p.T, figuresFile, rows.table(false))
	replacePart(p.T, lossesFile, rows.table(true))
}

func replacePart(t *testing.T, file, table string) {
	t.Helper()
	text, err := page.Replace(read(t, file), figuresPart, table)
	if err == nil { // nobody is to see half a page
		err = os.WriteFile(file+".new", []byte(text), 0o644)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// figureTable has the cells of each row, by its place in figures.
type figureTable [][]string

const unmeasured = "not measured"

func parseFigures(part string) figureTable {
	t := make(figureTable, len(figures))
	lines := strings.Split(part, "\n")
	for i, f := range figures {
		t[i] = slices.Repeat([]string{unmeasured}, len(figureKernels))
		for n, line := range lines {
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			if cells[0] == f.title && len(cells) == 1+len(figureKernels) {
				copy(t[i], cells[1:])
				lines = lines[n+1:] // titles may occur twice
				break
			}
		}
	}
	return t
}

func withFigure(t figureTable, name, kernel, cell string) (figureTable, error) {
	column := slices.Index(figureKernels, kernel)
	for i, f := range figures {
		if f.name == name && column >= 0 {
			t[i][column] = cell
			return t, nil
		}
	}
	return nil, fmt.Errorf("no row %q or no column for Linux %q in the figures of two directors", name, kernel)
}

// table is the part of a page.
func (t figureTable) table(promised bool) string {
	var b strings.Builder
	b.WriteString("\n| what happens |")
	for _, k := range figureKernels {
		fmt.Fprintf(&b, " lost on Linux %s |", k)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(figureKernels)) + "\n")
	for i, f := range figures {
		if f.promised || !promised {
			fmt.Fprintf(&b, "| %s | %s |\n", f.title, strings.Join(t[i], " | "))
		}
	}
	return b.String() + "\n"
}

// TestFigures: both pages have what the tests measured, on each kernel, from one
// measurement; and nothing that is promised was lost.
func TestFigures(t *testing.T) {
	whole, err := page.Part(read(t, figuresFile), figuresPart)
	if err != nil {
		t.Fatal(err)
	}
	rows := parseFigures(whole)
	if got := rows.table(false); got != whole {
		t.Errorf("%s has\n%s\nwant\n%s", figuresFile, whole, got)
	}
	short, err := page.Part(read(t, lossesFile), figuresPart)
	if err != nil {
		t.Fatal(err)
	}
	if want := rows.table(true); short != want {
		t.Errorf("%s has\n%s\nwant\n%s", lossesFile, short, want)
	}
	for i, f := range figures {
		for n, cell := range rows[i] {
			switch {
			case cell == unmeasured:
				t.Errorf("%s: not measured on Linux %s: make test-sync ARGS=-update", f.title, figureKernels[n])
			case f.promised && !strings.HasPrefix(cell, "**0** of "):
				t.Errorf("%s: %s lost on Linux %s", f.title, cell, figureKernels[n])
			}
		}
	}
}

// TestFigureIsWrittenInItsPlace: rows with the same title are told apart by their order.
func TestFigureIsWrittenInItsPlace(t *testing.T) {
	rows := parseFigures("")
	for i, f := range figures {
		var err error
		if rows, err = withFigure(rows, f.name, "6.12", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		rows = parseFigures(rows.table(false))
	}
	for i := range figures {
		if rows[i][0] != unmeasured || rows[i][1] != fmt.Sprint(i) {
			t.Errorf("row %d holds %q", i, rows[i])
		}
	}
	if _, err := withFigure(rows, "killed", "7.0", "x"); err == nil {
		t.Error("a kernel without a column was taken")
	}
}
