package pooltest_test

import (
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/pooltest"
)

// The test of a source that is always right: its world cannot change or break.
func ExampleRun() {
	test := func(t *testing.T) {
		pooltest.Run(t, pooltest.World{
			Source: func(testing.TB) quotient.Source { return quotient.Static(quotient.Pool{Replicas: 3}) },
			Size:   3,
			Once:   true,
		})
	}
	_ = test // go test runs it under a name like TestSource
}
