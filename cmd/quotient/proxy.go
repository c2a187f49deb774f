package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/pelletier/go-toml/v2"

	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/config"
)

// proxyCmd is quotient proxy.
type proxyCmd struct {
	Upstreams []string `arg:"" optional:"" name:"upstream" help:"${help_upstream}"`

	Listen   string        `default:"127.0.0.1:4040" env:"QUOTIENT_LISTEN" placeholder:"ADDR" help:"${help_listen}"`
	Admin    string        `default:"127.0.0.1:4041" placeholder:"ADDR" help:"${help_admin}"`
	RPM      int           `name:"rpm" default:"100" placeholder:"N" help:"${help_rpm}"`
	Inflight int           `default:"100" placeholder:"N" help:"${help_inflight}"`
	Refuse   bool          `xor:"wait" help:"${help_refuse}"`
	MaxWait  time.Duration `xor:"wait" placeholder:"D" help:"${help_max_wait}"`
	MaxKeys  int           `default:"65536" placeholder:"N" help:"${help_max_keys}"`
	Policy   string        `enum:"fixed,tracking" default:"fixed" placeholder:"NAME" help:"${help_policy}"`

	fileFlags

	Demo    bool          `help:"${help_demo}"`
	DemoFor time.Duration `default:"10m" placeholder:"D" help:"${help_demo_for}"`
}

// fileFlags are the flags that quotient proxy and quotient decide share. All flags are turned into the text of a
// configuration file: there is one way into the program. Their ranges are those of the file's fields.
type fileFlags struct {
	Replicas int    `env:"QUOTIENT_REPLICAS" placeholder:"N" help:"${help_replicas}"`
	Ordinal  int    `placeholder:"N" help:"${help_ordinal}"`
	Pool     string `placeholder:"SOURCE" help:"${help_pool}"`

	Config      string `short:"c" placeholder:"FILE" help:"${help_config}"`
	PrintConfig bool   `help:"${help_print_config}"`
	Log         string `enum:"text,json" default:"text" placeholder:"FORM" help:"${help_log}"`

	of command
}

// command is what differs between the commands with fileFlags.
type command struct {
	name   string
	lines  func() []fileLine        // of the file that equals the flags
	flagOf map[string]string        // names the flag that a field of the file comes from
	fits   func(*config.File) error // refuses a file that is for another command
	made   maker
	demo   func(context.Context, cmdline.Streams) error // in place of all that; nil for none
}

// maker makes the parts that serve a file that fits.
type maker = func(*config.File, *slog.Logger) (*service, error)

// helps are the lines of --help.
var helps = kong.Vars{
	"help_upstream": "The upstream of the proxy: host:port, a URL of http, https or h2c without a path, " +
		"or unix:PATH. Several upstreams share the load.",
	"help_listen": "Address of the proxy (127.0.0.1:4040).",
	"help_admin":  "Address of the operator's page, metrics, /health and /ready (127.0.0.1:4041); off for none.",
	"help_rpm": "Requests started in each minute of the clock, for each path over the fleet (100); " +
		"0 for no such limit.",
	"help_inflight": "Requests in flight, for each path over the fleet (100); 0 for no such limit.",
	"help_refuse":   "Answer 429 at once instead of letting a request wait.",
	"help_max_wait": "Longest wait, such as 5s. By default a request waits until its client gives up.",
	"help_max_keys": "Most paths whose state is kept (65536).",
	"help_policy":   "fixed (the default), or tracking, which slows down when the upstream answers 429.",
	"help_replicas": "Replicas that share the limits (1).",
	"help_ordinal": "Number of this replica among all, from 1: limits are then divided without a remainder. " +
		"The variable QUOTIENT_ORDINAL, a pod's index, counts from 0.",
	"help_pool": "Source of the number of replicas: dns:NAME, file:PATH, redis:URL, etcd:URL, kube:SERVICE, " +
		"gossip:ADDRESS or env:. Nothing is admitted before its first report. After a minute without a report " +
		"--replicas applies if it is given, otherwise the last report.",
	"help_config": "Read everything from a file, and again when it changes. " +
		"Only --ordinal, --replicas and --log may accompany it.",
	"help_print_config": "Print the configuration file that equals the flags, and exit.",
	"help_log":          "Format of the log on stderr: text (the default) or json.",
	"help_demo":         "Serve a built-in upstream under built-in load, for a first look.",
	"help_demo_for":     "End the demo after this time (10m).",
}

// Help shows an example.
func (proxyCmd) Help() string {
	return `Each path gets 100 requests in each minute of the clock and 100 in flight, over all
replicas. Further requests wait.

Examples:

    quotient proxy localhost:8080
    quotient proxy --rpm 600 --inflight 0 --refuse http://10.0.0.7:8080 http://10.0.0.8:8080
    quotient proxy --pool dns:proxy.prod.svc.cluster.local. --replicas 10 localhost:8080
    quotient proxy --config quotient.toml
    quotient proxy --demo`
}

