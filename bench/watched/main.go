// Command watched shows that being watched costs nothing that grows. A process with three limiters and a
// million keys is under load, while a scraper requests /metrics each second and an operator's page is open.
// The heap, the series of a scrape and the goroutines have to stay as they are.
//
//	go run ./watched -duration 10m              # prints the table and a verdict
//	go run ./watched -duration 10m -out watched/results.md
//
// Everything is on the loopback interface and ends by itself. It exits 1 unless all goals are met.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// config is how much to measure.
type config struct {
	duration time.Duration
	keys     int
	scrape   time.Duration // between two scrapes
	sample   time.Duration // between two looks at the heap
	out      string        // file for the report besides stdout; none when empty
}

const (
	shortest, longest   = 10 * time.Second, 2 * time.Hour
	fewestKeys, allKeys = 10_000, 1_000_000
)

func main() { os.Exit(command(os.Args[1:], os.Stdout, os.Stderr)) }

func command(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	rec, err := run(context.Background(), c)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return write(rec, c.out, stdout, stderr)
}

// write writes the report, also to a file if one is named, and returns the exit status.
func write(rec *record, file string, stdout, stderr io.Writer) int {
	var text bytes.Buffer
	met := rec.report(&text)
	_, err := stdout.Write(text.Bytes())
	if file != "" {
		err = errors.Join(err, os.WriteFile(file, text.Bytes(), 0o644))
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	if err != nil || !met {
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (config, error) {
	c := config{scrape: time.Second, sample: 5 * time.Second}
	flags := flag.NewFlagSet("watched", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&c.duration, "duration", 10*time.Minute, "how long, 10s to 2h")
	flags.IntVar(&c.keys, "keys", allKeys, "distinct keys, 10000 to 1000000")
	flags.StringVar(&c.out, "out", "", "file for the report besides standard output")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	switch {
	case flags.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case c.duration < shortest || c.duration > longest:
		return c, fmt.Errorf("-duration: %v is not between %v and %v", c.duration, shortest, longest)
	case c.keys < fewestKeys || c.keys > allKeys:
		return c, fmt.Errorf("-keys: %d is not between %d and %d", c.keys, fewestKeys, allKeys)
	}
	c.sample = min(c.sample, c.duration/15) // three looks a fifth, also in a short run
	return c, nil
}

// run fills the limiters, watches them for the duration and returns what it saw.
func run(ctx context.Context, c config) (*record, error) {
	w, err := newWorld(c.keys)
	if err != nil {
		return nil, err
	}
	w.fill()
	server, err := serve(w)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	ctx, cancel := context.WithTimeout(ctx, c.duration)
	defer cancel()
	rec := &record{config: c, began: time.Now()}
	load := w.start(ctx)
	page := server.open(ctx)
	rec.watch(ctx, server)
	rec.err = errors.Join(rec.err, <-page, <-page)
	load.Wait()
	rec.end(server, w)
	return rec, nil
}
