// Package needed decides what a test does where a program that it needs is missing.
package needed

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Variable is the environment variable that lists, with commas, the programs that tests may not lack.
const Variable = "QUOTIENT_REQUIRE"

// Listed reports whether the variable lists the program.
func Listed(program string) bool {
	return slices.Contains(strings.Split(os.Getenv(Variable), ","), program)
}

// Without skips a test that lacks the program, and prints the reason. It fails the test if the program is listed.
func Without(t testing.TB, program, reason string) {
	t.Helper()
	if Listed(program) {
		t.Fatal(reason)
	}
	t.Skip(reason)
}
