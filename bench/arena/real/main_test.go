// Package real holds what the simulation says against real HTTP: processes, sockets, and an upstream that is
// not ours.
package real

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The first argument of a process that is not the test itself.
const (
	replicaArg = "replica"
	keeperArg  = "keeper"
)

// TestMain lets the test program be a replica, or the keeper of a server, because it starts itself as them.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case replicaArg:
			os.Exit(replicaMain(os.Stdin, os.Stdout, os.Stderr))
		case keeperArg:
			os.Exit(keeperMain(os.Args[2:], os.Stdin, os.Stderr))
		}
	}
	// The runs wait for time and not for processors: six at once keep half of one busy. A flag still goes
	// before.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
