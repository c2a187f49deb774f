package lease_test

import (
	"fmt"
	"time"

	"github.com/quotient-go/quotient/lease"
)

// A Table is given the time: here two peers want the same lock, and the second one gets it in the end.
func ExampleTable() {
	now := time.Now()
	c := lease.Config{Semaphores: map[string]lease.Semaphore{"A": {Max: 1}}}
	table, err := lease.NewTable(c, lease.Tokens{Next: 1, End: lease.EndOfTokens}, now)
	if err != nil {
		panic(err)
	}
	for id := range uint64(2) {
		if err := table.AddPeer(id, time.Minute, now); err != nil {
			panic(err)
		}
		token, err := table.Acquire(id, "A", 1, now)
		fmt.Println("token", token, "error", err)
	}
	fmt.Println(table.Release(0, "A", now), table.Changed())
	// Output:
	// token 1 error <nil>
	// token 0 error <nil>
	// <nil> [1]
}
