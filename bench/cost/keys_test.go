// Package cost has what its benchmarks compare: quotient and other limiters, behind one function each.
package cost

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
)

// keyLen is the length of every benchmark key in bytes: about a tenant's UUID without its dashes.
const keyLen = 24

// zipfSkew is the exponent of the Zipf draws. Values near one have the heaviest tail, which is the
// hardest case for a map that must be read from main memory.
const zipfSkew = 1.01

// drawn is how many draws a traffic pattern holds. It is a power of two, so that wrapping is a mask.
const drawn = 1 << 21

// traffic is a list of distinct keys and a precomputed order in which they are visited.
type traffic struct {
	keys  []string
	order []uint32
}

// makeKeys returns n distinct strings of keyLen bytes, each with memory of its own.
func makeKeys(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = makeKey(prefix, i)
	}
	return keys
}

func makeKey(prefix string, i int) string {
	return strings.Clone(fmt.Sprintf("%s%0*d", prefix, keyLen-len(prefix), i))
}

// uniform visits n keys, each equally often on average.
func uniform(n int) traffic {
	r := rand.New(rand.NewPCG(1, 2))
	return newTraffic(n, func() uint32 { return uint32(r.IntN(n)) })
}

// zipf visits n keys with Zipf frequencies. Which key is popular is independent of its name's order.
func zipf(n int) traffic {
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, zipfSkew, 1, uint64(n-1))
	rank := r.Perm(n)
	return newTraffic(n, func() uint32 { return uint32(rank[z.Uint64()]) })
}

func newTraffic(n int, next func() uint32) traffic {
	t := traffic{keys: makeKeys("tenant-", n), order: make([]uint32, drawn)}
	for i := range t.order {
		t.order[i] = next()
	}
	return t
}

// workers counts the goroutines that have begun to walk through patterns, so that each starts elsewhere.
var workers atomic.Int64

// visit asks for one key after another while next is true, and returns how often it was refused.
func (t traffic) visit(next func() bool, allow func(string) bool) (refused int) {
	for at := int(workers.Add(1)) * drawn / 7; next(); at++ {
		if !allow(t.keys[t.order[at&(drawn-1)]]) {
			refused++
		}
	}
	return refused
}
