// Command quotient puts limits in front of a service that knows nothing of them.
//
//	quotient proxy http://localhost:8080   # 100 requests a minute for each path, over the fleet
//	quotient proxy --demo                  # a first look, with an upstream and load of its own
//	quotient decide --profile nginx        # decisions for a proxy that asks: Envoy, nginx, Traefik, Caddy
//	quotient leases -s gpu=2               # semaphores for processes that share something scarce
//	quotient ctl top                       # who is refused, over all pods of a fleet
//	quotient check quotient.toml           # reads a file and says what is wrong with it
//
// quotient COMMAND --help lists the flags. docs/proxy.md and docs/leases.md have a tour each.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
	_ "time/tzdata" // for rates with a zone, where the machine has none

	"github.com/alecthomas/kong"
	"github.com/willabides/kongplete"

	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/cmd/quotient/internal/ctl"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/shown"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // the command line makes no sense
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], cmdline.Streams{Out: os.Stdout, Err: os.Stderr}))
}

type cli struct {
	Proxy      proxyCmd      `cmd:"" help:"Limit the requests to one or more upstreams."`
	Decide     decideCmd     `cmd:"" help:"Decide for a proxy of another kind that asks, such as Envoy or nginx."`
	Leases     leasesCmd     `cmd:"" help:"Serve semaphores whose locks are leases."`
	Ctl        ctl.Command   `cmd:"" help:"Ask and change all pods of a fleet: who is refused, and by which."`
	Check      checkCmd      `cmd:"" help:"Check a configuration file, and print its errors."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
	Completion completionCmd `cmd:"" help:"Print a completion script for a shell."`
}

const about = "Limit requests over a fleet of proxies, without a store on a request's path, and serve " +
	"semaphores to processes on several machines."

// firstSteps is what a command line without arguments prints.
const firstSteps = `quotient limits requests over a fleet of proxies, without a store on a request's path.

Try first:
  quotient proxy --demo                            a proxy with an upstream, load and the operator's page, to look at
  quotient proxy localhost:8080                    your own service behind it: 100 requests a minute for each path

Then, with help on each by --help:
  quotient ctl top --pods http://localhost:4041    who is refused, over all pods of a fleet
  quotient check quotient.toml                     reads a file of limits, and says what is wrong with it
  quotient decide --profile nginx                  decides for the proxy that you have: nginx, HAProxy, Traefik, Envoy
  quotient leases --semaphore gpu=2                locks for jobs that only so many processes may run at a time

quotient --help lists all commands.
`

// newParser returns the parser of the command line into c. Help is printed to s.Out and ends in exit.
func newParser(c *cli, s cmdline.Streams, exit func(int)) (*kong.Kong, error) {
	help := kong.HelpOptions{Compact: true, WrapUpperBound: 100, NoExpandSubcommands: true}
	return kong.New(c, kong.Name("quotient"), kong.Description(about), helps, decideHelps, leaseHelps, ctl.Helps,
		kong.ConfigureHelp(help), kong.Exit(exit), kong.Writers(s.Out, s.Err), kong.Bind(s))
}

// spelled returns the arguments as the parser knows them, in place of other usual ones.
func spelled(args []string) []string {
	switch {
	case slices.Equal(args, []string{"--version"}):
		return []string{"version"}
	case args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}

// helped is what a parse that has printed help ends in.
type helped int

// run runs one command line until it ends or ctx does, and returns the exit code.
func run(ctx context.Context, args []string, s cmdline.Streams) (code int) {
	defer func() {
		if h, ok := recover().(helped); ok {
			code = int(h)
		}
	}()
	var c cli
	parser, err := newParser(&c, s, func(code int) { panic(helped(code)) })
	if err != nil {
		return fail(s, exitFailed, err)
	}
	if len(args) == 0 {
		fmt.Fprint(s.Out, firstSteps)
		return exitOK
	}
	if args[0] == "complete" {
		kongplete.Complete(parser) // ends here where a shell has put the line into COMP_LINE
	}
	parsed, err := parser.Parse(spelled(args))
	if err != nil {
		return fail(s, exitUsage, err, "see quotient --help")
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.Bind(&c.Ctl)
	defer c.Ctl.Close()
	err = parsed.Run()
	if usage := (cmdline.UsageError{}); errors.As(err, &usage) {
		return fail(s, exitUsage, err, "see "+parsed.Selected().FullPath()+" --help")
	}
	switch {
	case errors.Is(err, errLate):
		return failLate(s, err)
	case err != nil:
		return fail(s, exitFailed, err)
	}
	return exitOK
}

// failLate prints an error of an end that took too long, for a second at most: what hangs may be the log.
func failLate(s cmdline.Streams, err error) int {
	said := make(chan int, 1)
	go func() { said <- fail(s, exitFailed, err) }()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
	return exitFailed
}

// fail prints an error, and lines that help with it.
func fail(s cmdline.Streams, code int, err error, hints ...string) int {
	if wrong := (config.Errors)(nil); errors.As(err, &wrong) {
		fmt.Fprintln(s.Err, err) // each line begins with the file and the place
		return code
	}
	fmt.Fprintln(s.Err, "quotient:", shown.Lines(err.Error())) // a name in it may be another's
	for _, h := range hints {
		fmt.Fprintln(s.Err, "  "+h)
	}
	return code
}
