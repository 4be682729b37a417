package script

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestNotAllowedToBecomeTheUser looks at the explanation alone, since root may
// become anyone.
func TestNotAllowedToBecomeTheUser(t *testing.T) {
	err := explain(syscall.EPERM, program{path: "/s", as: account{user: "x", uid: 54321, gid: 54321}})
	wantError(t, err, "CAP_SETUID", "user x (uid 54321)")
}

func TestExplain(t *testing.T) {
	r := newRoom(t)
	own := account{user: "me", uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	for name, tt := range map[string]struct {
		err  syscall.Errno
		path string
		want []string
	}{
		"the mode says no": {syscall.EACCES, r.file("a", "", 0o644), []string{"no execute permission", "mode 0644"}},
		"something else":   {syscall.EACCES, r.script("b", ""), []string{"permission denied", "noexec", "user me"}},
		"binary":           {syscall.ENOENT, r.file("c", "\x7fELF", 0o755), []string{"no such file", "/c"}},
		"interpreter":      {syscall.ENOENT, r.file("d", "#!/gone", 0o755), []string{"#!/gone"}},
		"vanished":         {syscall.ENOENT, r.path("e"), []string{"no such file", "/e"}},
		"busy":             {syscall.ETXTBSY, r.path("f"), []string{"text file busy", "/f"}},
		"own user":         {syscall.EPERM, r.path("g"), []string{"operation not permitted"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := explain(tt.err, program{path: tt.path, as: own})
			wantError(t, err, tt.want...)
			if strings.Contains(err.Error(), "fork/exec") {
				t.Errorf("%q speaks of Go", err)
			}
		})
	}
}
