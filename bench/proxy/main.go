// Command proxy measures quotient proxy on the loopback interface, side by side with a bare
// httputil.ReverseProxy, nginx and HAProxy: real processes before one upstream. It prints tables with a
// verdict.
//
//	go run ./proxy                                   # everything, about 15 minutes
//	go run ./proxy -only throughput,blocked -rounds 7
//	go run ./proxy -out proxy/results.md
//
// Figures are throughput, overhead, fleet, blocked, hostile and reloads. The clients and the upstream are in
// this process. It runs on Linux, needs nginx and haproxy, ends by itself and leaves no process behind. It
// exits 1 unless all goals are met, and 2 when it could not measure.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench is how much to measure.
type bench struct {
	only     string
	rounds   int
	keys     int           // paths of throughput and overhead
	slice    time.Duration // of each contender in each round
	window   time.Duration // of the fleet's limit
	windows  int           // that are judged
	paths    int           // of the fleet
	blocked  int           // requests at once
	hostile  int           // distinct paths
	quiet    time.Duration // of the run beside the hostile one
	reloads  int
	out      string // file for the report besides stdout; none when empty
	report   bool   // a goal that is missed is no failure
	quotient string // the program; it is built when empty
	stderr   io.Writer
}

// figures in the order in which they are measured.
var figures = []struct {
	name string
	run  func(*bench, context.Context) (section, error)
}{
	{"throughput", (*bench).throughput},
	{"overhead", (*bench).overhead},
	{"blocked", (*bench).blockedRequests},
	{"hostile", (*bench).hostilePaths},
	{"reloads", (*bench).manyReloads},
	{"fleet", (*bench).threeProxies},
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case keeperArg:
			os.Exit(keeperMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case bareArg:
			os.Exit(bareMain(os.Args[2:], os.Stderr))
		}
	}
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
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
	if err == nil {
		return b.write(sections, stdout, stderr)
	}
	if len(sections) > 0 {
		b.write(sections, stdout, stderr)
	}
	fmt.Fprintln(stderr, err)
	return 2
}

func parse(args []string, stderr io.Writer) (*bench, error) {
	b := &bench{keys: 1000, paths: 10, stderr: stderr}
	flags := flag.NewFlagSet("proxy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&b.only, "only", "", "figures, with commas; all when empty")
	flags.IntVar(&b.rounds, "rounds", 5, "rounds of throughput and overhead, 1 to 100")
	flags.DurationVar(&b.slice, "slice", 4*time.Second, "time of each contender in a round, 100ms to 1m")
	flags.DurationVar(&b.window, "window", time.Minute, "window of the fleet's limit, 1s to 1m")
	flags.IntVar(&b.windows, "windows", 3, "whole windows of the fleet, 1 to 10")
	flags.IntVar(&b.blocked, "blocked", 10_000, "requests that are blocked at once, 100 to 15000")
	flags.IntVar(&b.hostile, "hostile", 1_000_000, "distinct hostile paths, 1000 to 10000000")
	flags.DurationVar(&b.quiet, "quiet", 30*time.Second, "time without hostile paths, 1s to 10m")
	flags.IntVar(&b.reloads, "reloads", 1000, "reloads of the file, 10 to 10000")
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
		{"rounds", int64(b.rounds), 1, 100},
		{"slice", b.slice.Milliseconds(), 100, 60_000},
		{"window", b.window.Milliseconds(), 1000, 60_000},
		{"windows", int64(b.windows), 1, 10},
		{"blocked", int64(b.blocked), 100, 15_000},
		{"hostile", int64(b.hostile), 1000, 10_000_000},
		{"quiet", b.quiet.Milliseconds(), 1000, 600_000},
		{"reloads", int64(b.reloads), 10, 10_000},
	} {
		if f.is < f.least || f.is > f.most {
			return fmt.Errorf("-%s: %d is not between %d and %d", f.name, f.is, f.least, f.most)
		}
	}
	for _, name := range strings.Split(b.only, ",") {
		if b.only != "" && !slices.ContainsFunc(names(), func(n string) bool { return n == name }) {
			return fmt.Errorf("-only: no figure is called %q: there are %s", name,
				strings.Join(names(), ", "))
		}
	}
	return nil
}

func names() (all []string) {
	for _, f := range figures {
		all = append(all, f.name)
	}
	return all
}

// measure runs the figures that were asked for. A figure that fails does not stop the others.
func (b *bench) measure(ctx context.Context) ([]section, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("%s: resident memory is read from /proc, which only Linux has", runtime.GOOS)
	}
	if b.quotient != "" {
		var err error
		if b.quotient, err = filepath.Abs(b.quotient); err != nil {
			return nil, err
		}
	} else {
		dir, err := os.MkdirTemp("", "quotient-proxy-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		if b.quotient, err = build(ctx, dir); err != nil {
			return nil, err
		}
	}
	var all []section
	var errs []error
	for _, f := range figures {
		if ctx.Err() != nil {
			return all, errors.Join(append(errs, ctx.Err())...)
		}
		if b.only != "" && !slices.Contains(strings.Split(b.only, ","), f.name) {
			continue
		}
		began := time.Now()
		s, err := f.run(b, ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
			continue
		}
		fmt.Fprintf(b.stderr, "%s: %.0f s, %d goals missed\n", f.name, time.Since(began).Seconds(),
			s.missed())
		all = append(all, s)
	}
	return all, errors.Join(errs...)
}

// build builds the program quotient of this checkout.
func build(ctx context.Context, dir string) (string, error) {
	file := filepath.Join(dir, "quotient")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", file, "github.com/quotient-go/quotient/cmd/quotient")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building quotient: %w: %s", err, text)
	}
	return file, nil
}

// write writes the report, also to a file if one is named, and returns the exit status.
func (b *bench) write(all []section, stdout, stderr io.Writer) int {
	var text bytes.Buffer
	fmt.Fprintf(&text, "# quotient proxy on the loopback interface\n\n"+
		"Written by `go run ./proxy -out proxy/results.md` in bench/. %s %s/%s, %d processors,\n"+
		"which clients, upstream and proxies share.\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
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
