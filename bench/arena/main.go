// Command arena plays many replicas of a client against upstreams that enforce a limit, in virtual time. It
// compares how well different controllers share a limit that no replica knows.
//
//	go run ./bench/arena                              # everything, a few minutes
//	go run ./bench/arena -seeds 1 -scenario S5,O4     # some of it
//	go run ./bench/arena -o results.md -plot pictures # also pictures
//	go run ./bench/arena -ablate                      # what each rule of the library's law is worth
//	go run ./bench/arena -gossip                      # what news of the other replicas is worth
//	go run ./bench/arena -families 126 -worst 20      # cells drawn at random: lies, hints, incidents, drift
//
// Every scenario is played by each contender with each seed, against its upstreams, at three levels of
// feedback. A contender that does not read the feedback is played once for all levels. The pure policy is
// played under a simulated clock, not the whole library: four minutes of a thousand replicas take a second.
// The same seed gives the same run; a part of the runs is played twice to see to it. Controllers are tuned
// on the seeds 1 to 4 and reported on 101 to 104. The exit status is 1 for a bad flag and when a run could
// not be repeated.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient/bench/arena/contenders"
	"github.com/quotient-go/quotient/bench/arena/sim"
)

// config is what the flags say.
type config struct {
	seeds      []uint64
	scenarios  []sim.Scenario
	contenders []sim.Contender
	draws      int      // cells of each family; 0: play scenarios
	only       []string // families; none: all
	worst      int      // how many of the lowest cells are shown
	gossip     bool     // compare the library's controller with itself with reports of the other replicas
	ablate     bool     // compare the library's controller with itself without one rule at a time
	plots      string   // directory; "" for no pictures
	out        string   // file; "" for the standard output
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole command; it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = c.play(stdout, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "arena:", err)
		return 1
	}
	return 0
}

func (c config) play(stdout, stderr io.Writer) error {
	begin := time.Now()
	if c.draws > 0 {
		if c.ablate {
			return c.emit(stdout, c.worths)
		}
		return c.emit(stdout, c.families)
	}
	g, err := c.grid().play(newProgress(stderr))
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "arena: %d runs in %s\n", g.played(), time.Since(begin).Round(time.Second))
	if err := c.write(g, stdout); err != nil {
		return err
	}
	if c.plots != "" {
		return c.draw(g)
	}
	return nil
}

// write prints the report where it is wanted.
func (c config) write(g grid, stdout io.Writer) error {
	report := g.report
	switch {
	case c.ablate:
		report = g.ablation
	case c.gossip:
		report = g.gossips
	}
	return c.emit(stdout, report)
}

// emit prints a report where it is wanted.
func (c config) emit(stdout io.Writer, report func(io.Writer) error) error {
	if c.out == "" {
		return report(stdout)
	}
	var b strings.Builder
	if err := report(&b); err != nil {
		return err
	}
	return os.WriteFile(c.out, []byte(b.String()), 0o644)
}

func parse(args []string, stderr io.Writer) (c config, err error) {
	f := flag.NewFlagSet("arena", flag.ContinueOnError)
	f.SetOutput(stderr)
	seeds := f.String("seeds", "101-104", "seeds, such as 1,2 or 101-104")
	scenarios := f.String("scenario", "", "comma-separated scenarios, such as S1,S9,O4; empty for all")
	chosen := f.String("contender", "", "comma-separated contenders; empty for all")
	f.IntVar(&c.draws, "families", 0, "how many cells of each family to draw for each seed, in place of scenarios")
	only := f.String("family", "", "comma-separated families: lies, hints, incidents, drift; empty for all")
	f.IntVar(&c.worst, "worst", 0, "how many of the lowest cells of families to show")
	f.BoolVar(&c.ablate, "ablate", false, "show what each rule of the library's controller is worth, in place of the contenders")
	f.BoolVar(&c.gossip, "gossip", false, "show what reports from other replicas are worth, in place of the contenders")
	f.StringVar(&c.plots, "plot", "", "directory to write pictures to; empty for none")
	f.StringVar(&c.out, "o", "", "file to write the report to; empty for the standard output")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	c.only, err = choose("family", *only, []string{"lies", "hints", "incidents", "drift"}, func(s, name string) bool { return s == name })
	if err != nil {
		return c, err
	}
	if f.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if c.seeds, err = parseSeeds(*seeds); err != nil {
		return c, err
	}
	c.scenarios, err = choose("scenario", *scenarios, append(sim.Given(), sim.Own()...),
		func(s sim.Scenario, name string) bool { return s.Name == name || family(s.Name) == name })
	if err != nil {
		return c, err
	}
	if c.ablate || c.gossip {
		return c.special(*chosen)
	}
	c.contenders, err = choose("contender", *chosen, contenders.Contenders(),
		func(l sim.Contender, name string) bool { return l.Name == name })
	return c, err
}

// special chooses the contenders of -ablate and of -gossip.
func (c config) special(chosen string) (config, error) {
	switch {
	case c.ablate && c.gossip:
		return c, errors.New("-ablate and -gossip: choose one")
	case chosen != "" || c.plots != "":
		return c, errors.New("-ablate and -gossip have contenders of their own and draw nothing: leave -contender and -plot out")
	case c.gossip && c.draws > 0:
		return c, errors.New("-gossip plays scenarios: leave -families out")
	}
	c.contenders = contenders.Gossip()
	if c.ablate {
		c.contenders = contenders.Ablation()
	}
	return c, nil
}

const mostSeeds = 1000 // so that a slip of the finger does not fill the memory

// parseSeeds reads a list such as 1,2,101-104.
func parseSeeds(s string) (list []uint64, err error) {
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err1 := strconv.ParseUint(strings.TrimSpace(from), 10, 32)
		b, err2 := strconv.ParseUint(strings.TrimSpace(to), 10, 32)
		if err1 != nil || err2 != nil || b < a {
			return nil, fmt.Errorf("-seeds: %q is neither a number nor a range such as 101-104", part)
		}
		if b-a >= mostSeeds || len(list) >= mostSeeds {
			return nil, fmt.Errorf("-seeds: %q: more than %d seeds", part, mostSeeds)
		}
		for ; a <= b; a++ {
			list = append(list, a)
		}
	}
	return list, nil
}

// choose returns the elements that the names mean, in the order of all; no names mean all.
func choose[T any](flag, names string, all []T, is func(T, string) bool) (chosen []T, err error) {
	if names == "" {
		return all, nil
	}
	wanted := make([]bool, len(all))
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		if !slices.ContainsFunc(all, func(e T) bool { return is(e, name) }) {
			return nil, fmt.Errorf("-%s: nothing is called %q", flag, name)
		}
		for i, e := range all {
			wanted[i] = wanted[i] || is(e, name)
		}
	}
	for i, e := range all {
		if wanted[i] {
			chosen = append(chosen, e)
		}
	}
	return chosen, nil
}

// family is a scenario's name without the letter that tells its variants apart: S9 for S9a.
func family(name string) string { return strings.TrimRight(name, "abcdefghij") }
