// Command fleet shows what quotient does, in forty seconds and without any service.
//
//	go run ./examples/fleet
//
// An upstream allows 100 requests a second and answers 429 beyond that. Three replicas, each a process of its own,
// want 60 a second each and share the 100 by division: no replica talks to another, and none calls a store. A
// fourth one joins, and one is killed. The others get the new replica count through their admin endpoints; with
// -pool file, dns, redis or gossip each counts for itself. The verdict comes from the upstream's log, not from the
// limiters: no window between any two requests may hold more than the limit promises.
//
// In the second half three new replicas know neither the replica count nor the limit, which the upstream halves and
// later restores without notice. Then one replica wants more than the whole limit while the others want almost
// nothing. The verdict judges whether the fleet followed fast enough, with few 429s and little left unused.
//
// The exit status is 0 when every promise held, 1 when one was broken, and 2 when the run failed. -believe 2 breaks
// the first half, -policy fixed the second.
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
	"slices"
	"strings"
	"syscall"
	"time"
)

// Exit statuses: every promise held, one was broken, or the run failed.
const exitHeld, exitBroken, exitFailed = 0, 1, 2

func main() {
	if len(os.Args) == 2 && os.Args[1] == replicaArg {
		os.Exit(replicaMain(os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p, err := parsePlan(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitHeld
	}
	status := exitHeld
	for _, act := range []string{"division", "adaptive"} {
		if err != nil || p.Act != "both" && p.Act != act {
			continue
		}
		var held bool
		if held, err = p.of(act).play(ctx, stdout); !held {
			status = exitBroken
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, "fleet:", err)
		return exitFailed
	}
	return status
}

func (p plan) play(ctx context.Context, stdout io.Writer) (kept bool, err error) {
	out, script := newScreen(stdout, p), division
	if out.head(); p.ctrl != "" {
		script = adaptation
	}
	f, err := runFleet(ctx, p, out, script)
	switch {
	case err != nil:
		return false, err
	case len(f.up.logged()) == 0:
		return false, errors.New("no request reached the upstream: there is nothing to judge")
	case p.ctrl != "":
		all, checks := judge(f.up.logged(), f.phases[len(f.phases)-len(scenes):], p.stretch())
		out.outcome(all, checks, f.total())
		return held(checks), nil
	}
	out.summary(f)
	r := f.ruling()
	out.ruling(r)
	return held(r.Checks), nil
}

// A plan is what one run does: its flags, each of which says what its field is, and the act.
type plan struct {
	Limit, Want                    float64
	Burst, Room, Replicas, Believe int
	Join, Kill, Duration           time.Duration
	Act, Pool, Tell, Policy, Color string
	ctrl                           string // the policy of the act that is played; "" is the limiter's default
}

func parsePlan(args []string, stderr io.Writer) (p plan, err error) {
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, "fleet: several processes share one limit, by division or by learning it; ",
			"the upstream's log shows how well.\n",
			"Exit status: 0 every promise held, 1 one was broken, 2 the run failed.\n")
		flags.PrintDefaults()
	}
	p.flags(flags)
	if err := flags.Parse(args); err != nil {
		return p, err
	}
	if flags.NArg() > 0 {
		return p, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if _, counts := countings[p.Pool]; counts { // such a pool shrinks only after the hold-down
		p.Duration = cmp.Or(p.Duration, 12*time.Second)
	}
	p.Duration = cmp.Or(p.Duration, 9*time.Second)
	return p, p.validate()
}

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
	flags.StringVar(&p.Tell, "tell", tellFields, "`what` the upstream reports about its limit: nothing (a bare 429), retry-after, fields (also RateLimit in every answer)")
	flags.StringVar(&p.Policy, "policy", "tracking", "`policy` of the adaptive act: tracking, aimd or fixed; with fixed, which learns nothing, the verdict fails")
	flags.StringVar(&p.Color, "color", "auto", "`when` to use colour: auto (on a terminal, unless NO_COLOR is set), always, never")
}

// validate refuses what would run for ever, load the machine, not show anything, or cannot be judged: a change
// that is not noticed before the next one.
func (p plan) validate() error {
	refuse := func(bad bool, format string, args ...any) error {
		if bad {
			return fmt.Errorf(format, args...)
		}
		return nil
	}
	how, counts := countings[p.Pool]
	tooClose := func(name string, at, next time.Duration) error {
		most, _ := how.allowed(name == "kill")
		most += time.Second
		return refuse(counts && at > 0 && next-at < most, "-%s: %v is too close to what comes next, at %v: "+
			"it may take %v until it is noticed", name, at, next, most)
	}
	return cmp.Or(
		between("limit", p.Limit, 1, 5000), between("burst", p.Burst, 1, 5000), between("room", p.Room, 0, 5000),
		between("want", p.Want, 1, 5000), between("replicas", p.Replicas, 1, 6), between("believe", p.Believe, 0, 100),
		between("duration", p.Duration, time.Second, 10*time.Minute),
		refuse(p.Join < 0 || p.Join >= p.Duration, "-join: %v is not between 0s and -duration (%v)", p.Join, p.Duration),
		refuse(p.Kill < 0 || p.Kill >= p.Duration, "-kill: %v is not between 0s and -duration (%v)", p.Kill, p.Duration),
		refuse(p.Kill > 0 && p.Kill <= p.Join, "-kill: %v is not after -join (%v)", p.Kill, p.Join),
		refuse(p.Kill > 0 && p.Join == 0 && p.Replicas == 1, "-kill: %v leaves no replica alive", p.Kill),
		oneOf("act", p.Act, "division", "adaptive", "both"),
		oneOf("tell", p.Tell, tellNothing, tellRetry, tellFields),
		oneOf("policy", p.Policy, "tracking", "aimd", "fixed"),
		oneOf("color", p.Color, "auto", "always", "never"),
		oneOf("pool", p.Pool, "static", "file", "dns", "redis", "gossip"),
		refuse(counts && p.Believe > 0, "-believe: %d, but under -pool %s the replicas count themselves",
			p.Believe, p.Pool),
		refuse(counts && p.Act == "adaptive",
			"-pool: in the adaptive act the replicas do not count: they do not know how many they are"),
		tooClose("kill", p.Kill, p.Duration), tooClose("join", p.Join, cmp.Or(p.Kill, p.Duration)))
}

// between refuses a number outside of a range; NaN is outside of any.
func between[N int | float64 | time.Duration](name string, x, least, most N) error {
	if x >= least && x <= most {
		return nil
	}
	return fmt.Errorf("-%s: %v is not between %v and %v", name, x, least, most)
}

func oneOf(name, value string, known ...string) error {
	if slices.Contains(known, value) {
		return nil
	}
	last := len(known) - 1
	return fmt.Errorf("-%s: %q is not %s or %s", name, value, strings.Join(known[:last], ", "), known[last])
}
