package syntax

import (
	"io"
	"io/fs"
)

// Resolver is where files come from. Names are slash-separated; relative ones
// are relative to the process's working directory. Errors should match
// fs.ErrNotExist and fs.ErrPermission.
type Resolver interface {
	// Open opens a file for reading.
	Open(name string) (io.ReadCloser, error)
	// Stat describes a file and follows symbolic links.
	Stat(name string) (FileInfo, error)
	// ReadDir returns the names in a directory in any order.
	ReadDir(dir string) ([]string, error)
	// Abs returns the absolute form of a name, for ${_PWD}.
	Abs(name string) (string, error)
}

// FileInfo is what matters of a file.
type FileInfo struct {
	Mode fs.FileMode
	// ID is the same for two names of one file (device and inode).
	ID string
}

// Checks are the include checks that are errors of their own class when
// violated.
type Checks uint8

// The include checks.
const (
	// CheckRead: a match is unreadable, a directory, executable or not a
	// regular file.
	CheckRead Checks = 1 << iota
	// CheckMatch: a pattern without wildcard has no match, or a directory of
	// the pattern does not exist.
	CheckMatch
	// CheckWildcard: a pattern with a wildcard has no match.
	CheckWildcard
	// CheckBrace: an alternative of a brace pattern has no match.
	CheckBrace
	// CheckAll is what keepalived -e sets from the start.
	CheckAll = CheckRead | CheckMatch | CheckWildcard | CheckBrace
)

// Options says what a parser needs to know from outside. The zero value reads
// no files, opens blocks at braces only and knows no environment.
type Options struct {
	// Resolver is where files come from; nil has none.
	Resolver Resolver
	// ConfigID is what @ID conditions compare with and what ${_INSTANCE} is.
	ConfigID string
	// Env looks an environment variable up, for ${_ENV NAME}; nil knows none.
	Env func(name string) (string, bool)
	// Random returns a number in [least,most] for ${_RANDOM}; nil returns least.
	Random func(least, most int64) int64
	// OpensBlock tells whether the keyword at the end of a path opens a block
	// there. The path holds the open blocks' keywords from the outside in and
	// is only valid during the call. nil knows none.
	OpensBlock func(path []string) bool
	// IncludeCheck are the include checks in force at the start.
	IncludeCheck Checks

	// logical replaces maxLogical where it is not 0; tests lower it.
	logical int
}

// limits bound what a configuration can make of itself. They are far above
// what a real one needs: 10,000 real servers are some 100,000 lines.
const (
	// maxLine is the longest line in bytes, as written or after substitution.
	maxLine = 64 << 10
	// keepalivedLine is where keepalived cuts a line.
	keepalivedLine = 1023
	// maxLogical is how many logical lines may be produced in all.
	maxLogical = 1_000_000
	// maxDepth is how deep blocks, includes, loops and definitions may nest.
	maxDepth = 100
	// maxFiles is how many files may be opened.
	maxFiles = 50_000
	// maxBytes is how much may be read in all.
	maxBytes = 256 << 20
	// maxWords is how many words may be produced in all, and maxWork how many
	// bytes may be worked on, which loops can make far more than were read.
	maxWords = 2_000_000
	maxWork  = 512 << 20
	// maxSubstituted is how many bytes, and maxReplaced how many references,
	// may be substituted in all; maxInLine is how many references in one line.
	maxSubstituted = 32 << 20
	maxReplaced    = 1_000_000
	maxInLine      = 50_000
	// maxFindings is how many findings are collected before giving up, and
	// maxJunk how many in lines that cannot be text.
	maxFindings = 1000
	maxJunk     = 20
)
