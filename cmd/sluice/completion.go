package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-lb/sluice/internal/engine"
)

func newCompletion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "print what has a shell complete verbs, options and names",
		Long: `Prints a script that has a shell complete verbs and options, and the names of
virtual and real servers that the running daemon has.

  bash   source <(sluice completion bash)
  zsh    sluice completion zsh > "${fpath[1]}/_sluice"
  fish   sluice completion fish > ~/.config/fish/completions/sluice.fish

The packages install them.`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      a.operands(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			switch strings.Join(args, "") {
			case "bash":
				err = cmd.Root().GenBashCompletionV2(a.stdout, true)
			case "zsh":
				err = cmd.Root().GenZshCompletion(a.stdout)
			case "fish":
				err = cmd.Root().GenFishCompletion(a.stdout, true)
			default:
				return ended(a.misused(cmd, "which shell? bash, zsh or fish"))
			}
			if err != nil {
				return ended(a.failed(cmd, err, 1))
			}
			return nil
		},
	}
}

// completionTimeout is how long somebody at a prompt may be kept waiting.
const completionTimeout = time.Second

// names completes a virtual server, and behind it a real server of that.
func (a *app) names(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	s, err := a.client().Status(ctx)
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if len(args) == 0 {
		return virtualNames(s), cobra.ShellCompDirectiveNoFileComp
	}
	return realNames(s, args[0]), cobra.ShellCompDirectiveNoFileComp
}

// virtual completes a virtual server alone.
func (a *app) virtual(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.names(cmd, nil, text)
}

func virtualNames(s *engine.Snapshot) (names []string) {
	for i := range s.VirtualServers {
		vs := &s.VirtualServers[i]
		names = append(names, cobra.CompletionWithDesc(plain(vs), vs.Label))
	}
	return names
}

// plain is a name of a virtual server that needs no quotes: its address and port where
// it has one.
func plain(vs *engine.VirtualServer) string {
	if len(vs.Services) == 1 && vs.Group == "" {
		if name, _, ok := strings.Cut(vs.Services[0].Name, "/"); ok && !strings.Contains(name, " ") {
			return name
		}
	}
	return vs.Name
}

func realNames(s *engine.Snapshot, of string) (names []string) {
	for i := range s.VirtualServers {
		vs := &s.VirtualServers[i]
		if vs.Name != of && vs.Label != of && plain(vs) != of {
			continue
		}
		for j := range vs.RealServers {
			rs := &vs.RealServers[j]
			names = append(names, cobra.CompletionWithDesc(rs.Address, strings.TrimSpace(rs.Label+" "+string(rs.State))))
		}
	}
	return names
}
