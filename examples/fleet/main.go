// Command fleet shows what quotient does, in forty seconds and without any service.
//
//	go run ./examples/fleet
//
// An upstream allows 100 requests a second and answers 429 beyond that. Three replicas, each a process of its
// own, want 60 a second each. They share the 100 by division: no replica talks to another, and none calls a
// store. After three seconds a fourth replica joins, and after six seconds one is killed. Each time the
// others get the new replica count through their admin endpoints.
//
// With -pool file, dns, redis or gossip each replica counts for itself, about four times a second. It reads a
// file that the platform writes, or the address records of the fleet's name. Or it registers in Redis
// (redis-server if it is installed, otherwise an imitation of it), or gossips. The verdict then also states
// how late the last replica noticed the join and the kill. It allows for the time until the join was noticed.
//
// The verdict comes from the upstream's log, not from the limiters: no window between any two requests may
// hold more than the limit promises.
//
// The second half of the demo is adaptive: three new replicas know neither the replica count nor the limit.
// Each may send at most 100 requests a second. The upstream halves its limit and later restores it, both
// without notice. Then one replica wants more than the whole limit while the others want almost nothing. Then
// all want the same again. The table shows how fast the fleet followed. The verdict judges whether that was
// fast enough, with few 429s and little left unused.
//
// The exit status is 0 when every promise held, 1 when one was broken, and 2 when the run failed. -believe 2
// breaks the first half, -policy fixed the second.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

