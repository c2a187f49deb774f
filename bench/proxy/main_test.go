package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test program be what it starts: a keeper, or a bare proxy.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case keeperArg:
			os.Exit(keeperMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case bareArg:
			os.Exit(bareMain(os.Args[2:], os.Stderr))
		}
	}
	goleak.VerifyTestMain(m)
}