// beside names the flags that may stand beside --config.
var beside = []string{"config", "ordinal", "replicas", "log"}

// given is the flags of a command line that were given, by name, each as it was: "--listen" or "QUOTIENT_LISTEN".
type given map[string]string

// givenTo returns what was given to the command that k has parsed.
func givenTo(k *kong.Context) given {
	g := given{}
	for _, f := range k.Flags() {
		for _, env := range f.Envs {
			if _, ok := os.LookupEnv(env); ok {
				g[f.Name] = env
			}
		}
	}
	for _, p := range k.Path {
		if p.Flag != nil {
			g[p.Flag.Name] = "--" + p.Flag.Name
		}
	}
	return g
}

// Run serves until ctx ends or a signal comes.
func (c *proxyCmd) Run(ctx context.Context, k *kong.Context, s cmdline.Streams) error {
	if err := c.complete(givenTo(k), os.LookupEnv); err != nil {
		return err
	}
	return c.run(ctx, s)
}

// run prints the file that equals the flags, if that is asked for, or serves.
func (c *fileFlags) run(ctx context.Context, s cmdline.Streams) error {
	if c.PrintConfig {
		text, err := c.text()
		if err != nil {
			return err
		}
		if _, err := c.parse(); err != nil {
			return err
		}
		_, err = s.Out.Write(text)
		return err
	}
	return c.serve(ctx, s)
}

// complete sets what depends on other flags and on the environment, and refuses what does not go together.
func (c *proxyCmd) complete(g given, env func(string) (string, bool)) error {
	c.of = command{name: "proxy", lines: c.lines, flagOf: flagOf, fits: fitsProxy, made: newProxy}
	if c.Demo {
		c.of.demo = c.demo
	}
	if c.Config != "" && len(c.Upstreams) > 0 {
		return cmdline.Usagef("%s does not go with --config: write it into proxy.upstreams of the file",
			c.Upstreams[0])
	}
	if err := c.fileFlags.complete(g, env); err != nil || c.Config != "" {
		return err
	}
	switch {
	case c.Demo && len(c.Upstreams) > 0:
		return cmdline.Usagef("--demo has an upstream of its own: remove %s", c.Upstreams[0])
	case c.Demo && c.DemoFor <= 0:
		return cmdline.Usagef("--demo-for is %v, want more than 0", c.DemoFor)
	case g["demo-for"] != "" && !c.Demo:
		return cmdline.Usagef("--demo-for requires --demo")
	case !c.Demo && len(c.Upstreams) == 0:
		return cmdline.Usagef("an upstream is missing: " +
			"want for example quotient proxy localhost:8080, or --config FILE, or --demo")
	case c.RPM == 0 && c.Inflight == 0:
		return cmdline.Usagef("--rpm and --inflight are both 0: nothing would be limited")
	case g["max-wait"] != "" && c.MaxWait <= 0:
		return cmdline.Usagef("--max-wait is %v, want more than 0; use --refuse for no wait", c.MaxWait)
	}
	for i, u := range c.Upstreams {
		port := strings.TrimPrefix(u, ":")
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			return cmdline.Usagef("%s is a port without a host: want localhost:%s", u, port)
		}
		if !strings.Contains(u, "://") && !strings.HasPrefix(u, "unix:") {
			c.Upstreams[i] = "http://" + u
		}
	}
	return nil
}

// complete is what does not depend on the command.
func (c *fileFlags) complete(g given, env func(string) (string, bool)) error {
	if err := c.completeOrdinal(g, env); err != nil {
		return err
	}
	if g["replicas"] != "" && c.Replicas < 1 {
		return cmdline.Usagef("%s is %d, want 1 or more", g["replicas"], c.Replicas)
	}
	for _, name := range cmdline.SortedKeys(g) {
		if c.Config != "" && !slices.Contains(beside, name) {
			return cmdline.Usagef("%s does not go with --config: write it into the file", g[name])
		}
	}
	return nil
}

// completeOrdinal takes the ordinal from the environment, where it counts from 0, as quotient.Env has it.
func (c *fileFlags) completeOrdinal(g given, env func(string) (string, bool)) error {
	const name = "QUOTIENT_ORDINAL"
	if g["ordinal"] != "" {
		if c.Ordinal < 1 {
			return cmdline.Usagef("--ordinal is %d, want 1 or more; %s is for a pod's index, which counts from 0",
				c.Ordinal, name)
		}
		return nil
	}
	text, ok := env(name)
	if !ok {
		return nil
	}
	index, err := strconv.Atoi(text)
	if err != nil || index < 0 || index >= 1_000_000 {
		return cmdline.Usagef("%s is %q, want a whole number from 0 to 999999", name, text)
	}
	if c.Config == "" && c.Pool == "" && c.Replicas > 0 && index >= c.Replicas {
		return cmdline.Usagef("%s is %q, want less than the %d replicas: it counts from 0", name, text, c.Replicas)
	}
	c.Ordinal = index + 1
	return nil
}