// Exit statuses.
const (
	exitHeld   = 0 // every promise held
	exitBroken = 1 // one was broken
	exitFailed = 2 // bad flags, an interrupted run, a replica that did not start
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == replicaArg {
		os.Exit(replicaMain(os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run is the whole command. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p, err := parsePlan(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitHeld
	}
	if err != nil {
		fmt.Fprintln(stderr, "fleet:", err)
		return exitFailed
	}
	status := exitHeld
	if p.Act != "adaptive" {
		status = divide(ctx, p, stdout, stderr)
	}
	if p.Act != "division" && status != exitFailed {
		status = max(status, adapt(ctx, p, stdout, stderr))
	}
	return status
}

// divide plays the act of division and judges it. It returns the exit status.
func divide(ctx context.Context, p plan, stdout, stderr io.Writer) int {
	out := newScreen(stdout, p)
	out.head()
	f, err := runFleet(ctx, p, out, division)
	if err != nil {
		fmt.Fprintln(stderr, "fleet:", err)
		return exitFailed
	}
	ruling := f.ruling()
	if ruling.Requests == 0 {
		fmt.Fprintln(stderr, "fleet: no request reached the upstream: there is nothing to judge")
		return exitFailed
	}
	out.summary(f.summary())
	out.ruling(ruling)
	if ruling.broken() {
		return exitBroken
	}
	return exitHeld
}

// A plan is what one run does.
type plan struct {
	Limit    float64 // requests a second over the fleet
	Burst    int     // of the limit, over the fleet
	Room     int     // burst that the upstream grants beyond Burst
	Want     float64 // requests a second that each replica wants to send
	Replicas int     // at the start
	Join     time.Duration
	Kill     time.Duration
	Duration time.Duration
	Pool     string // static, or one of countings
	Believe  int    // what replicas get in place of the pool size; 0: the truth
	Color    string
	Act      string // division, adaptive or both
	Tell     upstream.Tells
	Policy   string // of the adaptive act: one of policies
	ctrl     string // of the act that is played; "" is the limiter's default
}

// How long the act of division takes unless -duration says something else. A pool that is counted shrinks only after the hold-down.
const (
	toldDuration    = 9 * time.Second
	countedDuration = 12 * time.Second
)

// parsePlan reads the command line.
func parsePlan(args []string, stderr io.Writer) (plan, error) {
	var p plan
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "fleet: several processes share one limit, by division or by learning it; the upstream's log shows how well.")
		fmt.Fprintln(stderr, "Exit status: 0 every promise held, 1 one was broken, 2 the run failed.")
		flags.PrintDefaults()
	}
	p.flags(flags)
	if err := flags.Parse(args); err != nil {
		return plan{}, err
	}
	if flags.NArg() > 0 {
		return plan{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if _, counts := countings[p.Pool]; counts && p.Duration == 0 {
		p.Duration = countedDuration
	}
	p.Duration = cmp.Or(p.Duration, toldDuration)
	return p, cmp.Or(p.validate(), p.validatePool())
}

// flags defines what the command line may say.
func (p *plan) flags(flags *flag.FlagSet) {
	flags.Float64Var(&p.Limit, "limit", 100, "`requests` a second that the fleet may send; the upstream enforces the same limit, and changes it in the adaptive act")
	flags.IntVar(&p.Burst, "burst", 10, "`requests` that the fleet may send at once")
	flags.IntVar(&p.Room, "room", 10, "`requests` of burst that the upstream allows beyond -burst: requests that leave evenly may arrive together")
	flags.Float64Var(&p.Want, "want", 60, "`requests` a second that each replica wants to send")
	flags.IntVar(&p.Replicas, "replicas", 3, "`processes` at the start, 1 to 6")
	flags.DurationVar(&p.Join, "join", 3*time.Second, "one more replica joins after this `time`; 0 is never")
	flags.DurationVar(&p.Kill, "kill", 6*time.Second, "one replica is killed after this `time`; 0 is never")
	flags.DurationVar(&p.Duration, "duration", 0, "`time` that the act of division takes; 0 is 9s, or 12s where the replicas count themselves")
	flags.StringVar(&p.Pool, "pool", "static", "`how` the replicas learn the replica count in the act of division: static (it is set), file, dns, redis, gossip (they count)")
	flags.IntVar(&p.Believe, "believe", 0, "set this number of `replicas` on each replica, right or wrong, with -pool static and without -policy; with 1 the verdict fails (0: the right number)")
	flags.StringVar(&p.Act, "act", "both", "`which` act to play: division, adaptive, or both, one after the other")
	flags.TextVar(&p.Tell, "tell", upstream.Fields, "`what` the upstream reports about its limit: nothing (a bare 429), retry-after, fields (also RateLimit in every answer)")
	flags.StringVar(&p.Policy, "policy", "tracking", "`policy` of the adaptive act: tracking, aimd or fixed; with fixed, which learns nothing, the verdict fails")
	flags.StringVar(&p.Color, "color", "auto", "`when` to use colour: auto (on a terminal, unless NO_COLOR is set), always, never")
}

// validate refuses what would run for ever, load the machine, or not show anything.
func (p plan) validate() error {
	switch {
	case !(p.Limit >= 1 && p.Limit <= 5000):
		return fmt.Errorf("-limit: %v is not between 1 and 5000", p.Limit)
	case p.Burst < 1 || p.Burst > 5000:
		return fmt.Errorf("-burst: %d is not between 1 and 5000", p.Burst)
	case p.Room < 0 || p.Room > 5000:
		return fmt.Errorf("-room: %d is not between 0 and 5000", p.Room)
	case !(p.Want >= 1 && p.Want <= 5000):
		return fmt.Errorf("-want: %v is not between 1 and 5000", p.Want)
	case p.Replicas < 1 || p.Replicas > 6:
		return fmt.Errorf("-replicas: %d is not between 1 and 6", p.Replicas)
	case p.Duration < time.Second || p.Duration > 10*time.Minute:
		return fmt.Errorf("-duration: %v is not between 1s and 10m", p.Duration)
	case p.Join < 0 || p.Join >= p.Duration:
		return fmt.Errorf("-join: %v is not between 0s and -duration (%v)", p.Join, p.Duration)
	case p.Kill < 0 || p.Kill >= p.Duration:
		return fmt.Errorf("-kill: %v is not between 0s and -duration (%v)", p.Kill, p.Duration)
	case p.Kill > 0 && p.Kill <= p.Join:
		return fmt.Errorf("-kill: %v is not after -join (%v)", p.Kill, p.Join)
	case p.Kill > 0 && p.Join == 0 && p.Replicas == 1:
		return fmt.Errorf("-kill: %v leaves no replica alive", p.Kill)
	case p.Believe < 0 || p.Believe > 100:
		return fmt.Errorf("-believe: %d is not between 0 and 100", p.Believe)
	case p.Act != "both" && p.Act != "division" && p.Act != "adaptive":
		return fmt.Errorf("-act: %q is not division, adaptive or both", p.Act)
	case policies[p.Policy] == nil:
		return fmt.Errorf("-policy: %q is not tracking, aimd or fixed", p.Policy)
	case p.Color != "auto" && p.Color != "always" && p.Color != "never":
		return fmt.Errorf("-color: %q is not auto, always or never", p.Color)
	}
	return nil
}

// announced is the pool size that replicas get when there are n.
func (p plan) announced(n int) int {
	if p.Believe > 0 {
		return p.Believe
	}
	return n
}
