// Command guards shows that every failure mode is held by a test.
//
// The table guards.txt names, for each failure mode, the lines of code that guard against it and
// the test that must notice when they are gone. For each row the command runs the test as the code
// stands, where it must pass, then once more with the guard taken out, where it must fail. Nothing
// in the checkout is changed: the go command reads the altered file through its -overlay flag.
//
//	guards                   run all guards, print a table, exit 1 unless all hold
//	guards -only 3,34a       only those failure modes
//	guards -part 1/3         only every third guard, beginning with the first
//	guards -docs FILE        write the page of failure modes from the same table
//	guards -stale FILE       exit 1 when that page is not what -docs would write
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "guards:", err)
		os.Exit(1)
	}
}

// config is what the command line says.
type config struct {
	runner
	table, only, docs, stale string
	part, parts              int // of every parts guards the part-th is checked
	parallel                 int
}

func parseFlags(args []string) (config, error) {
	var c config
	fs := flag.NewFlagSet("guards", flag.ContinueOnError)
	fs.StringVar(&c.dir, "dir", ".", "`directory` of the module that is tested")
	fs.StringVar(&c.table, "table", "internal/guards/guards.txt", "`file` that holds the table")
	fs.StringVar(&c.only, "only", "", "failure `modes` to run, separated by commas (default all)")
	fs.StringVar(&c.docs, "docs", "", "write the page of failure modes to this `file`, run nothing")
	fs.StringVar(&c.stale, "stale", "", "fail when this `file` is not the page that -docs writes, run nothing")
	fs.DurationVar(&c.timeout, "timeout", 15*time.Second, "time-out of one test run")
	fs.Func("part", "`K/N`: check only every N-th guard, beginning with the K-th (default all)", c.setPart)
	fs.IntVar(&c.parallel, "parallel", runtime.NumCPU()+1, "guards checked at the same time; some wait for time-outs")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if c.parallel < 1 {
		return c, fmt.Errorf("-parallel %d: must be at least 1", c.parallel)
	}
	if fs.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return c, nil
}

// setPart reads K/N.
func (c *config) setPart(s string) error {
	if n, err := fmt.Sscanf(s, "%d/%d", &c.part, &c.parts); err != nil || n != 2 || c.part < 1 || c.part > c.parts {
		return fmt.Errorf("%q is not K/N with K from 1 to N", s)
	}
	return nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	c, err := parseFlags(args)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(c.table)
	if err != nil {
		return err
	}
	modes, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", c.table, err)
	}
	switch {
	case c.docs != "":
		return os.WriteFile(c.docs, page(modes), 0o644)
	case c.stale != "":
		return checkPage(c.stale, modes)
	}
	return checkGuards(ctx, c, modes, out)
}

func checkPage(file string, modes []mode) error {
	have, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, page(modes)) {
		return fmt.Errorf("%s is stale: run make docs", file)
	}
	return nil
}

func checkGuards(ctx context.Context, c config, modes []mode, out io.Writer) error {
	modes, err := pick(modes, c.only)
	if err != nil {
		return err
	}
	var guards []guard
	var without []string
	for _, m := range modes {
		guards = append(guards, m.guards...)
		if len(m.guards) == 0 {
			without = append(without, m.id)
		}
	}
	guards = c.ofPart(guards)
	results := c.checkAll(ctx, guards, c.parallel)
	printTable(out, results)
	if len(without) > 0 {
		fmt.Fprintln(out, "modes without a guard:", strings.Join(without, ", "))
	}
	return verdict(results)
}

// ofPart returns the guards that are to be checked.
func (c *config) ofPart(guards []guard) []guard {
	if c.parts == 0 {
		return guards
	}
	var some []guard
	for i := c.part - 1; i < len(guards); i += c.parts {
		some = append(some, guards[i])
	}
	return some
}

// verdict returns an error unless there are results and every one of them holds.
func verdict(results []result) error {
	if len(results) == 0 {
		return fmt.Errorf("no guard was checked")
	}
	bad := 0
	for _, r := range results {
		if r.outcome != holds {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d guards do not hold", bad, len(results))
	}
	return nil
}
