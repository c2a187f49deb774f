//go:build race

package policy_test

import (
	"flag"

	_ "pgregory.net/rapid" // which defines the flag
)

// A controller is arithmetic of one goroutine: a few histories are enough for the race detector, under which
// each takes fifty times as long. A flag on the command line still counts.
func init() {
	if err := flag.Set("rapid.checks", "5"); err != nil {
		panic(err)
	}
}
