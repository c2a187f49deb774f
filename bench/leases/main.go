// Command leases measures quotient leases: histories against a model, load, crashes and failovers. It prints
// tables with a verdict.
//
//	go run ./leases                                # everything
//	go run ./leases -only histories -histories 300
//	go run ./leases -out leases/results.md
//
// Parts are histories, http, load, throughput, kills and failovers. It ends by itself, listens on loopback
// only and leaves no process behind. It exits 1 unless all goals are met, and 2 when it could not measure.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench is how much to measure.
type bench struct {
	only              string
	seed              uint64
	clients, requests int // of each history
	histories         int // in fake time
	http              int // histories over HTTP
	peers, waiters    int // of load
	span              time.Duration
	rounds            int           // of throughput
	slice             time.Duration // of each contender in a round
	kills, failovers  int
	grace             time.Duration // of failovers
	out               string
	report            bool   // a goal that is missed is no failure
	quotient          string // the program; it is built when empty
	built             building
	stderr            io.Writer
}

// parts in the order in which they are measured.
var parts = []struct {
	name string
	run  func(*bench, context.Context) (section, error)
}{
	{"histories", (*bench).fakeTime},
	{"http", (*bench).overHTTP},
	{"load", (*bench).manyPeers},
	{"throughput", (*bench).throughput},
	{"kills", (*bench).manyKills},
	{"failovers", (*bench).manyFailovers},
}

func main() {
	if status, is := child(os.Args[1:]); is {
		os.Exit(status)
	}
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// child is this program as one that it has started itself.
func child(args []string) (status int, is bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case keeperArg:
		return keeperMain(args[1:], os.Stdin, os.Stdout, os.Stderr), true
	case serveArg:
		return serveMain(args[1:], os.Stdin, os.Stdout, os.Stderr), true
	}
	return 0, false
}

func command(args []string, stdout, stderr io.Writer) int {
	b, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	sections, err := b.measure(ctx)
	err = errors.Join(err, b.clean())
	status := b.write(sections, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	return status
}

func parse(args []string, stderr io.Writer) (*bench, error) {
	b := &bench{stderr: stderr}
	flags := flag.NewFlagSet("leases", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&b.only, "only", "", "parts, with commas; all when empty")
	flags.Uint64Var(&b.seed, "seed", 1, "of the histories")
	flags.IntVar(&b.clients, "clients", 8, "clients of a history, 2 to 10")
	flags.IntVar(&b.requests, "requests", 200, "requests of each client in a history, 1 to 1000")
	flags.IntVar(&b.histories, "histories", 9900, "histories in fake time, 1 to 1000000")
	flags.IntVar(&b.http, "http", 100, "histories over HTTP, 1 to 10000")
	flags.IntVar(&b.peers, "peers", 10_000, "peers of load, 10 to 50000")
	flags.IntVar(&b.waiters, "waiters", 1000, "waiters of load, 1 to 10000")
	flags.DurationVar(&b.span, "span", 30*time.Second, "time of load, 1s to 10m")
	flags.IntVar(&b.rounds, "rounds", 9, "rounds of throughput, 1 to 100")
	flags.DurationVar(&b.slice, "slice", 2*time.Second, "time of each contender in a round, 100ms to 1m")
	flags.IntVar(&b.kills, "kills", 100, "times that the server is killed under load, 1 to 1000")
	flags.IntVar(&b.failovers, "failovers", 30, "times that another server takes over, 3 to 300")
	flags.DurationVar(&b.grace, "grace", 4*time.Second, "grace time of failovers, 1s to 1m")
	flags.StringVar(&b.out, "out", "", "file for the report besides standard output")
	flags.BoolVar(&b.report, "report", false, "exit 0 even if goals are missed")
	flags.StringVar(&b.quotient, "quotient", "", "the program quotient; built from this checkout when empty")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return b, b.check()
}

// check reports the first setting that is out of range, or nil.
func (b *bench) check() error {
	for _, f := range []struct {
		name            string
		is, least, most int64
	}{
		{"clients", int64(b.clients), 2, 10},
		{"requests", int64(b.requests), 1, 1000},
		{"histories", int64(b.histories), 1, 1_000_000},
		{"http", int64(b.http), 1, 10_000},
		{"peers", int64(b.peers), 10, 50_000},
		{"waiters", int64(b.waiters), 1, 10_000},
		{"span", b.span.Milliseconds(), 1000, 600_000},
		{"rounds", int64(b.rounds), 1, 100},
		{"slice", b.slice.Milliseconds(), 100, 60_000},
		{"kills", int64(b.kills), 1, 1000},
		{"grace", b.grace.Milliseconds(), 1000, 60_000},
		{"failovers", int64(b.failovers), 3, 300},
	} {
		if f.is < f.least || f.is > f.most {
			return fmt.Errorf("-%s: %d is not between %d and %d", f.name, f.is, f.least, f.most)
		}
	}
	for _, name := range strings.Split(b.only, ",") {
		if b.only != "" && !slices.Contains(partNames(), name) {
			return fmt.Errorf("-only: no part is called %q: there are %s", name, strings.Join(partNames(), ", "))
		}
	}
	return nil
}

func partNames() (all []string) {
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

// measure runs the parts that were asked for. A failure of one does not stop the others.
func (b *bench) measure(ctx context.Context) ([]section, error) {
	var all []section
	var errs []error
	for _, p := range parts {
		if ctx.Err() != nil {
			return all, errors.Join(append(errs, ctx.Err())...)
		}
		if b.only != "" && !slices.Contains(strings.Split(b.only, ","), p.name) {
			continue
		}
		began := time.Now()
		s, err := p.run(b, ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
		if s.title == "" {
			continue
		}
		fmt.Fprintf(b.stderr, "%s: %.0f s, %d goals missed\n", p.name, time.Since(began).Seconds(), s.missed())
		all = append(all, s)
	}
	return all, errors.Join(errs...)
}

// write writes the report, also to a file if one is named, and returns the exit status.
func (b *bench) write(all []section, stdout, stderr io.Writer) int {
	var text bytes.Buffer
	fmt.Fprintf(&text, "# quotient leases\n\n"+
		"Written by `go run ./leases -out leases/results.md` in bench/. %s %s/%s, %d processors,\n"+
		"which clients and servers share.\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	missed := 0
	for _, s := range all {
		s.print(&text)
		missed += s.missed()
	}
	fmt.Fprintf(&text, "\n%d goals missed.\n", missed)
	_, err := stdout.Write(text.Bytes())
	if b.out != "" {
		err = errors.Join(err, os.WriteFile(b.out, text.Bytes(), 0o644))
	}
	switch {
	case err != nil:
		fmt.Fprintln(stderr, err)
		return 2
	case missed > 0 && !b.report:
		return 1
	}
	return 0
}
