package man

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// Current returns an error if a page is not what is kept in a file; with update it is
// put there.
func Current(path string, page []byte, update bool) error {
	if update {
		return os.WriteFile(path, page, 0o644)
	}
	kept, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(kept, page) {
		err = fmt.Errorf("%s is behind; run: make man", path)
	}
	return err
}

// ErrNoGroff tells that Lint has nothing to look with.
var ErrNoGroff = errors.New("groff is not installed: apt-get install groff-base")

// Lint returns an error with what groff warns of.
func Lint(ctx context.Context, page []byte) error {
	groff, err := exec.LookPath("groff")
	if err != nil {
		return ErrNoGroff
	}
	cmd := exec.CommandContext(ctx, groff, "-man", "-Tutf8", "-ww")
	cmd.Stdin = bytes.NewReader(page)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("groff: %w\n%s", err, complaints.Bytes())
	}
	if complaints.Len() > 0 {
		return fmt.Errorf("groff: %s", complaints.Bytes())
	}
	return nil
}

// Plain is what a terminal shows of a page, for tests.
func Plain(page []byte) string {
	text := string(page)
	for _, r := range [][2]string{{`\fB`, ""}, {`\fP`, ""}, {`\-`, "-"}, {`\(aq`, "'"}, {`\(ga`, "`"}, {`\(ha`, "^"}, {`\(ti`, "~"}, {`\(dq`, `"`}, {`\&`, ""}, {`\e`, `\`}} {
		text = string(bytes.ReplaceAll([]byte(text), []byte(r[0]), []byte(r[1])))
	}
	return text
}
