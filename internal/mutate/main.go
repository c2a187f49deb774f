// Command mutate measures the tests: it changes the code in random places, one at a time, and counts how
// many changes the tests notice.
//
// A change is an operator for another, an integer moved by one, a condition negated, a statement removed, zero
// values returned, or break for continue. Nothing in the checkout is changed: the go command reads the
// altered file through its -overlay flag. Changes that do not build do not count. The same seed draws the
// same changes for as long as the files stay as they are.
//
//	mutate -files lru.go,queue.go            200 changes of these files
//	mutate -files lru.go -n 0                all changes
//	mutate -files lru.go -done FILE          note each result in a file, and go on from there
//	mutate -files lru.go -run 'LRU|Evict'    only these tests
//	mutate -files lru.go -list               print the changes, run nothing
//	RAPID_CHECKS=500 mutate -files lru.go    so many histories a property (100)
package main

import (
	"context"
	"errors"
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
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// config is what the command line says.
type config struct {
	bench
	files    []string
	n        int
	seed     uint64
	parallel int
	done     string
	least    float64
	list     bool
}

func parseFlags(args []string) (config, error) {
	var c config
	fs := flag.NewFlagSet("mutate", flag.ContinueOnError)
	fs.StringVar(&c.dir, "dir", ".", "`folder` of the package")
	files := fs.String("files", "", "`files` of the package to change, separated by commas")
	fs.IntVar(&c.n, "n", 200, "changes to try; 0 for all")
	fs.Uint64Var(&c.seed, "seed", 1, "of the random choice")
	fs.StringVar(&c.tests, "run", "", "regular expression of the `tests` to run (default all)")
	fs.IntVar(&c.parallel, "parallel", max(1, runtime.NumCPU()/2), "changes tried at the same time")
	fs.DurationVar(&c.timeout, "timeout", 0, "of each test run (default 3 times that of the code as it stands)")
	fs.StringVar(&c.done, "done", "", "`file` of results: what stands in it is not run again")
	fs.Float64Var(&c.least, "least", 0, "fail when fewer `percent` are killed")
	fs.BoolVar(&c.list, "list", false, "print all changes, run nothing")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if c.parallel < 1 {
		return c, fmt.Errorf("-parallel %d: must be at least 1", c.parallel)
	}
	if c.n < 0 {
		return c, fmt.Errorf("-n %d: must not be negative", c.n)
	}
	if *files == "" || fs.NArg() > 0 {
		return c, errors.New("-files names the files to change, separated by commas; there are no other arguments")
	}
	c.files = strings.Split(*files, ",")
	return c, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	c, err := parseFlags(args)
	if err != nil {
		return err
	}
	all, err := allMutants(c.dir, c.files, c.seed)
	if err != nil {
		return err
	}
	if c.list {
		for _, m := range all {
			fmt.Fprintf(out, "%s:%d %s\n%s", m.file, m.line, m.kind, m.diff())
		}
		return nil
	}
	if c.n == 0 {
		c.n = len(all)
	}
	temp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	took, err := c.warmUp(ctx, temp)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d changes are possible; the tests take %v\n", len(all), took.Round(time.Millisecond))
	for _, r := range c.runs {
		fmt.Fprintf(out, "time-out %v: %s\n", r.timeout, r.which)
	}
	book, err := openBook(c.done)
	if err != nil {
		return err
	}
	defer book.close()
	t := &tally{out: out, book: book, want: c.n, mutants: all}
	return errors.Join(t.play(ctx, c), t.sum(c.least))
}
