package docs

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

var update = flag.Bool("update", false, "write into the pages what their commands print")

func TestMain(m *testing.M) { testkit.Main(m) }

// patience bounds one command; the guest may be twenty times slower than a machine.
const patience = time.Minute

// loop is what the shell does: it takes commands, each ended by a zero byte, and ends
// what each prints by a mark with its status. Descriptors from 3 on are the page's.
const loop = `set -o pipefail
exec 90<&3 3<&-
while IFS= read -r -d '' -u 90 command; do
	eval "$command"
	printf '\n%s %d\n' "$MARK" $?
done`

const mark = "--- end of the command, status"

// shell is one for a page.
type shell struct {
	commands, output *os.File
	lines            *bufio.Reader
}

// newShell starts one in a namespace and a directory.
func newShell(t *testing.T, ns *testkit.NS, dir string, env ...string) *shell {
	t.Helper()
	commandsRead, commands, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	output, outputWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "--noprofile", "--norc", "-c", loop)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = dir, outputWrite, outputWrite, []*os.File{commandsRead}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), "MARK="+mark, "PATH="+bin+":"+os.Getenv("PATH")+":/usr/sbin:/sbin", "LC_ALL=C.UTF-8", "TZ=UTC", "HOME="+t.TempDir())
	cmd.Env = append(cmd.Env, env...)
	err = ns.Do(cmd.Start)
	commandsRead.Close()
	outputWrite.Close()
	if err != nil {
		t.Fatalf("start bash: %v", err)
	}
	t.Cleanup(func() {
		commands.Close()
		output.Close()
		if t.Failed() { // a command may run for ever
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		}
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("bash: %v", err)
		}
	})
	return &shell{commands: commands, output: output, lines: bufio.NewReader(output)}
}

// run runs a command and returns the lines that it printed and its status.
func (s *shell) run(text string) (lines []string, status int, err error) {
	if err := s.output.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, 0, err
	}
	if _, err := s.commands.WriteString(text + "\x00"); err != nil {
		return nil, 0, err
	}
	for {
		line, err := s.lines.ReadString('\n')
		line = strings.TrimRight(line, "\n")
		if err != nil {
			return append(lines, line), 0, fmt.Errorf("it does not end: %w", err)
		}
		if number, ok := strings.CutPrefix(line, mark+" "); ok {
			// The mark has a line end in front, for output that does not end with one.
			if n := len(lines); n > 0 && lines[n-1] == "" {
				lines = lines[:n-1]
			}
			status, err := strconv.Atoi(number)
			return lines, status, err
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
}

// play runs a page's blocks and compares. edit makes the output of this run the page's.
func (p *page) play(t *testing.T, s *shell, edit *strings.Replacer) {
	t.Helper()
	outputs := map[int][]string{}
	for _, b := range p.blocks {
		if b.notRun != "" {
			continue
		}
		for _, c := range b.commands {
			got, status, err := s.run(c.text)
			for i := range got {
				got[i] = edit.Replace(got[i])
			}
			want := c.want
			// A blank line in front of the next command is the page's own.
			for len(want) > 0 && want[len(want)-1] == "" {
				want = want[:len(want)-1]
			}
			for len(got) > 0 && got[len(got)-1] == "" {
				got = got[:len(got)-1]
			}
			switch {
			case err != nil:
				t.Fatalf("%s:%d: %s: %v; it printed:\n%s", p.path, c.line, c.text, err, strings.Join(got, "\n"))
			case status == 126 || status == 127:
				t.Fatalf("%s:%d: %s: there is no such command:\n%s", p.path, c.line, c.text, strings.Join(got, "\n"))
			case same(want, got):
			case *update:
				outputs[c.line] = append(got, c.want[len(want):]...)
			default:
				t.Errorf("%s:%d: %s (status %d)\nprints:\n%s\n\nand not, as the page says:\n%s", p.path, c.line, c.text, status,
					strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
	if len(outputs) > 0 {
		if err := p.replace(outputs); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d outputs taken anew", p.path, len(outputs))
	}
}

// kernelFree are the commands that print the same where there is no ip_vs.
var kernelFree = regexp.MustCompile(`^sluice (check|drain|undrain|weight|version|completion) `)

// try runs a page's blocks where there is no ip_vs. Each command must be one that can be
// run; what it prints is compared where it is the same.
func (p *page) try(t *testing.T, s *shell) {
	t.Helper()
	for _, b := range p.blocks {
		if b.notRun != "" {
			continue
		}
		for _, c := range b.commands {
			got, status, err := s.run(c.text)
			want := c.want
			for len(want) > 0 && want[len(want)-1] == "" {
				want = want[:len(want)-1]
			}
			switch {
			case err != nil:
				t.Fatalf("%s:%d: %s: %v", p.path, c.line, c.text, err)
			case kernelFree.MatchString(c.text) && !same(want, got):
				t.Errorf("%s:%d: %s\nprints:\n%s\n\nand not, as the page says:\n%s", p.path, c.line, c.text, strings.Join(got, "\n"), strings.Join(want, "\n"))
			case status == usage || status == 126 || status == 127:
				t.Errorf("%s:%d: %s: status %d:\n%s", p.path, c.line, c.text, status, strings.Join(got, "\n"))
			}
		}
	}
}

// usage is sluice's exit status for a command line that makes no sense.
const usage = 64
