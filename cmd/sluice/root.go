package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-lb/sluice/internal/build"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/control"
)

// timeout bounds a whole verb that asks the daemon.
const timeout = 15 * time.Second

// app is what every verb has: where it writes, and where the daemon is.
type app struct {
	stdout, stderr io.Writer
	// socket is valid once the command line is read.
	socket string
}

// Groups of verbs, in the order of the help.
const (
	groupLook    = "look"
	groupOperate = "operate"
	groupFile    = "file"
	groupOther   = "other"
)

// newRoot returns the whole program.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "operate a running sluiced",
		Long: `sluice asks a running sluiced how its pools are and why, changes what real
servers get, and checks configuration files and machines.`,
		Version:       build.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		// The template says it.
		DisableFlagsInUseLine: true,
		Args:                  cobra.ArbitraryArgs,
		CompletionOptions:     cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE:                  func(cmd *cobra.Command, args []string) error { return ended(a.noVerb(cmd, args)) },
	}
	root.SetVersionTemplate("sluice {{.Version}}\n")
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(a.badFlag)
	root.SetUsageTemplate(usageTemplate)
	cobra.AddTemplateFunc("options", options)
	cobra.EnableCommandSorting = false
	at := control.DefaultSocket
	if env := os.Getenv("SLUICE_SOCKET"); env != "" {
		at = env
	}
	root.PersistentFlags().SortFlags = false
	root.PersistentFlags().StringVar(&a.socket, "socket", at, "the daemon's control socket `PATH` ($SLUICE_SOCKET)")
	root.AddGroup(
		&cobra.Group{ID: groupLook, Title: "See how it is:"},
		&cobra.Group{ID: groupOperate, Title: "Change what real servers get:"},
		&cobra.Group{ID: groupFile, Title: "Configuration:"},
		&cobra.Group{ID: groupOther, Title: "More:"},
	)
	root.SetHelpCommandGroupID(groupOther)
	root.InitDefaultHelpFlag()
	root.Flags().Lookup("help").Usage = "say this"
	root.InitDefaultVersionFlag()
	root.Flags().Lookup("version").Usage = "print the version"
	for _, group := range []struct {
		id    string
		verbs []*cobra.Command
	}{
		{groupLook, []*cobra.Command{newStatus(a), newTop(a), newExplain(a), newTest(a), newEvents(a)}},
		{groupOperate, []*cobra.Command{newDrain(a), newUndrain(a), newWeight(a), newDrains(a), newPassive(a)}},
		{groupFile, []*cobra.Command{newCheck(a), newPlan(a), newReload(a), newDoctor(a), newGenhash(a)}},
		{groupOther, []*cobra.Command{newHandover(a), newCompletion(a), newVersion(a)}},
	} {
		for _, v := range group.verbs {
			v.GroupID = group.id
			v.Flags().SortFlags = false
			v.DisableFlagsInUseLine = true
			v.InitDefaultHelpFlag()
			v.Flags().Lookup("help").Usage = "say this"
			root.AddCommand(v)
		}
	}
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Short = "say more of a verb"
	}
	return root
}

// options lists flags, each with what it takes.
func options(flags *pflag.FlagSet) string {
	var names, texts []string
	width := 0
	flags.VisitAll(func(f *pflag.Flag) {
		takes, text := pflag.UnquoteUsage(f)
		name := "      --" + f.Name
		if f.Shorthand != "" {
			name = "  -" + f.Shorthand + ", --" + f.Name
		}
		if f.Value.Type() != "bool" {
			name += " " + takes
			if zero := f.DefValue == "" || f.DefValue == "0" || f.DefValue == "0s"; !zero {
				text += " (default " + f.DefValue + ")"
			}
		}
		names, texts = append(names, name), append(texts, text)
		width = max(width, len(name))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%-*s  %s", width, name, texts[i])
	}
	return strings.Join(names, "\n")
}

// usageTemplate is shown below what a verb says of itself.
const usageTemplate = `Usage: {{.UseLine}}
{{- if .HasAvailableSubCommands}} VERB [options]
{{range $group := .Groups}}
{{.Title}}
{{- range $.Commands}}{{if and (eq .GroupID $group.ID) (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name 12}}{{.Short}}{{end}}{{end}}
{{end}}
sluice VERB --help says more. Exit statuses are each verb's own, but for 0 (done), 3
(the daemon cannot be reached), 64 (this command line makes no sense) and 77 (you may not).
{{- end}}
{{- if .HasAvailableLocalFlags}}

Options:
{{options .LocalFlags}}
{{- end}}
{{- if .HasAvailableInheritedFlags}}

Options of every verb:
{{options .InheritedFlags}}
{{- end}}
`

// noVerb is for a command line without a verb that there is.
func (a *app) noVerb(cmd *cobra.Command, args []string) int {
	if len(args) == 0 {
		cmd.SetOut(a.stderr)
		_ = cmd.Help() // to a terminal that may be gone
		return exitUsage
	}
	var names []string
	for _, v := range cmd.Commands() {
		names = append(names, v.Name())
	}
	fmt.Fprintf(a.stderr, "sluice: unknown verb %q\n", args[0])
	if s := diag.Suggest(args[0], names); s != "" {
		fmt.Fprintf(a.stderr, "  did you mean: sluice %s\n", s)
	} else {
		fmt.Fprintln(a.stderr, "  sluice help lists what there is")
	}
	return exitUsage
}

func (a *app) badFlag(cmd *cobra.Command, err error) error {
	return ended(a.misused(cmd, err.Error()))
}

// misused says what is wrong with a command line.
func (a *app) misused(cmd *cobra.Command, what string) int {
	fmt.Fprintf(a.stderr, "%s: %s\n  try: %s --help\n", cmd.CommandPath(), what, cmd.CommandPath())
	return exitUsage
}

// operands bounds how many operands a verb takes.
func (a *app) operands(most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > most {
			return ended(a.misused(cmd, fmt.Sprintf("unexpected argument %q", args[most])))
		}
		return nil
	}
}

// failed says why a verb came to nothing, and returns its status; who may not do it
// gets exitForbidden whatever the verb.
func (a *app) failed(cmd *cobra.Command, err error, status int) int {
	if errors.Is(err, fs.ErrPermission) {
		status = exitForbidden
	}
	fmt.Fprintf(a.stderr, "%s: %v\n", cmd.CommandPath(), err)
	return status
}

// client asks the daemon.
func (a *app) client() *control.Client { return control.NewClient(a.socket) }

// limited is the context of a verb that asks the daemon and does not wait.
func limited(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, timeout)
}

// encode prints JSON for programs.
func (a *app) encode(v any) {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // a reader that went away is no concern
}

// colour reports whether w is a terminal whose user has not said no (no-color.org).
func colour(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal(w)
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}
