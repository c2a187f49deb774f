package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/config"
)

type checkCmd struct {
	File    string `arg:"" help:"The file: TOML, or the YAML of Envoy's reference rate limit service."`
	NoFiles bool   `help:"Open none of the files that it names, such as certificates and keys, and look up no secret."`
}

// Help shows an example.
func (checkCmd) Help() string {
	return `It opens what a start opens, but for the network. The exit code is 1 if the file has an error.

Examples:

    quotient check quotient.toml
    quotient check --no-files quotient.toml        # where certificates and keys are not
    quotient check throttle.toml
    quotient check ratelimit.yaml`
}

// Run reads the file.
func (c checkCmd) Run(s cmdline.Streams) error {
	f, err := c.read()
	if err != nil {
		return err
	}
	opened, err := c.open(f)
	for _, w := range opened.Warnings {
		fmt.Fprintln(s.Err, w)
	}
	if err != nil {
		return f.Located(err)
	}
	var has []string
	rules := 0
	if f.Proxy != nil {
		rules = len(f.Proxy.Rules)
	}
	if f.Proxy != nil || len(opened.Limiters) > 0 {
		has = append(has, cmdline.Count(len(opened.Limiters), "limiter"), cmdline.Count(rules, "rule"))
	}
	if f.Leases != nil {
		has = append(has, cmdline.Count(len(f.Leases.Semaphores), "semaphore"))
	}
	_, err = fmt.Fprintf(s.Out, "%s: ok: %s\n", c.File, strings.Join(has, ", "))
	return err
}

// read reads the file. One of YAML is as if it were the only one of a file with [decide].
func (c checkCmd) read() (*config.File, error) {
	if ext := filepath.Ext(c.File); ext != ".yaml" && ext != ".yml" {
		return config.ReadAny(c.File)
	}
	d := decideCmd{GRPC: "127.0.0.1:0", HTTP: "off", Profile: "envoy", Admin: "off", RatelimitKind: "window"}
	d.Ratelimit, d.of.lines = []string{c.File}, d.lines
	return d.parse()
}

// open does what quotient proxy and quotient decide do with a file, but for the network, and returns it with what they
// add to it. A program that embeds the library has sources of its own: of a file without [proxy] they are not checked.
func (c checkCmd) open(f *config.File) (opened *config.File, err error) {
	if f.Proxy == nil {
		return f, nil
	}
	all := sources() // which open nothing before they are watched
	all["kube"] = kubeNamed
	if c.NoFiles {
		all["gossip"] = gossipUnkeyed
		_, err := config.New(f, new(quotient.Registry), config.WithSources(all), config.WithoutSecrets())
		return f, err
	}
	if f.Leases != nil && f.Leases.Election != nil {
		if _, err := electionConfig(f.Leases.Election); err != nil {
			return f, err
		}
	}
	opened = f
	if fitsProxy(f) == nil {
		_, err = opens(f, newProxy, all)
	}
	if err == nil && f.Decide != nil {
		opened, err = opens(f, newDecider, all)
	}
	return opened, err
}

// opens does what the start of a command does with a file, but for the network.
func opens(f *config.File, made maker, all config.Sources) (*config.File, error) {
	log := slog.New(slog.DiscardHandler)
	s, err := made(f, log)
	if err != nil {
		return f, err
	}
	if s.ups != nil {
		defer s.ups.Close() //nolint:errcheck // it was never used
	}
	if err := s.load(f, config.WithSources(all)); err != nil {
		return f, err
	}
	_, err = closedOperator(f.Proxy.Admin, "proxy.admin", s.reg, log)
	return s.conf.File(), err
}

type versionCmd struct{}

// Help shows an example.
func (versionCmd) Help() string {
	return `Example:

    quotient version`
}

// Run prints what the build says of itself.
func (versionCmd) Run(s cmdline.Streams) error {
	_, err := fmt.Fprintln(s.Out, version())
	return err
}

// version is the version of the program, the commit it was built from, Go's version and the platform.
func version() string {
	v, commit, changed := "(devel)", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		v = cmp.Or(info.Main.Version, v)
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && len(s.Value) >= 12:
				commit = " " + s.Value[:12]
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = "+changes" // files were, since
			}
		}
	}
	if commit != "" {
		commit += changed
	}
	return fmt.Sprintf("quotient %s%s %s %s/%s", v, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help shows an example for each shell.
func (completionCmd) Help() string {
	return `The script calls the program for each completion, so it stays valid after an update.

Examples:

    source <(quotient completion bash)             # in ~/.bashrc
    source <(quotient completion zsh)              # in ~/.zshrc, after compinit
    quotient completion fish | source              # in ~/.config/fish/config.fish`
}

// Run prints the script.
func (c completionCmd) Run(s cmdline.Streams) error {
	_, err := fmt.Fprint(s.Out, scripts[c.Shell])
	return err
}

// scripts have the shell run quotient complete with the line in COMP_LINE, which kongplete answers. Other
// commands do not look at it: a completion of another program may run them. Where nothing is printed, all three go on
// with the names of files.
var scripts = map[string]string{
	"bash": "complete -o default -C 'quotient complete' quotient\n",
	"zsh":  "autoload -U +X bashcompinit && bashcompinit\ncomplete -o default -C 'quotient complete' quotient\n",
	"fish": `function __quotient
    COMP_LINE=(commandline -cp | string collect) quotient complete
end
complete -c quotient -a '(__quotient)'
`,
}
