// Command decide measures quotient decide side by side with a gRPC server that does nothing, and with one that asks
// Redis as the reference rate limit service of Envoy does: real processes on one machine. It prints tables with
// verdicts.
//
//	go run ./decide                                # about eight minutes, on an idle machine; needs redis-server
//	go run ./decide -only price -rounds 3
//
// Parts are price and fleet. The clients are in this process. It ends by itself and leaves no process
// behind. It exits 1 unless all goals are met, and 2 when it could not measure.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/quotient-go/quotient/bench/rig"
)

const (
	quotientPackage = "github.com/quotient-go/quotient/cmd/quotient"
	note            = `
Written by ` + "`go run ./decide > decide/results.md`" + ` in bench/. In every process GOMAXPROCS is the number of
processors. Clients share them with the servers, so requests a second are those of both together. The clients of gRPC
are grpc-go, those of HTTP fasthttp, which cost less. Processor time is that of the servers alone.`
)

type bench struct {
	rounds int
	slice  time.Duration // of each contender in each round
	keys   int           // that are asked for
	fleet  fleetLoad
	dir    string // of the program, and of files of servers
	exe    string // quotient; empty: it is not built yet
}

func main() {
	serveSelf()
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

func command(args []string, stdout, stderr io.Writer) int {
	dir, err := os.MkdirTemp("", "quotient-decide-")
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing is lost
	b := &bench{rounds: 20, slice: 400 * time.Millisecond, keys: 100_000, fleet: minutes, dir: dir}
	flags := flag.NewFlagSet("decide", flag.ContinueOnError)
	rig.Ranged(flags, &b.rounds, "rounds", 1, 100, "rounds of price")
	rig.Ranged(flags, &b.slice, "slice", 100*time.Millisecond, time.Minute, "time of each in a round")
	rig.Ranged(flags, &b.keys, "keys", 100, 200_000, "keys that are asked for")
	rig.Ranged(flags, &b.fleet.windows, "minutes", 1, 60, "minutes of fleet")
	return rig.Program{Title: "quotient decide beside a proxy", Note: note, Parts: b.parts()}.
		Main(flags, args, stdout, stderr)
}

func (b *bench) parts() []rig.Part {
	return []rig.Part{{Name: "price", Run: b.price}, {Name: "fleet", Run: b.share}}
}

// build builds quotient, once for all parts.
func (b *bench) build(ctx context.Context) error {
	if b.exe == "" {
		b.exe = filepath.Join(b.dir, "quotient")
		return rig.Build(ctx, b.exe, "", quotientPackage)
	}
	return nil
}
