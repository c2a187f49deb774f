package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/lease"
)

// leasesCmd is quotient leases. Its flags go before what the file says.
type leasesCmd struct {
	Address       string   `default:"127.0.0.1" placeholder:"ADDR" help:"${help_address}"`
	Port          int      `default:"8000" placeholder:"PORT" help:"${help_port}"`
	Configuration string   `short:"c" default:"throttle.toml" placeholder:"FILE" help:"${help_configuration}"`
	Semaphore     []string `short:"s" sep:"none" placeholder:"NAME=MAX" help:"${help_semaphore}"`
	Grace         string   `placeholder:"D" help:"${help_grace}"`

	Election  []string `placeholder:"HOST:PORT" help:"${help_election}"`
	Advertise string   `placeholder:"URL" help:"${help_advertise}"`

	Admin          string `default:"off" placeholder:"ADDR" help:"${help_leases_admin}"`
	AdminTokenFile string `placeholder:"FILE" help:"${help_admin_token_file}"`
	Log            string `enum:"text,json" default:"text" placeholder:"FORM" help:"${help_log}"`

	given given
	grace time.Duration
	more  map[string]lease.Semaphore // of --semaphore
	level slog.Level
}

// leaseHelps are the lines of quotient leases --help.
var leaseHelps = kong.Vars{
	"help_address": "Address to listen at (127.0.0.1). There is no authentication: let only clients reach it.",
	"help_port":    "Port to listen at (8000).",
	"help_configuration": "A throttle.toml, or a file with a section [leases] (throttle.toml). " +
		"It is read again when it changes.",
	"help_semaphore": "A semaphore and how many may hold it, in addition to those of the file. Repeatable.",
	"help_grace": "Time after the start in which locks are only restored, such as 30s (0s). " +
		"New locks wait until it ends.",
	"help_election": "Servers of etcd. One of the processes that name them serves, the others stand by.",
	"help_advertise": "URL at which clients reach this process. Those on stand-by send clients to it " +
		"(http:// and what it listens to).",
	"help_leases_admin":     "Address of the operator's page, metrics, /health and /ready, or off (the default).",
	"help_admin_token_file": "File of tokens, one per line. Callers of --admin need one of them.",
}

// Help shows an example.
func (leasesCmd) Help() string {
	return `A process locks a semaphore before it uses something scarce, and unlocks it afterwards. If
the process dies, its lock expires. THROTTLE_LOG sets the level of the log: ERROR, WARN
(the default), INFO, DEBUG or TRACE.

Examples:

    quotient leases -s gpu=2 -s license=10
    quotient leases --address 0.0.0.0 --port 8000 -c throttle.toml
    quotient leases --grace 30s --admin 127.0.0.1:8001 -c quotient.toml
    quotient leases --election 10.0.0.5:2379 --address 10.0.0.7 --grace 30s`
}

// Run serves until ctx ends or a signal comes.
func (c *leasesCmd) Run(ctx context.Context, k *kong.Context, s cmdline.Streams) error {
	if err := c.complete(givenTo(k), os.LookupEnv); err != nil {
		return err
	}
	ctx, stop := cmdline.UntilSignal(ctx)
	defer stop()
	most := func() time.Duration { return leaseFront("").Timeouts.Shutdown }
	return cutOff(ctx, most, func(ctx context.Context) error {
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP) // Windows sends none
		defer signal.Stop(hangups)
		log, always := newLog(c.Log, c.level, s.Err), newLog(c.Log, min(c.level, slog.LevelInfo), s.Err)
		service, err := c.open(ctx, log, always)
		if err != nil {
			return err
		}
		return service.run(ctx, hangups)
	})
}

