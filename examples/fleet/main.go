// Command fleet shows what quotient does, in some forty seconds and without any service.
//
//	go run ./examples/fleet
//
// An upstream allows 100 requests a second and answers 429 beyond that. Three replicas, each a process of its own,
// want 60 a second each and share the 100 by division: no replica talks to another, and none calls a store. A
// fourth one joins, and one is killed. The others get the new replica count through their admin endpoints. The verdict
// comes from the upstream's log, not from the limiters: no window between any two requests may hold more than the
// limit promises.
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
	"net/http/httptest"
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
	if len(os.Args) == 3 && os.Args[1] == replicaArg {
		os.Exit(replicaMain(os.Args[2], os.Stdin, os.Stdout, os.Stderr))
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
	status, acts, shown := exitHeld, p.acts(), ""
	if err == nil {
		newScreen(stdout, p).program(acts)
	}
	for _, p.Act = range acts {
		if err != nil {
			break
		}
		var kept bool
		var said string
		if kept, said, err = p.play(ctx, stdout); !kept {
			status = exitBroken
		}
		shown += said
	}
	if err != nil {
		fmt.Fprintln(stderr, "fleet:", err)
		return exitFailed
	}
	newScreen(stdout, p).print("What was shown\n%s", shown)
	return status
}

// play plays one act, prints what is to be seen and the verdict, and says what was shown.
func (p plan) play(ctx context.Context, stdout io.Writer) (kept bool, shown string, err error) {
	out := newScreen(stdout, p)
	out.head()
	f := newFleet(p, out)
	srv := httptest.NewServer(f.up)
	defer srv.Close()
	f.url = srv.URL
	switch err := f.run(ctx); {
	case err != nil:
		return false, "", err
	case len(f.log) == 0:
		return false, "", errors.New("no request reached the upstream: there is nothing to judge")
	}
	kept, shown = f.verdict()
	return kept, shown, nil
}

// verdict prints how good the run was and which promises it kept. It reports whether it kept all, and what that shows.
func (f *fleet) verdict() (kept bool, shown string) {
	f.out.summary(f)
	goodput, rejected := overall(f.log, f.phases)
	if f.plan.adapts() {
		checks := judge(f.log, f.phases)
		end := f.out.verdict("", checks, "The fleet followed.", "The fleet did NOT follow as it should.")
		return held(checks), fmt.Sprintf("  adaptive  %s It used %.1f %% of a limit that nobody told it, "+
			"and %.1f %% of its requests were refused.\n", end, 100*goodput, 100*rejected)
	}
	allowed, checks := f.ruling()
	end := f.out.verdict(allowed, checks, "Every bound held.", "A bound was BROKEN.")
	return held(checks), fmt.Sprintf("  division  %s The processes used %.1f %% of the limit between them, "+
		"and each decided alone.\n", end, 100*goodput)
}

// A plan is what one run does: its flags, each of which says what its field is.
type plan struct {
	Limit, Want              float64
	Burst, Replicas, Believe int
	Duration                 time.Duration
	Act, Policy              string
}

func (p plan) adapts() bool { return p.Act == "adaptive" }

// acts are the acts to play, in order.
func (p plan) acts() []string {
	if p.Act == "both" {
		return []string{"division", "adaptive"}
	}
	return []string{p.Act}
}

// length is the time that an act takes.
func (p plan) length(act string) (d time.Duration) {
	if act == "division" {
		return p.Duration
	}
	for _, s := range scenes {
		d += s.Length
	}
	return d
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
	return p, p.validate()
}

func (p *plan) flags(flags *flag.FlagSet) {
	oneOf := func(to *string, name string, known []string, usage string) {
		*to = known[0]
		flags.Func(name, usage+" (default "+known[0]+")", func(value string) error {
			if *to = value; !slices.Contains(known, value) {
				return errors.New("it is none of " + strings.Join(known, ", "))
			}
			return nil
		})
	}
	flags.Float64Var(&p.Limit, "limit", 100, "`requests` a second that the fleet may send; "+
		"the upstream enforces the same limit, and changes it in the adaptive act")
	flags.IntVar(&p.Burst, "burst", 10, "`requests` that the fleet may send at once")
	flags.Float64Var(&p.Want, "want", 60, "`requests` a second that each replica wants to send")
	flags.IntVar(&p.Replicas, "replicas", 3, "`processes` at the start, 1 to 6")
	flags.DurationVar(&p.Duration, "duration", 10*time.Second, "`time` that the act of division takes: "+
		"after a quarter of it one more replica joins, after half of it one is killed")
	flags.IntVar(&p.Believe, "believe", 0, "set this number of `replicas` on each replica, right or wrong; "+
		"with 2 the verdict on the division fails (0: the right number)")
	oneOf(&p.Act, "act", []string{"both", "division", "adaptive"},
		"`which` act to play: division, adaptive, or both, one after the other")
	oneOf(&p.Policy, "policy", []string{"tracking", "aimd", "fixed"}, "`policy` of the adaptive act: "+
		"tracking, aimd or fixed; with fixed, which learns nothing, the verdict fails")
}

// validate refuses what would run for ever, load the machine, or not show anything.
func (p plan) validate() error {
	return cmp.Or(
		between("limit", p.Limit, 1, 5000), between("burst", p.Burst, 1, 5000), between("want", p.Want, 1, 5000),
		between("replicas", p.Replicas, 1, 6), between("believe", p.Believe, 0, 100),
		between("duration", p.Duration, time.Second, 10*time.Minute))
}

// between refuses a number outside of a range; NaN is outside of any.
func between[N int | float64 | time.Duration](name string, x, least, most N) error {
	if x >= least && x <= most {
		return nil
	}
	return fmt.Errorf("-%s: %v is not between %v and %v", name, x, least, most)
}
