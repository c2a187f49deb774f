// Package carry is what a limiter with Demand and the source of its pool say to each other. A source that also
// sums up numbers over the pool is a Carrier, beside its method Watch: poolsize/gossip's is one. Follow finds that out
// and has it carry the limiter's reports on its keys, so users meet none of these names.
//
// Modules of this repository alone can import it. The module poolsize/gossip does: what is promised here stays from
// release to release.
package carry

import (
	"iter"
	"time"
)

// Carrier is a source that sums up, over the pool, the replicas' reports on their keys.
type Carrier interface {
	// Carry calls turn once in each interval while Watch runs, from one goroutine at a time, until stop is
	// called. Stop returns when no call runs, and takes back all Terms. The name tells the limiters of a
	// process apart. A name in use is an error.
	Carry(name string, turn func(Sums)) (stop func(), err error)
}

// Sums are the reports of a pool's replicas on the keys of a limiter. They are valid during one call of turn.
type Sums interface {
	// Say sets this replica's report on a key from now on. The zero Terms withdraw it.
	Say(key string, own Terms)
	// Keys iterates over the keys that any replica reports on, as far as is known here.
	Keys() iter.Seq[string]
	// Sum returns the sum over all replicas, this one included, and the age of the oldest part of it. That is
	// math.MaxInt64 while a part is missing.
	Sum(key string) (sum Terms, age time.Duration)
	// Bytes returns what the source has sent and received since it was made.
	Bytes() (sent, received uint64)
}

// Terms are what a replica adds to the sum for a key. The limiter decides what they mean. None is below 0.
type Terms [6]int64