// complete reads what the flags and the environment say, and refuses what makes no sense.
func (c *leasesCmd) complete(g given, env func(string) (string, bool)) (err error) {
	c.given = g
	if c.Port < 0 || c.Port > 65535 {
		return cmdline.Usagef("--port is %d, want 0 to 65535", c.Port)
	}
	if g["grace"] != "" {
		if c.grace, err = lease.ParseDuration(c.Grace); err != nil {
			return cmdline.Usagef("--grace: %v", err)
		}
	}
	switch { // empty is what a variable that is not set comes to: a server would stand alone
	case g["election"] != "" && len(c.Election) == 0:
		return cmdline.Usagef("--election is empty, want HOST:PORT of etcd")
	case g["advertise"] != "" && c.Advertise == "":
		return cmdline.Usagef("--advertise is empty, want a URL")
	}
	if c.AdminTokenFile != "" && c.Admin == "off" {
		return cmdline.Usagef("--admin-token-file requires --admin")
	}
	c.more = make(map[string]lease.Semaphore)
	for _, text := range c.Semaphore {
		i := strings.LastIndexByte(text, '=')
		most, err := strconv.ParseInt(text[i+1:], 10, 64)
		if i < 1 || err != nil {
			return cmdline.Usagef("--semaphore is %q, want a name and a whole number, such as gpu=2", text)
		}
		if c.more[text[:i]] != (lease.Semaphore{}) {
			return cmdline.Usagef("--semaphore: %q is given twice", text[:i])
		}
		c.more[text[:i]] = lease.Semaphore{Max: most}
		if most < 1 || most > lease.MaxCount {
			return cmdline.Usagef("--semaphore %s: %d is not between 1 and %d", text, most, int64(lease.MaxCount))
		}
	}
	c.level, err = levelOf(env)
	return err
}

// levels are the values of THROTTLE_LOG.
var levels = map[string]slog.Level{
	"": slog.LevelWarn, "ERROR": slog.LevelError, "WARN": slog.LevelWarn, "INFO": slog.LevelInfo,
	"DEBUG": slog.LevelDebug, "TRACE": slog.LevelDebug,
}

func levelOf(env func(string) (string, bool)) (slog.Level, error) {
	text, _ := env("THROTTLE_LOG")
	level, ok := levels[strings.ToUpper(text)]
	if !ok {
		return 0, cmdline.Usagef("THROTTLE_LOG is %q, want ERROR, WARN, INFO, DEBUG or TRACE", text)
	}
	return level, nil
}

// adjust puts the flags in force, which go before the file. Only the leases of a file are served.
func (c *leasesCmd) adjust(f *config.File) error {
	l := f.Leases
	if l == nil {
		return errors.New(c.Configuration + ": the section [leases] is missing")
	}
	if len(c.more) > 0 && c.given["configuration"] == "" { // no file is needed
		f.Warnings = slices.DeleteFunc(f.Warnings, func(w config.Error) bool { return w.Line == 0 })
	}
	f.Pool, f.Limiters, f.Proxy, f.Decide = config.Pool{Replicas: 1, Weight: 1}, nil, nil, nil
	if host, port, err := net.SplitHostPort(l.Listen); err == nil { // else it is refused as it is
		if c.given["address"] != "" {
			host = c.Address
		}
		if c.given["port"] != "" {
			port = strconv.Itoa(c.Port)
		}
		l.Listen = net.JoinHostPort(host, port)
	}
	if c.given["grace"] != "" {
		l.Grace = c.grace
	}
	for name, s := range c.more {
		s.Level = l.Semaphores[name].Level // a flag has none
		l.Semaphores[name] = s
	}
	if len(c.Election) > 0 {
		e := config.Election{Name: config.DefaultElectionName, TTL: config.DefaultElectionTTL}
		if l.Election != nil {
			e = *l.Election
		}
		e.Endpoints, l.Election = c.Election, &e
	}
	if c.Advertise != "" {
		if l.Election == nil {
			return cmdline.Usagef("--advertise requires --election")
		}
		l.Election.URL = c.Advertise
	}
	return nil
}

// named is an error of the file with the flag that it comes from, if there is one.
func (c *leasesCmd) named(err error) error {
	var wrong config.Errors
	if !errors.As(err, &wrong) {
		return err
	}
	for _, e := range wrong {
		flag := ""
		switch field := strings.TrimPrefix(e.Field, "leases."); {
		case field == "listen" && c.given["address"] != "":
			flag = "--address"
		case field == "grace" && c.given["grace"] != "":
			flag = "--grace"
		case strings.HasPrefix(field, "election.endpoints") && len(c.Election) > 0:
			flag = "--election"
		case field == "election.url" && (len(c.Election) > 0 || c.Advertise != ""):
			flag = "--advertise"
		default:
			continue
		}
		if e.Hint != "" {
			e.Text += " (" + e.Hint + ")"
		}
		return cmdline.Usagef("%s: %s", flag, e.Text)
	}
	return err
}
