package pooltest_test

import (
	"context"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/pooltest"
)

// three is a source that is always right: its world cannot change or break.
type three struct{}

func (three) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	report(quotient.Pool{Replicas: 3}, nil)
	<-ctx.Done()
	return ctx.Err()
}

func ExampleRun() {
	test := func(t *testing.T) {
		pooltest.Run(t, pooltest.World{
			Source: func(testing.TB) quotient.Source { return three{} },
			Size:   3,
			Once:   true,
		})
	}
	_ = test // go test runs it under a name like TestSource
}