// fitsProxy refuses a file that has nothing for quotient proxy.
func fitsProxy(f *config.File) error {
	switch {
	case f.Proxy == nil:
		return fmt.Errorf("%s: the section [proxy] is missing", f.Path)
	case len(f.Proxy.Upstreams) == 0: // which it may have none of beside [decide]
		return f.Located(config.Error{Field: "proxy.upstreams", Text: "none is given",
			Hint: "the file is one for quotient decide"})
	}
	return nil
}

// limiterName is what the limiter of the flags is called.
const limiterName = "path"

// How long a source may say nothing before --replicas counts. Without that flag the last answer counts for as
// long as a file can say: a source that is down must not make this proxy one of one.
const (
	silence = "1m"
	longest = "8760h"
)

// fileLine is a line of a file, or a key with its value.
type fileLine struct {
	given bool
	line  string
	value any // nil: there is none
}

// pool are the lines of [pool].
func (c *fileFlags) pool() []fileLine {
	maxAge := longest
	if c.Replicas != 0 {
		maxAge = silence
	}
	return []fileLine{
		{true, "[pool]", nil},
		{c.Pool != "", "source", c.Pool},
		{c.Replicas != 0, "replicas", c.Replicas},
		{c.Ordinal != 0, "ordinal", c.Ordinal},
		{c.Pool != "", "await", true},
		{c.Pool != "", "max-age", maxAge},
	}
}

// minute is the line of so many requests in each minute of the clock.
func minute(n int) string {
	return fmt.Sprintf("rates = [{name = 'minute', events = %d, per = '1m', kind = 'window'}]", n)
}

// lines are those of the file that equals the flags.
func (c *proxyCmd) lines() []fileLine {
	mode := "wait"
	if c.Refuse {
		mode = "refuse"
	}
	return append(c.pool(), []fileLine{
		{true, "\n[limiters]\n[limiters." + limiterName + "]", nil},
		{c.RPM != 0, minute(c.RPM), nil},
		{c.Inflight != 0, "in-flight", c.Inflight},
		{true, "mode", mode},
		{c.MaxWait > 0, "max-wait", c.MaxWait.String()},
		{true, "max-keys", c.MaxKeys},
		{true, "policy", c.Policy},
		{true, "\n[proxy]", nil},
		{true, "listen", c.Listen},
		{true, "upstreams", c.Upstreams},
		{true, "\n[[proxy.rules]]\npattern = '/'\nlimiter = '" + limiterName + "'\nkey = 'path'", nil},
		{true, "\n[proxy.admin]", nil},
		{true, "listen", c.Admin},
	}...)
}

// text returns the configuration file that equals the flags.
func (c *fileFlags) text() ([]byte, error) {
	text := []byte("# The file that equals the flags of: quotient " + c.of.name + "\n")
	for _, l := range c.of.lines() {
		switch {
		case !l.given:
		case l.value == nil:
			text = append(text, l.line+"\n"...)
		default:
			line, err := toml.Marshal(map[string]any{l.line: l.value})
			if err != nil {
				return nil, fmt.Errorf("flags: %w", err)
			}
			text = append(text, line...)
		}
	}
	return text, nil
}

// parse returns the configuration that the flags make.
func (c *fileFlags) parse() (*config.File, error) {
	text, err := c.text()
	if err != nil {
		return nil, err
	}
	file, err := config.Parse(fromFlags, text)
	return file, c.named(err)
}

// flagOf names the flag that a field of the file of quotient proxy comes from.
var flagOf = map[string]string{
	"pool.source":                            "--pool",
	"pool.replicas":                          "--replicas",
	"pool.ordinal":                           "--ordinal",
	"limiters." + limiterName + ".rates":     "--rpm",
	"limiters." + limiterName + ".in-flight": "--inflight",
	"limiters." + limiterName + ".max-wait":  "--max-wait",
	"limiters." + limiterName + ".max-keys":  "--max-keys",
	"limiters." + limiterName + ".policy":    "--policy",
	"proxy.listen":                           "--listen",
	"proxy.upstreams":                        "UPSTREAM",
	"proxy.admin.listen":                     "--admin",
}

// fromFlags is the name of a file that equals the flags.
const fromFlags = "flags"

// named is an error where fields go by the names of their flags, and positions are left out, if there is no file.
func (c *fileFlags) named(err error) error {
	var wrong config.Errors
	if !errors.As(err, &wrong) || wrong[0].File != fromFlags {
		return err
	}
	var lines []string
	for _, e := range wrong {
		line := e.Field + ": " + e.Text
		for field, flag := range c.of.flagOf {
			if rest, ok := strings.CutPrefix(e.Field, field); ok && (rest == "" || rest[0] == '[' || rest[0] == '.') {
				line = flag + ": " + e.Text
			}
		}
		if e.Hint != "" {
			line += " (" + e.Hint + ")"
		}
		lines = append(lines, line)
	}
	return cmdline.Usagef("%s", strings.Join(lines, "\n"))
}
