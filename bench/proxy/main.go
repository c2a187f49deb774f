// Command proxy measures quotient proxy on the loopback interface, side by side with a bare httputil.ReverseProxy,
// nginx, HAProxy and Caddy: real processes before one upstream. It prints tables with verdicts.
//
//	go run ./proxy                                     # about ten minutes, on an idle machine
//	go run ./proxy -only overhead -rounds 3 -slice 2s
//
// It needs nginx and haproxy, and builds Caddy from the module proxy; where that fails it goes on without
// Caddy, and says so. The clients and the upstream are in this process. It ends by itself and leaves no
// process behind. It exits 1 unless all goals are met, and 2 when it could not measure.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/quotient-go/quotient/bench/rig"
)

const (
	benchPackage    = "github.com/quotient-go/quotient/bench/proxy"
	quotientPackage = "github.com/quotient-go/quotient/cmd/quotient"
	note            = "Written by `go run ./proxy > proxy/results.md` in bench/, over the loopback interface."
)

type bench struct {
	rounds   int
	paths    int
	slice    time.Duration // of each contender in each round
	dir      string        // of programs, and of files of servers
	quotient string        // the program
	caddy    string        // empty: it is left out
	stderr   io.Writer

	withCaddy bool
}

func main() {
	bare()
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

func command(args []string, stdout, stderr io.Writer) int {
	dir, err := os.MkdirTemp("", "quotient-proxy-")
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing is lost
	b := &bench{rounds: 7, paths: 1000, slice: 4 * time.Second, dir: dir, stderr: stderr}
	flags := flag.NewFlagSet("proxy", flag.ContinueOnError)
	rig.Ranged(flags, &b.rounds, "rounds", 1, 100, "rounds of each part")
	rig.Ranged(flags, &b.slice, "slice", 100*time.Millisecond, time.Minute, "time of each in a round")
	flags.BoolVar(&b.withCaddy, "caddy", true, "build Caddy, which takes a while the first time")
	return rig.Program{Title: "quotient proxy on the loopback interface", Note: note, Parts: b.parts()}.
		Main(flags, args, stdout, stderr)
}
