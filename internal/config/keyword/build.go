package keyword

import (
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// Options says how a configuration is read.
type Options struct {
	// Options are the language's: where files come from and what @ID, ${_ENV ...}
	// and the like mean. OpensBlock is filled in.
	syntax.Options
	// Strict makes an error as bad as a fatal finding.
	Strict bool
}

// Load reads a configuration, builds it and validates it. The list holds every
// finding of all three steps, sorted by place; the configuration is nil if one
// of them is fatal or, when Strict, an error.
func Load(name string, opts Options) (*config.Config, diag.List) {
	x := newIndex()
	opts.OpensBlock = x.opensBlock
	tree, list := syntax.Parse(name, opts.Options)
	return finish(x, tree, list, opts.Strict)
}

// LoadString is Load for a text that is already there.
func LoadString(name, text string, opts Options) (*config.Config, diag.List) {
	x := newIndex()
	opts.OpensBlock = x.opensBlock
	tree, list := syntax.ParseString(name, text, opts.Options)
	return finish(x, tree, list, opts.Strict)
}

func finish(x *index, tree *syntax.Tree, list diag.List, strict bool) (*config.Config, diag.List) {
	if tree == nil {
		return nil, list
	}
	cfg, more := build(x, tree)
	list = append(list, more...)
	list.Sort(tree.Files...)
	if list.HasFatal() || (strict && len(list.Errors()) > 0) {
		return nil, list
	}
	return cfg, list
}

// Build makes the configuration of a tree. It is whole, as far as it could be
// read, whatever the list says.
func Build(tree *syntax.Tree) (*config.Config, diag.List) {
	return build(newIndex(), tree)
}

// OpensBlock is the rule for syntax.Options.OpensBlock.
func OpensBlock() func(path []string) bool { return newIndex().opensBlock }
