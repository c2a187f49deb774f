//go:build race

package policy

import "flag"

// A law is arithmetic of one goroutine: a few histories are enough for the race detector, under which each takes fifty times as long. A
// flag on the command line still counts.
func init() {
	if err := flag.Set("rapid.checks", "5"); err != nil {
		panic(err)
	}
}
