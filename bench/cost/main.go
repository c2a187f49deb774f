// Command cost measures what quotient costs beside its peers, all in one run, and judges the outcome by
// the project's goals.
//
//	go run ./cost                       # everything, about ten minutes
//	go run ./cost -only allow,http      # some figures
//	go run ./cost -report               # exit 0 even when a goal is missed
//
// Timed figures run round by round (A B C A B C …) and report medians; a ratio is taken within each round
// first. Every figure asserts what it measured: distinct keys, admissions, keys held.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// config is how much to measure.
type config struct {
	rounds int
	slice  time.Duration // time for each contender in each round
	cpus   []int
	scale  int // divides the number of keys and waiters; 1 but in short tests
}

// figure is one group of tables.
type figure struct {
	name string
	run  func(config) ([]table, error)
}

func figures() []figure {
	return []figure{
		{"allow", allowFigure},
		{"live", liveFigure},
		{"memory", memoryFigure},
		{"attack", attackFigure},
		{"http", httpFigure},
		{"inflight", inflightFigure},
		{"fairness", fairnessFigure},
		{"waiters", waitersFigure},
		{"stall", stallFigure},
	}
}

func main() {
	rounds := flag.Int("rounds", 7, "rounds of every timed figure, at least 6 for a figure worth quoting")
	slice := flag.Duration("slice", 50*time.Millisecond, "time for each contender in each round")
	cpu := flag.String("cpu", "1,2", "values of GOMAXPROCS, each with as many goroutines")
	only := flag.String("only", "", "comma-separated figures; empty for all")
	report := flag.Bool("report", false, "exit 0 even when a goal is missed")
	flag.Parse()
	cpus, err := parseCPUs(*cpu)
	if err != nil {
		fail(err)
	}
	chosen, err := choose(*only)
	if err != nil {
		fail(err)
	}
	missed, err := measureAll(config{rounds: max(1, *rounds), slice: *slice, cpus: cpus, scale: 1}, chosen)
	if err != nil {
		fail(err)
	}
	if missed > 0 {
		fmt.Printf("\n%d goals missed\n", missed)
		if !*report {
			os.Exit(1)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "cost:", err)
	os.Exit(2)
}

// measureAll runs the figures, prints their tables and returns how many goals were missed.
func measureAll(c config, chosen []figure) (missed int, err error) {
	fmt.Printf("%s %s/%s, %d cpus, %d rounds of %s\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), c.rounds, c.slice)
	for _, f := range chosen {
		tables, err := f.run(c)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", f.name, err)
		}
		for _, t := range tables {
			t.print(os.Stdout)
			for _, v := range t.verdicts {
				if !v.met() {
					missed++
				}
			}
		}
		runtime.GC()
	}
	return missed, nil
}

func parseCPUs(s string) ([]int, error) {
	var cpus []int
	for _, f := range strings.Split(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(f))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-cpu: %q is not a positive number", f)
		}
		cpus = append(cpus, n)
	}
	return cpus, nil
}

func choose(only string) ([]figure, error) {
	all := figures()
	if only == "" {
		return all, nil
	}
	var chosen []figure
	for _, name := range strings.Split(only, ",") {
		i := slices.IndexFunc(all, func(f figure) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-only: no figure is called %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
