// Command picture runs examples/fleet, records what it prints with its times, and draws that as an animated
// SVG. Run it in the top folder of the repository, on a machine that has nothing else to do:
//
//	go run ./bench/picture           # run the fleet, write its recording and docs/pictures/fleet.svg
//	go run ./bench/picture -redraw   # draw the recording that is there once more
//
// The recording is an asciicast (version 2), so a terminal can replay it too. The same recording always
// gives the same picture. The exit status is 1 when the fleet broke a promise or the picture cannot be
// drawn.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"
)

// config says what to draw, and from what.
type config struct {
	cast    string // file of the recording
	picture string // file of the picture
	redraw  bool   // draw the recording that is there
}

// longestRun is how long the fleet may take before its run is given up.
const longestRun = 3 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// command is the whole program. It returns the exit status.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = c.run(ctx, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "picture:", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("picture", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.cast, "cast", filepath.FromSlash("bench/picture/fleet.cast"),
		"`file` of the recording")
	flags.StringVar(&c.picture, "o", filepath.FromSlash("docs/pictures/fleet.svg"), "`file` of the picture")
	flags.BoolVar(&c.redraw, "redraw", false, "draw the recording that is there, without a run")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return c, nil
}

// run records the fleet unless the recording is there, and draws. A run that cannot be drawn leaves both
// files alone.
func (c config) run(ctx context.Context, stdout, stderr io.Writer) error {
	var rec *recording
	var err error
	if c.redraw {
		rec, err = readCast(c.cast)
	} else {
		rec, err = runFleet(ctx, stdout, stderr)
	}
	if err != nil {
		return err
	}
	svg, err := draw(rec)
	if err != nil {
		return err
	}
	if !c.redraw {
		if err := rec.write(c.cast); err != nil {
			return err
		}
	}
	return os.WriteFile(c.picture, svg, 0o644)
}

// runFleet builds the fleet first, so that the time that takes is in no recording, and records one run.
func runFleet(ctx context.Context, stdout, stderr io.Writer) (_ *recording, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestRun)
	defer cancel()
	dir, err := os.MkdirTemp("", "picture-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fleet := filepath.Join(dir, "fleet.exe")
	build := exec.CommandContext(ctx, "go", "build", "-o", fleet, "./examples/fleet")
	build.Stdout, build.Stderr = stdout, stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build ./examples/fleet: %w", err)
	}
	run := exec.CommandContext(ctx, fleet, "-color", "always")
	run.Stderr = stderr
	return record(run, stdout)
}
