// Command arena plays many replicas of a client against upstreams that enforce a limit, in virtual time. It
// compares how well different controllers share a limit that no replica knows.
//
//	go run ./bench/arena                            # everything, a few minutes
//	go run ./bench/arena -seeds 1 -scenario S5,O4   # some of it, with one seed
//
// Every scenario is played by each contender with each seed, against its upstreams, at three levels of
// feedback. A contender that does not read the feedback is played once for all levels. The pure policy is
// played under a simulated clock, not the whole library: four minutes of a thousand replicas take a second.
// The same seed gives the same run. Controllers are tuned on the seeds 1 to 4 and reported on 101 to 104. A
// missed goal is reported and is no error; the exit status is 1 for a bad flag.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/bench/rig"
)

type config struct {
	seeds      []uint64
	scenarios  []sim.Scenario
	contenders []sim.Contender
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		begin, g := time.Now(), c.grid()
		g.play(stderr)
		fmt.Fprintf(stderr, "arena: %d runs in %s\n", g.runs, time.Since(begin).Round(time.Second))
		_, err = io.WriteString(stdout, g.report())
	}
	if err != nil {
		fmt.Fprintln(stderr, "arena:", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (c config, err error) {
	f := flag.NewFlagSet("arena", flag.ContinueOnError)
	f.SetOutput(stderr)
	first, n := 101, 4
	rig.Ranged(f, &first, "first", 0, 1_000_000, "first seed")
	rig.Ranged(f, &n, "seeds", 1, 1000, "number of seeds")
	scenarios := f.String("scenario", "", "comma-separated scenarios, such as S1,S9,O4; empty for all")
	chosen := f.String("contender", "", "comma-separated contenders; empty for all")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if f.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	for i := range n {
		c.seeds = append(c.seeds, uint64(first+i))
	}
	c.scenarios, err = choose("scenario", *scenarios, sim.Scenarios, func(s sim.Scenario) string { return s.Name })
	if err == nil {
		c.contenders, err = choose("contender", *chosen, contenders(), func(l sim.Contender) string { return l.Name })
	}
	return c, err
}

// choose returns the elements that the names mean, or those of their family, in the order of all; no names mean all.
func choose[T any](flag, names string, all []T, name func(T) string) ([]T, error) {
	is := func(e T, what string) bool { return name(e) == what || family(name(e)) == what }
	if names == "" {
		return all, nil
	}
	wanted := strings.Split(names, ",")
	for i, name := range wanted {
		wanted[i] = strings.TrimSpace(name)
		if !slices.ContainsFunc(all, func(e T) bool { return is(e, wanted[i]) }) {
			return nil, fmt.Errorf("-%s: nothing is called %q", flag, wanted[i])
		}
	}
	none := func(e T) bool { return !slices.ContainsFunc(wanted, func(name string) bool { return is(e, name) }) }
	return slices.DeleteFunc(slices.Clone(all), none), nil
}

// family is a scenario's name without what tells its variants apart: S9 for S9a, H1 for H1b/10.
func family(name string) string {
	name, _, _ = strings.Cut(name, "/")
	return strings.TrimRight(name, "abc")
}
