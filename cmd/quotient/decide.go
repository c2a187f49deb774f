package main

import (
	"context"
	"os"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/config"
)

// decideCmd is quotient decide.
type decideCmd struct {
	GRPC    string `default:"127.0.0.1:8081" placeholder:"ADDR" help:"${help_grpc}"`
	HTTP    string `default:"127.0.0.1:8080" placeholder:"ADDR" help:"${help_http}"`
	Profile string `default:"forward-auth" enum:"${profiles}" placeholder:"NAME" help:"${help_profile}"`
	Admin   string `default:"127.0.0.1:4041" placeholder:"ADDR" help:"${help_admin}"`

	RPM int    `name:"rpm" default:"100" placeholder:"N" help:"${help_decide_rpm}"`
	Key string `default:"client" placeholder:"KEY" help:"${help_key}"`

	Ratelimit     []string `sep:"none" placeholder:"FILE" help:"${help_ratelimit}"`
	RatelimitKind string   `default:"window" enum:"${kinds}" placeholder:"KIND" help:"${help_ratelimit_kind}"`

	fileFlags
}

// decideHelps are the lines of quotient decide --help.
var decideHelps = kong.Vars{
	"profiles": "forward-auth,nginx,envoy,haproxy",
	"kinds":    "window,counted-window,bucket",
	"help_grpc": "Address of Envoy's rate limit service and external authorization, host:port or unix:PATH " +
		"(127.0.0.1:8081); off for none.",
	"help_http": "Address of /decide and /release for proxies that ask over HTTP, host:port or unix:PATH " +
		"(127.0.0.1:8080); off for none.",
	"help_profile": "How the proxy that asks over HTTP describes a request: forward-auth (the default; Traefik, " +
		"Caddy), nginx, envoy or haproxy.",
	"help_decide_rpm": "Requests admitted in each minute of the clock, for each key over the fleet (100); 0 for no " +
		"rule, which needs --http off and --ratelimit.",
	"help_key": "What has the limit of --rpm: client (the default), path, host, header:NAME or another key of a rule.",
	"help_ratelimit": "Configuration of Envoy's reference rate limit service, in YAML. It is read again when it " +
		"changes. Repeatable.",
	"help_ratelimit_kind": "What a limit of --ratelimit is: window (the default) of the clock, counted-window, which " +
		"a fleet counts together, or bucket.",
}

// Help shows an example.
func (decideCmd) Help() string {
	return `A proxy asks before it passes a request on, and quotient passes nothing on itself. Each
client gets 100 requests in each minute of the clock, over all replicas. Further requests are
refused at once.

Examples:

    quotient decide --profile nginx
    quotient decide --grpc unix:/run/quotient/grpc.sock --ratelimit ratelimit.yaml
    quotient decide --http off --rpm 0 --ratelimit ratelimit.yaml --replicas 3
    quotient decide --config quotient.toml`
}

// Run serves until ctx ends or a signal comes.
func (c *decideCmd) Run(ctx context.Context, k *kong.Context, s cmdline.Streams) error {
	if err := c.complete(givenTo(k), os.LookupEnv); err != nil {
		return err
	}
	return c.run(ctx, s)
}

// complete sets what depends on other flags and on the environment, and refuses what does not go together.
func (c *decideCmd) complete(g given, env func(string) (string, bool)) error {
	c.of = command{name: "decide", lines: c.lines, flagOf: decideFlagOf, fits: fitsDecide, made: newDecider}
	if err := c.fileFlags.complete(g, env); err != nil || c.Config != "" {
		return err
	}
	switch {
	case c.RPM == 0 && len(c.Ratelimit) == 0:
		return cmdline.Usagef("--rpm is 0 without --ratelimit: nothing would be limited")
	case c.RPM == 0 && c.HTTP != "off":
		return cmdline.Usagef("--rpm 0 leaves no rule for --http: add --http off")
	}
	return nil
}

// fitsDecide refuses a file that has nothing for quotient decide.
func fitsDecide(f *config.File) error {
	if f.Decide == nil {
		return config.Error{File: f.Path, Text: "the section [decide] is missing", Hint: "it may be empty"}
	}
	return nil
}

// decideLimiter is what the limiter of the flags is called.
const decideLimiter = "requests"

// lines are those of the file that equals the flags.
func (c *decideCmd) lines() []fileLine {
	return slices.Concat(c.pool(), []fileLine{
		{c.RPM != 0, "\n[limiters]\n[limiters." + decideLimiter + "]\n" + minute(c.RPM) + "\nmode = 'refuse'", nil},
		{true, "\n[decide]", nil},
		{true, "grpc", c.GRPC},
		{true, "http", c.HTTP},
		{true, "profile", c.Profile},
		{len(c.Ratelimit) > 0, "ratelimit-files", c.Ratelimit},
		{len(c.Ratelimit) > 0, "ratelimit-kind", c.RatelimitKind},
		{c.RPM != 0, "\n[[proxy.rules]]\npattern = '/'\nlimiter = '" + decideLimiter + "'", nil},
		{c.RPM != 0, "key", c.Key},
		{true, "\n[proxy.admin]", nil},
		{true, "listen", c.Admin},
	})
}

// decideFlagOf names the flag that a field of the file of quotient decide comes from.
var decideFlagOf = map[string]string{
	"pool.source":                          "--pool",
	"pool.replicas":                        "--replicas",
	"pool.ordinal":                         "--ordinal",
	"limiters." + decideLimiter + ".rates": "--rpm",
	"decide.grpc":                          "--grpc",
	"decide.http":                          "--http",
	"decide.ratelimit-files":               "--ratelimit",
	"proxy.rules[0].key":                   "--key",
	"proxy.admin.listen":                   "--admin",
}
