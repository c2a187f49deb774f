// Command chaos runs a fleet of eight processes whose world breaks all the time, and judges by what they admitted
// whether the fleet held its limits.
//
//	go run ./bench/chaos -duration 1m
//	go run ./bench/chaos -duration 1m -gossip
//	go run ./bench/chaos -believe 4
//
// Each process runs six limiters, and its callers want more than its share of each. The pool size comes from a file,
// from DNS, from Redis, and from a DNS server that never fails, by which permits in flight, aligned windows and turns of
// a paced rate have ordinals. With -gossip replicas find each other, and lend what they do not use of a rate and of
// slots; their count decides a third limit. All their messages pass a network which loses, doubles, delays and parts.
// Of each 20 s the last 8 are without faults, and one replica has all that there is.
//
// faults.go lists what breaks. judge.go has one function for each bound of docs/bounds.md, which judges what processes
// note. It takes redis-server.
//
// The exit status is 0 when all of it held, 1 when something did not, and 2 when the run did not come to its end.
// -believe 4 lets the file and DNS lie, and the verdict fails.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/quotient-go/quotient/bench/rig"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == replicaArg {
		os.Exit(replicaMain(os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

type config struct {
	Duration time.Duration
	Seed     uint64
	Believe  int
	Gossip   bool // another fleet, whose replicas learn all from each other
}

func command(args []string, stdout, stderr io.Writer) int {
	c := config{Duration: time.Minute}
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	rig.Ranged(f, &c.Duration, "duration", 10*time.Second, time.Hour, "`time` that the run takes")
	rig.Ranged(f, &c.Believe, "believe", 0, 100, "let the sources say that there are so many `replicas`; 0: the truth")
	f.Uint64Var(&c.Seed, "seed", 1, "`number` that decides which faults come when, and whom they hit")
	f.BoolVar(&c.Gossip, "gossip", false, "let a fleet that gossips break, by partitions and more")
	run := func(ctx context.Context) (s rig.Section, err error) {
		if c.Gossip && c.Duration < cycle {
			return s, fmt.Errorf("-duration: %v is shorter than %v, a cycle of faults with -gossip", c.Duration, cycle)
		}
		r, err := play(ctx, c, stderr)
		if err != nil {
			return s, err
		}
		verdicts, broken := judge(r)
		return report(r, verdicts, broken), nil
	}
	return rig.Program{
		Title: "Chaos", Note: "Written by `go run ./bench/chaos`.", Parts: []rig.Part{{Name: "chaos", Run: run}},
	}.Main(f, args, stdout, stderr)
}
