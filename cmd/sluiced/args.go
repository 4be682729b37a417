package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// normalize makes of a command line that getopt_long(3) understands, and so
// keepalived, one that pflag does: options only, each in its long form and with
// its value attached, then what is no option.
//
// It differs from getopt on purpose where a value is optional (-t, -g, -M). What
// follows the letter is one only if it has a slash or starts with "=": keepalived
// takes "-tf FILE" for a test of its default file that is logged to one named "f",
// which nobody wants.
func normalize(flags *pflag.FlagSet, args []string) ([]string, error) {
	var options, rest []string
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			rest = append(rest, args...)
			args = nil
		case strings.HasPrefix(arg, "--"):
			name, value, attached := strings.Cut(arg[2:], "=")
			f, err := long(flags, name)
			if err != nil {
				return nil, err
			}
			if !attached && f.NoOptDefVal == "" {
				if value, args, err = parameter(f, "--"+f.Name, args); err != nil {
					return nil, err
				}
				attached = true
			}
			options = append(options, option(f, value, attached))
		case len(arg) > 1 && arg[0] == '-':
			more, left, err := cluster(flags, arg[1:], args)
			if err != nil {
				return nil, err
			}
			options, args = append(options, more...), left
		default:
			rest = append(rest, arg)
		}
	}
	return append(append(options, "--"), rest...), nil
}

// cluster takes the letters behind one dash.
func cluster(flags *pflag.FlagSet, letters string, args []string) (options, left []string, err error) {
	for letters != "" {
		letter := letters[:1]
		letters = letters[1:]
		var f *pflag.Flag
		if letter[0] < 0x80 {
			f = flags.ShorthandLookup(letter)
		}
		if f == nil {
			return nil, nil, fmt.Errorf("unknown option -%s", letter)
		}
		value, attached := "", false
		switch {
		case f.NoOptDefVal == "" && letters != "":
			value, attached, letters = letters, true, ""
		case f.NoOptDefVal == "":
			if value, args, err = parameter(f, "-"+letter, args); err != nil {
				return nil, nil, err
			}
			attached = true
		case f.Value.Type() == optional && (strings.HasPrefix(letters, "=") || strings.Contains(letters, "/")):
			value, attached, letters = strings.TrimPrefix(letters, "="), true, ""
		}
		options = append(options, option(f, value, attached))
	}
	return options, args, nil
}

// long finds an option by its name or an abbreviation that fits no other.
func long(flags *pflag.FlagSet, name string) (*pflag.Flag, error) {
	if f := flags.Lookup(name); f != nil {
		return f, nil
	}
	var fit []*pflag.Flag
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Name, name) {
			fit, names = append(fit, f), append(names, "--"+f.Name)
		}
	})
	switch {
	case len(fit) == 1 && name != "":
		return fit[0], nil
	case len(fit) > 1 && name != "":
		return nil, fmt.Errorf("option --%s could be %s", name, strings.Join(names, " or "))
	}
	return nil, fmt.Errorf("unknown option --%s", name)
}

// parameter takes the next argument, whatever it looks like, as getopt does.
func parameter(f *pflag.Flag, given string, args []string) (value string, left []string, err error) {
	if len(args) == 0 {
		what, _ := pflag.UnquoteUsage(f)
		return "", nil, fmt.Errorf("option %s needs a %s", given, what)
	}
	return args[0], args[1:], nil
}

func option(f *pflag.Flag, value string, attached bool) string {
	if attached {
		return "--" + f.Name + "=" + value
	}
	return "--" + f.Name
}
