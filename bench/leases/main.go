// Command leases checks quotient leases with real processes: histories of many clients against a model,
// crashes and failovers. It prints tables with verdicts.
//
//	go run ./leases                                # everything, about ten minutes; needs etcd
//	go run ./leases -only histories -histories 300
//
// Parts are histories, elected, kills and failovers. It ends by itself, listens on loopback only and leaves
// no process behind. It exits 1 unless all goals are met, and 2 when it could not measure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/internal/kept"
)

// bench is how much to check.
type bench struct {
	seed               int
	clients, requests  int // of each history
	histories, elected int // without and with etcd
	kills, failovers   int
	grace              time.Duration // of failovers
	stderr             io.Writer

	once          sync.Once
	dir, quotient string // the program, and its folder
	failed        error  // to build
}

func main() {
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

func command(args []string, stdout, stderr io.Writer) int {
	b := &bench{seed: 1, clients: 4, requests: 200, histories: 200, elected: 20, kills: 100, failovers: 30,
		grace: 4 * time.Second, stderr: stderr}
	flags := flag.NewFlagSet("leases", flag.ContinueOnError)
	rig.Ranged(flags, &b.seed, "seed", 0, 1_000_000, "seed of the histories")
	rig.Ranged(flags, &b.clients, "clients", 2, 8, "clients of a history")
	rig.Ranged(flags, &b.requests, "requests", 1, 1000, "requests of each client in a history")
	rig.Ranged(flags, &b.histories, "histories", 1, 10_000, "histories of one server")
	rig.Ranged(flags, &b.elected, "elected", 1, 1000, "histories of servers that etcd elects")
	rig.Ranged(flags, &b.kills, "kills", 1, 1000, "times that the server is killed under load")
	rig.Ranged(flags, &b.failovers, "failovers", 3, 300, "times that another server takes over")
	rig.Ranged(flags, &b.grace, "grace", time.Second, time.Minute, "grace time of failovers")
	status := rig.Program{
		Title: "quotient leases", Note: "Written by `go run ./leases > leases/results.md` in bench/.",
		Parts: []rig.Part{{Name: "histories", Run: b.singleServer}, {Name: "elected", Run: b.electedServers},
			{Name: "kills", Run: b.manyKills}, {Name: "failovers", Run: b.manyFailovers}},
	}.Main(flags, args, stdout, stderr)
	_ = os.RemoveAll(b.dir)
	return status
}

func (b *bench) build() {
	b.dir, b.failed = os.MkdirTemp("", "quotient-leases-")
	b.quotient = filepath.Join(b.dir, "quotient")
	if b.failed == nil {
		const program = "github.com/quotient-go/quotient/cmd/quotient"
		b.failed = rig.Build(context.Background(), b.quotient, "", program)
	}
}

// leases starts quotient leases at a port, and waits until it accepts connections. The first call builds it.
func (b *bench) leases(ctx context.Context, port int, more ...string) (*kept.Process, error) {
	if b.once.Do(b.build); b.failed != nil {
		return nil, b.failed
	}
	args := append([]string{b.quotient, "leases", "--port", strconv.Itoa(port)}, more...)
	p, err := kept.Start(b.dir, args...)
	if err != nil {
		return nil, err
	}
	if err := p.Serves(ctx, rig.Dials(rig.At(port))); err != nil {
		return nil, errors.Join(fmt.Errorf("quotient leases: %w", err), p.Stop())
	}
	return p, nil
}
