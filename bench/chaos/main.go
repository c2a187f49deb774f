// Command chaos runs a fleet of eight processes whose world breaks all the time, and judges by the upstream's log
// whether the fleet held its limits.
//
//	go run ./bench/chaos -duration 1m
//	go run ./bench/chaos -duration 10m -o results.md
//	go run ./bench/chaos -duration 10m -gossip -o results-gossip.md
//
// Each process runs seven limiters, and sends requests for seven paths to one upstream, more than its share
// of each. The pool size of four of them comes from a file, from DNS, from Redis, and from a Redis Cluster.
// Three limit other resources, by a second DNS server that never fails and returns each replica's ordinal:
// permits in flight, aligned windows, and a paced rate whose replicas take turns.
//
// Processes are killed and replaced, or stopped for a while and continued. Redis is restarted, half of the
// times without its data. DNS fails in every way that a test server can. The file is deleted, half written,
// replaced by a directory, by garbage, and by a symbolic link. The master that has the fleet's keys in the
// Cluster is killed, its replica is promoted, and the dead one becomes the replica. The sources of permits
// and of the file say nothing for longer than the hold-down, or than HintMaxAge, while processes come and
// go. The wall clock of one process, or of all, is stepped by a second to an hour, and back. In ten minutes
// these are 60, 60, 30, 20, 20, 20, 20 and 20 faults; in less time fewer, but each kind once where time
// allows.
//
// These promises are judged. No window between two departures may hold more than bounds 2 and 3 allow the
// fleet, and bound 1 each replica. Permits in flight keep bound 5, and aligned windows bound 11, by a clock
// that is never stepped; windows and turns go on. After each change all processes must agree with the truth
// within the hold-down and two periods of the source (with Redis, and the expiry). Hints that are too old
// must not count. And no process that ends in order may leave a goroutine behind.
//
// A wall clock cannot be stepped from outside of a process, and the library has no seam for it. The program
// is built once more, with an overlay of the root package (go build -overlay). There, the one place that
// reads the wall clock reads a stepped one. It takes the go command and a checkout; without these, and
// without redis-server for the Cluster, such faults are left out, and the report names them.
//
// With -gossip it is another fleet: its replicas find each other, and lend what they do not use of a rate
// and of slots. The fleet's count decides a third limit, of aligned windows. All their messages pass a
// network which loses a tenth of the datagrams, and doubles and delays others. It falls into two parts that
// do not reach each other, or of which one reaches the other. Processes are killed, stopped, and leave;
// others come, under the same names and addresses or new ones. The busy replicas change. Ten minutes are 30
// cycles: of each 12 s are for faults, and 8 s without any, in which one replica has all that there is. The
// replicas also count together: in the end all must know the same sums.
//
// The exit status is 0 when all of it held, 1 when something did not, and 2 when the run did not come to its end.
// -believe 4 lets all sources lie, and the verdict fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Exit statuses.
const (
	exitHeld   = 0
	exitBroken = 1
	exitFailed = 2
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

// config is what the flags say.
type config struct {
	Duration time.Duration
	Seed     uint64
	Replicas int
	Limit    float64 // requests a second, for each path
	Burst    int
	Believe  int
	Out      string // file; "" for none
	Gossip   bool   // another fleet, whose replicas learn all from each other
}

// run is the whole command. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitHeld
	}
	var r record
	if err == nil {
		r, err = play(ctx, c, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return exitFailed
	}
	v := judge(r)
	text := v.text(r)
	fmt.Fprint(stdout, "\n", text)
	if c.Out != "" {
		if err := os.WriteFile(c.Out, []byte(text), 0o644); err != nil {
			fmt.Fprintln(stderr, "chaos:", err)
			return exitFailed
		}
	}
	if len(v.Broken) > 0 {
		return exitBroken
	}
	return exitHeld
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.DurationVar(&c.Duration, "duration", time.Minute, "`time` that the run takes, 10s to 1h")
	f.Uint64Var(&c.Seed, "seed", 1, "`number` that decides which faults come when, and whom they hit")
	f.IntVar(&c.Replicas, "replicas", 8, "`processes`, 3 to 16")
	f.Float64Var(&c.Limit, "limit", 200, "`requests` a second over the fleet, on each of the first four paths; 1 to 500")
	f.IntVar(&c.Burst, "burst", 8, "`requests` at once over the fleet, 1 to 500")
	f.IntVar(&c.Believe, "believe", 0, "let all sources say that the pool has this many `replicas`, whatever is true (0: the truth)")
	f.BoolVar(&c.Gossip, "gossip", false, "let a fleet that gossips break, by partitions and more")
	f.StringVar(&c.Out, "o", "", "`file` to write the report to, besides")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	switch {
	case f.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case c.Duration < 10*time.Second || c.Duration > time.Hour:
		return c, fmt.Errorf("-duration: %v is not between 10s and 1h", c.Duration)
	case c.Replicas < 3 || c.Replicas > 16:
		return c, fmt.Errorf("-replicas: %d is not between 3 and 16", c.Replicas)
	case !(c.Limit >= 1 && c.Limit <= 500):
		return c, fmt.Errorf("-limit: %v is not between 1 and 500", c.Limit)
	case c.Burst < 1 || c.Burst > 500:
		return c, fmt.Errorf("-burst: %d is not between 1 and 500", c.Burst)
	case c.Gossip && c.Duration < cycle:
		return c, fmt.Errorf("-duration: %v is shorter than %v, a cycle of faults with -gossip", c.Duration, cycle)
	case c.Gossip && c.Believe > 0:
		return c, fmt.Errorf("-believe: %d does not go with -gossip", c.Believe)
	case c.Believe < 0 || c.Believe > 100:
		return c, fmt.Errorf("-believe: %d is not between 0 and 100", c.Believe)
	}
	return c, nil
}
